/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_twice.c - the plugin loaded from two files into one process: locks of one's own process cannot be seen, and go
 * when any descriptor of the file is closed. The second copy leaves what the first one holds alone, and runs stock. */
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/native/plugin_harness.h"

static struct plugin first;
static const struct nccl_tuner_v6 *second;
static char region_file[LAGOM_PATH_BYTES];

static void read_region_file(void)
{
    char key[LAGOM_PATH_BYTES];
    lagom_job_key(key, 0);
    lagom_region_path(key, region_file);
}

/* A file of its own with the same content, as in an environment into which two versions were installed. */
static void load_second(void)
{
    char copy[256], command[1024];
    snprintf(copy, sizeof(copy), "%s/copy.so", case_folder);
    snprintf(command, sizeof(command), "cp '%s' '%s'", plugin_path(), copy);
    CHECK(system(command) == 0);
    void *library = dlopen(copy, RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    second = find_symbol(library, "ncclTunerPlugin_v6");
    CHECK(second != first.v6);
}

static void *enter_second(uint64_t comm_id)
{
    void *context = &second;
    CHECK(second->init(&context, comm_id, 2, 1, NULL, NULL, NULL) == 0);
    hold(NULL, context);
    return context;
}

/* What another process of the job finds there. */
static enum lagom_region_fault fault_seen_by_others(const char *path)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct lagom_mapping mapping;
        _exit((int)lagom_region_inspect(&mapping, path));
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return (enum lagom_region_fault)WEXITSTATUS(status);
}

static void the_second_runs_stock(void)
{
    struct stat before, after;
    char said[4096];
    int ends[2], ours = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    first = load_plugin();
    struct rank rank = make_rank(&first, 6, 1, 2, 1);
    CHECK(rank.context != NULL);
    read_region_file();
    CHECK(stat(region_file, &before) == 0);
    load_second();
    CHECK(pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    void *context = enter_second(2);
    CHECK(dup2(ours, STDERR_FILENO) == STDERR_FILENO && close(ends[1]) == 0);
    ssize_t bytes = read(ends[0], said, sizeof(said) - 1);
    said[bytes > 0 ? bytes : 0] = '\0';
    CHECK(context == NULL);
    CHECK(strstr(said, "another copy of this library") != NULL && strchr(said, '\n') == said + bytes - 1);
    CHECK(stat(region_file, &after) == 0 && before.st_ino == after.st_ino);
    CHECK_EQUAL(fault_seen_by_others(region_file), LAGOM_REGION_OK);
    struct rank more = make_rank(&first, 6, 3, 2, 1); /* the first goes on */
    CHECK(more.context != NULL);
    call(&more, LAGOM_ALL_REDUCE, MIB);
    end_rank(&more);
    CHECK_EQUAL(fault_seen_by_others(region_file), LAGOM_REGION_OK);
}

/* It has a region of its own to make, and clears away on the way what nobody seems to hold. */
static void nor_does_it_clear_away(void)
{
    first = load_plugin();
    CHECK(make_rank(&first, 6, 1, 2, 1).context != NULL);
    read_region_file();
    load_second();
    setenv("LAGOM_JOB_ID", "another-job", 1);
    CHECK(enter_second(2) != NULL);
    CHECK(access(region_file, F_OK) == 0);
    CHECK_EQUAL(fault_seen_by_others(region_file), LAGOM_REGION_OK);
}

static pid_t another_process_with_a_region(void)
{
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0); /* nor does it stay where a check fails */
        first = load_plugin();
        make_rank(&first, 6, 1, 2, 1);
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    return child;
}

/* Somebody else's region: whoever of the two comes first joins it, the other does not. */
static void in_a_region_of_another_process(void)
{
    pid_t child = another_process_with_a_region();
    first = load_plugin();
    load_second();
    CHECK(enter_second(1) != NULL);
    CHECK(make_rank(&first, 6, 1, 2, 1).context == NULL);
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    read_region_file();
    CHECK_EQUAL(fault_seen_by_others(region_file), LAGOM_REGION_OK);
}

static pthread_barrier_t start;

static void *enter_first_at_once(void *joined)
{
    pthread_barrier_wait(&start);
    *(bool *)joined = make_rank(&first, 6, 1, 2, 1).context != NULL;
    return NULL;
}

static int processes_seen_by_others(void)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct lagom_mapping mapping;
        CHECK(lagom_region_inspect(&mapping, region_file) == LAGOM_REGION_OK);
        _exit((int)lagom_region_processes_alive(&mapping));
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* One of them joins or none, and whoever joined is seen to live. */
static void one_round_of_both(void)
{
    pthread_t thread;
    bool joined = false;
    first = load_plugin();
    load_second();
    CHECK(pthread_barrier_init(&start, NULL, 2) == 0);
    CHECK(pthread_create(&thread, NULL, enter_first_at_once, &joined) == 0);
    pthread_barrier_wait(&start);
    bool second_joined = enter_second(1) != NULL;
    pthread_join(thread, NULL);
    CHECK(!(joined && second_joined));
    CHECK_EQUAL(processes_seen_by_others(), 1 + joined + second_joined);
}

static void both_at_once(void)
{
    pid_t other = another_process_with_a_region();
    read_region_file();
    for (int i = 0; i < 30; i++) {
        int status;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            one_round_of_both();
            exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_EQUAL(status, 0);
    }
    kill(other, SIGKILL);
    CHECK(waitpid(other, NULL, 0) == other);
}

static bool second_comes;

static void *enter_second_meanwhile(void *unused)
{
    CHECK(enter_second(1) != NULL);
    return unused;
}

/* In the C library's place: a region's header is read with it. Another thread joins with the second copy at that moment,
 * and the first one finds something wrong. */
ssize_t pread(int fd, void *out, size_t bytes, off_t offset)
{
    if (!second_comes) {
        return syscall(SYS_pread64, fd, out, bytes, offset);
    }
    pthread_t thread;
    second_comes = false;
    CHECK(pthread_create(&thread, NULL, enter_second_meanwhile, NULL) == 0 && pthread_join(thread, NULL) == 0);
    return 0;
}

/* Closing the file now would drop the lock that says that the second one lives. */
static void one_that_came_meanwhile_keeps_its_lock(void)
{
    pid_t other = another_process_with_a_region();
    read_region_file();
    first = load_plugin();
    load_second();
    second_comes = true;
    CHECK(make_rank(&first, 6, 1, 2, 1).context == NULL);
    CHECK(!second_comes);
    CHECK_EQUAL(processes_seen_by_others(), 2);
    kill(other, SIGKILL);
    CHECK(waitpid(other, NULL, 0) == other);
    CHECK_EQUAL(fault_seen_by_others(region_file), LAGOM_REGION_OK);
}

int main(void)
{
    int failures = 0;
    failures += RUN(the_second_runs_stock);
    failures += RUN(nor_does_it_clear_away);
    failures += RUN(in_a_region_of_another_process);
    failures += RUN(both_at_once);
    failures += RUN(one_that_came_meanwhile_keeps_its_lock);
    return failures != 0;
}
