/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_spawn.c - environment-only use: one rank starts the controller, cleanly; nobody does where it is forbidden,
 * there is one already, or it cannot be started. The controller here is a script that writes down what it was given, or
 * this program. */
#include <pthread.h>
#include <sched.h>

#include "tests/native/plugin_harness.h"

#define COMM 0x321u

static struct plugin plugin;

static void path_in_folder(char out[256], const char *name)
{
    snprintf(out, 256, "%s/%s", case_folder, name);
}

/* Instead of Python: notes arguments, environment, descriptors, session, processors; then lives for a moment. */
static void fake_python(void)
{
    char path[256];
    path_in_folder(path, "python");
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file,
            "#!/bin/sh\n"
            "cd %s\n"
            "echo \"$@\" > arguments\n"
            "env > environment\n"
            "ls -l /proc/$$/fd > descriptors\n"
            "cut -d' ' -f4,6 /proc/$$/stat > parent_and_session\n"
            "grep Cpus_allowed_list /proc/$$/status > processors\n"
            "echo hello from the controller\n"
            "echo $$ >> started\n"
            "sleep 5\n",
            case_folder);
    fclose(file);
    CHECK(chmod(path, 0700) == 0);
    setenv("LAGOM_PYTHON", path, 1);
}

static bool wait_for(const char *name)
{
    char path[256];
    path_in_folder(path, name);
    for (int i = 0; i < 60000; i++) {
        if (access(path, F_OK) == 0) {
            return true;
        }
        usleep(10000);
    }
    return false;
}

static char *read_all(const char *name)
{
    static char text[1 << 16];
    char path[256];
    path_in_folder(path, name);
    FILE *file = fopen(path, "r");
    size_t length = file == NULL ? 0 : fread(text, 1, sizeof(text) - 1, file);
    text[length] = '\0';
    if (file != NULL) {
        fclose(file);
    }
    return text;
}

static int lines_in(const char *name)
{
    int count = 0;
    for (const char *c = read_all(name); *c != '\0'; c++) {
        count += *c == '\n';
    }
    return count;
}

static void allow_spawning(void)
{
    setenv("LAGOM_CONTROLLER", "auto", 1);
    fake_python();
}

static void first_communicator(void)
{
    plugin = load_plugin();
    make_rank(&plugin, 6, COMM, 8, 1);
}

static void narrow_affinity(cpu_set_t *narrow, int *processors)
{
    cpu_set_t before;
    CHECK(sched_getaffinity(0, sizeof(before), &before) == 0);
    *processors = CPU_COUNT(&before);
    CPU_ZERO(narrow);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(narrow) == 0; i++) {
        if (CPU_ISSET(i, &before)) {
            CPU_SET(i, narrow);
        }
    }
    CHECK(sched_setaffinity(0, sizeof(*narrow), narrow) == 0); /* as NCCL does in this thread */
}

static void started_scrubbed_and_alone(void)
{
    cpu_set_t narrow, after;
    int processors;
    allow_spawning();
    setenv("LD_PRELOAD", "", 1);
    setenv("CUDA_VISIBLE_DEVICES", "3", 1);
    setenv("CUDA_INJECTION64_PATH", "/nowhere.so", 1);
    setenv("NCCL_DEBUG", "INFO", 1);
    setenv("OMP_NUM_THREADS", "96", 1);
    setenv("OPENBLAS_NUM_THREADS", "96", 1);
    setenv("MKL_NUM_THREADS", "96", 1);
    setenv("NVTX_INJECTION64_PATH", "/nowhere.so", 1);
    setenv("A_WORD_OF_THE_JOB", "1", 1);
    setenv("LC_ALL", "C", 1);
    setenv("PYTHONPATH", ":/some/path::and/another:", 1);
    setenv("LAGOM_STRATEGY", "guided", 1);
    narrow_affinity(&narrow, &processors);
    int inherited = open("/dev/null", O_RDONLY); /* not close-on-exec, like NCCL's sockets */
    CHECK(inherited >= 0 && dup2(inherited, 42) == 42);
    first_communicator();
    CHECK(wait_for("started"));

    char wanted[512];
    struct lagom_region *region = map_region();
    char key[LAGOM_PATH_BYTES], path[LAGOM_PATH_BYTES];
    lagom_job_key(key, 0);
    lagom_region_path(key, path);
    snprintf(wanted, sizeof(wanted), " --region %s --dir %s --mode tune\n", path, case_folder);
    const char *arguments = read_all("arguments");
    CHECK(strncmp(arguments, "-c import sys; ", 15) == 0);
    CHECK(strstr(arguments, "run_module('lagom.controller'") != NULL && strstr(arguments, wanted) != NULL);

    const char *environment = read_all("environment");
    CHECK(strstr(environment, "CUDA_VISIBLE_DEVICES=\n") != NULL);
    CHECK(strstr(environment, "CUDA_INJECTION") == NULL && strstr(environment, "NCCL_") == NULL);
    CHECK(strstr(environment, "OMP_NUM_THREADS=1\n") != NULL && strstr(environment, "LD_PRELOAD") == NULL);
    CHECK(strstr(environment, "OPENBLAS_NUM_THREADS=1\n") != NULL && strstr(environment, "MKL_NUM_THREADS=1\n") != NULL);
    CHECK(strstr(environment, "NVTX_") == NULL && strstr(environment, "A_WORD_OF_THE_JOB") == NULL);
    CHECK(strstr(environment, "LC_ALL=C\n") != NULL && strstr(environment, "PATH=") != NULL);
    CHECK(strstr(environment, "PYTHONPATH=/some/path:and/another\n") != NULL); /* an empty entry is the working folder */
    CHECK(strstr(environment, "PYTHONSAFEPATH=1\n") != NULL && strstr(environment, "LAGOM_STRATEGY=guided\n") != NULL);

    CHECK(strstr(read_all("descriptors"), " 42 ->") == NULL);
    CHECK(strstr(read_all("descriptors"), "lagom-") == NULL || strstr(read_all("descriptors"), path) == NULL);
    int parent = 0, session = 0;
    CHECK(sscanf(read_all("parent_and_session"), "%d %d", &parent, &session) == 2);
    CHECK(parent != getpid() && session != getsid(0));
    CHECK(processors == 1 || strpbrk(strstr(read_all("processors"), "Cpus_allowed_list"), "-,") != NULL);
    CHECK(sched_getaffinity(0, sizeof(after), &after) == 0 && CPU_EQUAL(&after, &narrow)); /* ours is as NCCL left it */
    CHECK(strstr(read_all("controller.log"), "hello from the controller") != NULL);

    CHECK(waitpid(-1, NULL, WNOHANG) == -1); /* no child of ours, not even a dead one */
    CHECK_EQUAL(region->header.spawn_claim, 1); /* the first process entry */
}

/* ---- Its signals ------------------------------------------------------------------------------------------------ */

/* The controller is this program, because a shell sets signals as it likes them before a script could look. */
static int note_signals(const char *folder)
{
    char line[256], written[256], name[256];
    snprintf(written, sizeof(written), "%s/signals.part", folder);
    snprintf(name, sizeof(name), "%s/signals", folder);
    FILE *status = fopen("/proc/self/status", "r"), *out = fopen(written, "w");
    CHECK(status != NULL && out != NULL);
    while (fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, "SigBlk:", 7) == 0 || strncmp(line, "SigIgn:", 7) == 0) {
            fputs(line, out);
        }
    }
    CHECK(fclose(out) == 0 && rename(written, name) == 0);
    return 0;
}

static const char *folder_in(int count, char **arguments)
{
    for (int i = 1; i + 1 < count; i++) {
        if (strcmp(arguments[i], "--dir") == 0) {
            return arguments[i + 1];
        }
    }
    return NULL;
}

static void use_this_program(void)
{
    char path[256];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    CHECK(length > 0);
    path[length] = '\0';
    setenv("LAGOM_PYTHON", path, 1);
    setenv("LAGOM_CONTROLLER", "auto", 1);
}

static uint64_t signals_of(const char *field)
{
    const char *line = strstr(read_all("signals"), field);
    CHECK(line != NULL);
    return strtoull(line + strlen(field), NULL, 16);
}

/* A job may have some of them so: Python ignores SIGPIPE, nohup SIGHUP, and a thread that handles signals blocks most. */
static void block_and_ignore_everything(void)
{
    const struct sigaction ignored = {.sa_handler = SIG_IGN};
    sigset_t all;
    for (int number = 1; number < NSIG; number++) {
        if (number != SIGALRM) { /* of a case that hangs */
            sigaction(number, &ignored, NULL);
        }
    }
    sigfillset(&all);
    sigdelset(&all, SIGALRM);
    CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
}

static void no_signal_is_blocked_or_ignored(void)
{
    /* Signals 32 and 33, which sigaction refuses: whatever posix_spawn starts, as `make` does, ignores 32 already. */
    const uint64_t glibcs = UINT64_C(3) << 31;
    use_this_program();
    block_and_ignore_everything();
    first_communicator();
    CHECK(wait_for("signals"));
    CHECK_EQUAL(signals_of("SigBlk:") & ~glibcs, 0);
    CHECK_EQUAL(signals_of("SigIgn:") & ~glibcs, 0);
}

/* ---- What the job sees of it ------------------------------------------------------------------------------------ */

static uint32_t child_signals, children_seen, over;

static void count_child_signal(int number)
{
    (void)number;
    __atomic_add_fetch(&child_signals, 1, __ATOMIC_RELAXED);
}

/* As an MPI launcher or a pool of workers does: whatever child ends is collected here. */
static void *collect_children(void *unused)
{
    (void)unused;
    while (__atomic_load_n(&over, __ATOMIC_ACQUIRE) == 0) {
        children_seen += waitpid(-1, NULL, WNOHANG) > 0;
    }
    return NULL;
}

/* python: NULL = the one that works. */
static void the_job_sees_no_child(const char *python)
{
    pthread_t collector;
    const struct sigaction counted = {.sa_handler = count_child_signal, .sa_flags = SA_RESTART};
    allow_spawning();
    if (python != NULL) {
        setenv("LAGOM_PYTHON", python, 1);
    }
    CHECK(sigaction(SIGCHLD, &counted, NULL) == 0);
    CHECK(pthread_create(&collector, NULL, collect_children, NULL) == 0);
    first_communicator();
    CHECK(python != NULL || wait_for("started"));
    usleep(100000);
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    pthread_join(collector, NULL);
    CHECK_EQUAL(child_signals, 0);
    CHECK_EQUAL(children_seen, 0);
}

static void the_job_sees_no_child_of_a_start(void)
{
    the_job_sees_no_child(NULL);
}

static void the_job_sees_no_child_of_a_failed_start(void)
{
    char path[256];
    path_in_folder(path, "no-program");
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs("neither a program nor a script", file) >= 0 && fclose(file) == 0);
    CHECK(chmod(path, 0700) == 0);
    the_job_sees_no_child(path);
    CHECK(strstr(map_region()->processes[0].remark, "could not be started") != NULL);
}

/* Eight ranks of a node at once: one controller. */
static void one_winner(void)
{
    allow_spawning();
    fflush(NULL);
    for (int i = 0; i < 8; i++) {
        if (fork() == 0) {
            first_communicator();
            sleep(1); /* the region lives as long as its ranks */
            exit(0);
        }
    }
    int status;
    while (wait(&status) > 0) {
        CHECK_EQUAL(status, 0);
    }
    CHECK_EQUAL(lines_in("started"), 1);
}

static pid_t a_rank_that_stays(void)
{
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        first_communicator();
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
    }
    close(ready[1]);
    CHECK(read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    return child;
}

static void end_of(pid_t child)
{
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
}

/* The starter and its controller were killed, other ranks live on: who comes then (an elastic restart) starts one.
 * The controller here takes no lock, so it counts as dead from the first. */
static void a_dead_starters_claim_is_void(void)
{
    allow_spawning();
    pid_t starter = a_rank_that_stays(), witness = a_rank_that_stays(), second = a_rank_that_stays();
    CHECK(wait_for("started"));
    usleep(200000);
    CHECK_EQUAL(lines_in("started"), 1);
    end_of(starter);
    pid_t heir = a_rank_that_stays(); /* into the dead one's entry: that does not make the claim its own */
    for (int i = 0; i < 60000 && lines_in("started") < 2; i++) {
        usleep(10000);
    }
    CHECK_EQUAL(lines_in("started"), 2);
    end_of(witness);
    end_of(second);
    end_of(heir);
}

static void nothing_was_started(void)
{
    usleep(200000);
    CHECK_EQUAL(lines_in("started"), 0);
}

static void forbidden(void)
{
    allow_spawning();
    setenv("LAGOM_CONTROLLER", "none", 1);
    first_communicator();
    nothing_was_started();
}

/* `lagom run` made the region and holds the controller's lock before the first rank comes. */
static void one_is_there_already(void)
{
    int ready[2];
    allow_spawning();
    CHECK(pipe(ready) == 0);
    fflush(NULL);
    pid_t controller = fork();
    if (controller == 0) {
        char key[LAGOM_PATH_BYTES];
        struct lagom_mapping mapping;
        lagom_job_key(key, 0);
        CHECK(lagom_region_control(&mapping, key, true, LAGOM_CLOCK_MONOTONIC) == LAGOM_REGION_OK);
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    first_communicator();
    nothing_was_started();
    kill(controller, SIGKILL);
    waitpid(controller, NULL, 0);
}

static void replay_needs_none(void)
{
    char path[256];
    allow_spawning();
    path_in_folder(path, "config");
    FILE *file = fopen(path, "w");
    fputs("lagom-config 1\ncommunicator ranks=8 nodes=1 ordinal=0\nrule allgather 0 - nc=3\nend\n", file);
    fclose(file);
    setenv("LAGOM_CONFIG", path, 1);
    first_communicator();
    nothing_was_started();
}

/* The job goes on, stock, and the reason can be found. */
static void stock_where_it_cannot_be_started(const char *reason)
{
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, COMM, 8, 1);
    CHECK(strstr(map_region()->processes[0].remark, reason) != NULL);
    for (int i = 0; i < 100; i++) {
        call(&rank, LAGOM_ALL_GATHER, MIB);
        CHECK(untouched(&rank));
    }
}

static void no_such_python(void)
{
    allow_spawning();
    setenv("LAGOM_PYTHON", "/nonexistent/python", 1);
    stock_where_it_cannot_be_started("/nonexistent/python");
}

static void no_such_folder(void)
{
    allow_spawning();
    setenv("LAGOM_DIR", "/proc/nowhere", 1);
    stock_where_it_cannot_be_started("log folder");
}

/* ./lagom-<job> where LAGOM_DIR is not set, made before the controller starts. */
static void the_folder_is_made(void)
{
    char path[256];
    allow_spawning();
    unsetenv("LAGOM_DIR");
    setenv("LAGOM_JOB_ID", "my job/1", 1);
    plugin = load_plugin(); /* named relative to where we still are */
    CHECK(chdir(case_folder) == 0);
    make_rank(&plugin, 6, COMM, 8, 1);
    CHECK(wait_for("started"));
    path_in_folder(path, "lagom-my-job-1/controller.log");
    CHECK(access(path, F_OK) == 0);
}

int main(int count, char **arguments)
{
    const char *folder = folder_in(count, arguments);
    if (folder != NULL) {
        return note_signals(folder);
    }
    int failures = 0;
    failures += RUN(started_scrubbed_and_alone);
    failures += RUN(no_signal_is_blocked_or_ignored);
    failures += RUN(the_job_sees_no_child_of_a_start);
    failures += RUN(the_job_sees_no_child_of_a_failed_start);
    failures += RUN(one_winner);
    failures += RUN(a_dead_starters_claim_is_void);
    failures += RUN(forbidden);
    failures += RUN(one_is_there_already);
    failures += RUN(replay_needs_none);
    failures += RUN(no_such_python);
    failures += RUN(no_such_folder);
    failures += RUN(the_folder_is_made);
    return failures != 0;
}
