#include "tuner_plugin/spawn.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/lagom_protocol.h"
#include "shm/ownership.h"

#define SHELL "/bin/sh"
/* Words for the shell; $0 is the interpreter. It forks the controller and leaves at once. */
#define IN_BACKGROUND "\"$0\" \"$@\" & exit 0"
/* Words for Python: as `-m lagom.controller`, but the job's working folder, where anybody may have put a module, is not
 * searched (`-P` would do that, from 3.11 on). Last of all comes the folder that this library's own package lies in. */
#define CONTROLLER                                                                                                     \
    "import runpy, sys; sys.path[:] = [path for path in sys.path + sys.argv[1:2] if path]; del sys.argv[1]; "          \
    "runpy.run_module('lagom.controller', run_name='__main__', alter_sys=True)"

#ifdef __GLIBC_PREREQ
#if __GLIBC_PREREQ(2, 34)
#define HAS_CLOSEFROM
#endif
#endif

extern char **environ;

/* ---- What to run ------------------------------------------------------------------------------------------------ */

static bool read_first_line(const char *path, char *out, size_t room)
{
    FILE *file = fopen(path, "re");
    bool good = file != NULL && fgets(out, (int)room, file) != NULL;
    if (file != NULL) {
        fclose(file);
    }
    out[good ? strcspn(out, "\r\n") : 0] = '\0';
    return good && out[0] != '\0';
}

static bool baked_python(char out[PATH_MAX], char why[LAGOM_PATH_BYTES])
{
    char path[PATH_MAX];
    if (!lagom_guarded_beside("python_path", path, why, LAGOM_PATH_BYTES)) {
        return false;
    }
    snprintf(why, LAGOM_PATH_BYTES, "python_path beside the plugin is empty");
    return read_first_line(path, out, PATH_MAX);
}

/* For a checkout that is not installed: then the package is found through this library. Empty = it is not there. */
static void package_folder(char out[PATH_MAX])
{
    static const char entry[] = "/lagom/controller/__main__.py";
    char why[LAGOM_PATH_BYTES];
    bool found = lagom_guarded_beside("../../lagom/controller/__main__.py", out, why, sizeof(why));
    out[found ? strlen(out) - strlen(entry) : 0] = '\0';
}

static bool refuse(char *reason, size_t room, const char *why, const char *path)
{
    snprintf(reason, room, "the controller's Python is not started: %s%.120s; set LAGOM_PYTHON, or use `lagom run`.",
             why, path);
    return false;
}

/* Absolute: what a relative name means, the job's working folder and PATH decide. */
static bool find_python(const char *wanted, char out[PATH_MAX], char *reason, size_t room)
{
    char why[LAGOM_PATH_BYTES];
    out[0] = '\0';
    if (wanted[0] != '\0') {
        snprintf(out, PATH_MAX, "%s", wanted);
    } else if (!baked_python(out, why)) {
        snprintf(reason, room,
                 "no Python is known to start the controller with (%.120s); set LAGOM_PYTHON, or use `lagom run`.", why);
        return false;
    }
    if (out[0] != '/' || access(out, X_OK) != 0) {
        return refuse(reason, room, out[0] == '/' ? "it cannot be run: " : "an absolute path is wanted, not ", out);
    }
    return lagom_path_is_guarded(out, NULL, why, sizeof(why)) || refuse(reason, room, "", why);
}

/* ---- Its environment -------------------------------------------------------------------------------------------- */

/* What is about this rank's GPU, threads or instrumentation, and would follow the controller around. */
static bool is_scrubbed(const char *variable)
{
    static const char *const prefixes[] = {"LD_PRELOAD=", "CUDA_", "NCCL_", "OMP_"};
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The kept variables, not copied; freed by one free. */
static char **scrubbed_environment(void)
{
    static char no_gpu[] = "CUDA_VISIBLE_DEVICES=";
    static char one_thread[] =
        "OMP_NUM_THREADS=1"; /* its small matrices would make BLAS spin on the job's processors */
    size_t count = 0;
    while (environ[count] != NULL) {
        count++;
    }
    char **kept = malloc((count + 3) * sizeof(*kept));
    size_t used = 0;
    for (size_t i = 0; kept != NULL && i < count; i++) {
        if (!is_scrubbed(environ[i])) {
            kept[used++] = environ[i];
        }
    }
    if (kept != NULL) {
        kept[used++] = no_gpu;
        kept[used++] = one_thread;
        kept[used] = NULL;
    }
    return kept;
}

/* ---- Its descriptors, signals and processors -------------------------------------------------------------------- */

static void close_from_three(posix_spawn_file_actions_t *actions)
{
#ifdef HAS_CLOSEFROM
    posix_spawn_file_actions_addclosefrom_np(actions, 3);
#else
    DIR *open_now = opendir("/proc/self/fd");
    const struct dirent *entry;
    while (open_now != NULL && (entry = readdir(open_now)) != NULL) {
        int fd = atoi(entry->d_name);
        if (fd >= 3) {
            posix_spawn_file_actions_addclose(actions, fd);
        }
    }
    if (open_now != NULL) {
        closedir(open_now);
    }
#endif
}

static void direct_stdio(posix_spawn_file_actions_t *actions, int log)
{
    posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(actions, log, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(actions, log, STDERR_FILENO);
}

/* Beyond the descriptors that a job without stdin or stdout may have free: those are about to be replaced. */
static int open_log(const char *folder, char *reason, size_t room)
{
    char why[LAGOM_PATH_BYTES];
    int low = lagom_open_guarded_log(folder, "controller.log", why, sizeof(why));
    int log = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, 3);
    if (log < 0) {
        snprintf(reason, room, "in the log folder, %s; set LAGOM_DIR to a folder of your own.",
                 low < 0 ? why : strerror(errno));
    }
    if (low >= 0) {
        close(low);
    }
    return log;
}

static void plain_signals(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &all);
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

/* Asks for every processor; the kernel grants those of the cgroup. Of this thread only, and put back by the caller. */
static bool widen_affinity(cpu_set_t *before)
{
    cpu_set_t every;
    memset(&every, 0xff, sizeof(every));
    return sched_getaffinity(0, sizeof(*before), before) == 0 && sched_setaffinity(0, sizeof(every), &every) == 0;
}

/* ---- Starting it ------------------------------------------------------------------------------------------------ */

static int spawn_shell(char *const arguments[], char *const environment[], int log)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t shell = -1;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    plain_signals(&attributes);
    direct_stdio(&actions, log);
    close_from_three(&actions);
    int failure = posix_spawn(&shell, SHELL, &actions, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    while (failure == 0 && waitpid(shell, NULL, 0) < 0 && errno == EINTR) {
    }
    return failure;
}

bool lagom_spawn_controller(const struct lagom_spawn *spawn, char *reason, size_t reason_bytes)
{
    char python[PATH_MAX], package[PATH_MAX];
    cpu_set_t before;
    int log = find_python(spawn->python, python, reason, reason_bytes)
                  ? open_log(spawn->folder, reason, reason_bytes)
                  : -1;
    if (log < 0) {
        return false;
    }
    package_folder(package);
    const char *arguments[] = {SHELL,
                               "-c",
                               IN_BACKGROUND,
                               python,
                               "-c",
                               CONTROLLER,
                               package,
                               "--region",
                               spawn->region,
                               "--dir",
                               spawn->folder,
                               "--mode",
                               "tune",
                               spawn->simulated_clock ? "--clock" : NULL,
                               "simulated",
                               NULL};
    char **environment = scrubbed_environment();
    bool widened = environment != NULL && widen_affinity(&before);
    int failure =
        environment == NULL ? ENOMEM : spawn_shell((char *const *)(uintptr_t)arguments, environment, log);
    if (widened) {
        sched_setaffinity(0, sizeof(before), &before);
    }
    free(environment);
    close(log);
    if (failure != 0) {
        snprintf(reason, reason_bytes, "the controller could not be started: %s.", strerror(failure));
    }
    return failure == 0;
}
