/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "protocol/lagom_protocol.h"
#include "shm/controller_process.h"
#include "shm/controller_python.h"
#include "shm/ownership.h"

#define STACK_BYTES (64u << 10)
#define MOST_DESCRIPTORS (1u << 20) /* looked at where the kernel has no close_range */

#ifndef SYS_close_range
#define SYS_close_range 436 /* on every processor */
#endif

extern char **environ;

/* ---- What to run ------------------------------------------------------------------------------------------------ */

/* For a checkout that is not installed: then the package is found through this library. Empty = it is not there. */
static void package_folder(char out[PATH_MAX])
{
    static const char entry[] = "/lagom/controller/__main__.py";
    char why[LAGOM_PATH_BYTES];
    bool found = lagom_guarded_beside("../../lagom/controller/__main__.py", out, why, sizeof(why));
    out[found ? strlen(out) - strlen(entry) : 0] = '\0';
}

static bool find_python(const char *wanted, char python[PATH_MAX], char *reason, size_t room)
{
    char why[LAGOM_PATH_BYTES];
    bool found = lagom_controller_python(wanted, python, why, sizeof(why));
    if (!found) {
        snprintf(reason, room, "the controller is not started: %.140s; set LAGOM_PYTHON, or use `lagom run`.", why);
    }
    return found;
}

/* ---- Its descriptors, signals and processors -------------------------------------------------------------------- */

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

/* What follows runs in the memory of the job's process, on a stack of its own: system calls and nothing else. */
static void close_from_three(void)
{
    if (syscall(SYS_close_range, 3u, ~0u, 0u) == 0) {
        return;
    }
    struct rlimit limit;
    bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < MOST_DESCRIPTORS;
    for (int fd = 3; fd < (int)(known ? limit.rlim_cur : MOST_DESCRIPTORS); fd++) {
        close(fd);
    }
}

static void direct_stdio(int log)
{
    int null = open("/dev/null", O_RDONLY);
    if (null > STDIN_FILENO) {
        dup2(null, STDIN_FILENO);
    }
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
}

static void plain_signals(void)
{
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    sigset_t none;
    for (int number = 1; number < NSIG; number++) {
        sigaction(number, &plain, NULL);
    }
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Asks for every processor; the kernel grants those of the cgroup. */
static void widen_affinity(void)
{
    cpu_set_t every;
    memset(&every, 0xff, sizeof(every));
    sched_setaffinity(0, sizeof(every), &every);
}

/* ---- Starting it ------------------------------------------------------------------------------------------------ */

struct start {
    char *const *arguments;
    char *const *environment;
    char *stack; /* of the controller until it is Python: its end */
    int log;
    int failure; /* errno */
};

static int become_controller(void *argument)
{
    struct start *start = argument;
    setsid();
    plain_signals();
    widen_affinity();
    direct_stdio(start->log);
    close_from_three();
    execve(start->arguments[0], start->arguments, start->environment);
    start->failure = errno;
    return 1;
}

/* The process between: it is gone at once, so that the controller is not the job's child. It never becomes another program,
 * because its end would then be signalled by SIGCHLD. */
static int start_and_leave(void *argument)
{
    struct start *start = argument;
    if (clone(become_controller, start->stack, CLONE_VM | CLONE_VFORK, start) < 0) {
        start->failure = errno;
    }
    return 0;
}

/* 0 or errno. As posix_spawn does it: no signal handler and no cancellation of the job's may run in the new process
 * while it uses this memory. */
static int start_process(struct start *start)
{
    sigset_t all, before;
    int cancellation;
    char *stacks = mmap(NULL, 2u * STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stacks == MAP_FAILED) {
        return errno;
    }
    start->stack = stacks + STACK_BYTES;
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancellation);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pid_t between = clone(start_and_leave, stacks + 2u * STACK_BYTES, CLONE_VM | CLONE_VFORK, start);
    int failure = between < 0 ? errno : start->failure;
    while (between > 0 && waitpid(between, NULL, __WCLONE) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_setcancelstate(cancellation, NULL);
    munmap(stacks, 2u * STACK_BYTES);
    return failure;
}

bool lagom_spawn_controller(const struct lagom_spawn *spawn, char *reason, size_t reason_bytes)
{
    char python[PATH_MAX], package[PATH_MAX];
    int log = find_python(spawn->python, python, reason, reason_bytes)
                  ? open_log(spawn->folder, reason, reason_bytes)
                  : -1;
    if (log < 0) {
        return false;
    }
    package_folder(package);
    const char *arguments[] = {python,
                               "-c",
                               lagom_controller_program(),
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
    char **environment = lagom_controller_environment(environ);
    struct start start = {
        .arguments = (char *const *)(uintptr_t)arguments, .environment = environment, .log = log};
    int failure = environment == NULL ? ENOMEM : start_process(&start);
    lagom_controller_environment_free(environment);
    close(log);
    if (failure != 0) {
        snprintf(reason, reason_bytes, "the controller could not be started: %s.", strerror(failure));
    }
    return failure == 0;
}
