/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_signals.c - exit() and fork() in a signal handler of the job's, or fork() in another thread, while init waits for
 * another process's lock or is in the middle of anything else: they come back at once, and whoever goes on, goes on stock. */
#include <errno.h>
#include <pthread.h>
#include <sys/time.h>

#include "shm/file_lock.h"
#include "tests/native/plugin_harness.h"

#define COMM 0x516u
#define HANG_SECONDS 60 /* nothing here waits for more than the two seconds of init */
#define TRIES 5         /* of what a busy machine may delay by more than init waits */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INTERRUPTIONS 20
#define PERIOD_US 60000 /* they deliver a signal at the next call of the C library: often at the same one in every attempt */
#else
#define INTERRUPTIONS 150
#define PERIOD_US 1700
#endif

static struct plugin plugin;
static pid_t holder;
static volatile sig_atomic_t inside; /* init is */
static volatile sig_atomic_t inside_after_fork;
static volatile sig_atomic_t in_child;

static void hold_the_table(int ready)
{
    char key[LAGOM_PATH_BYTES], path[LAGOM_PATH_BYTES];
    lagom_job_key(key, 0);
    lagom_region_path(key, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && lagom_lock_try(fd, LAGOM_LOCK_REGISTER) && write(ready, "x", 1) == 1);
    alarm(HANG_SECONDS);
    pause();
    _exit(0);
}

static void another_process_holds_the_table(void)
{
    int ready[2];
    char byte;
    plugin = load_plugin();
    CHECK(make_rank(&plugin, 6, COMM, 2, 1).context != NULL && pipe(ready) == 0);
    fflush(NULL);
    holder = fork();
    if (holder == 0) {
        hold_the_table(ready[1]);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
}

static void release_the_table(void)
{
    kill(holder, SIGKILL);
    CHECK(waitpid(holder, NULL, 0) == holder);
}

static void interrupt_with(void (*handler)(int), long first_us, long then_us)
{
    const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    const struct itimerval timer = {.it_value = {.tv_usec = first_us}, .it_interval = {.tv_usec = then_us}};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

/* Its exit status, or 128 + signal, which is SIGKILL if it did not end. */
static int status_of_bounded(pid_t child)
{
    int status = 0;
    for (int i = 0; i < HANG_SECONDS * 100; i++) {
        pid_t ended = waitpid(child, &status, WNOHANG);
        if (ended == child) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        CHECK(ended == 0 || errno == EINTR);
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return 128 + SIGKILL;
}

static int status_of(void (*body)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        body();
        exit(1); /* bodies end by themselves */
    }
    return status_of_bounded(child);
}

/* ---- exit() ----------------------------------------------------------------------------------------------------- */

static void exit_in_handler(int number)
{
    (void)number;
    kill(holder, SIGKILL);
    exit(inside ? 0 : 2);
}

static void exit_while_init_waits(void)
{
    another_process_holds_the_table();
    interrupt_with(exit_in_handler, 300000, 0);
    inside = 1;
    make_rank(&plugin, 6, COMM + 1, 2, 1);
    inside = 0;
}

/* 2: the machine gave the handler no processor before init was over. */
static void exit_in_a_signal_handler(void)
{
    int status = 2;
    for (int i = 0; i < TRIES && status == 2; i++) {
        status = status_of(exit_while_init_waits);
    }
    CHECK_EQUAL(status, 0);
}

/* ---- fork() ----------------------------------------------------------------------------------------------------- */

static void wait_for_in_handler(pid_t child)
{
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (status != 0) {
        _exit(3);
    }
}

static void fork_in_handler(int number)
{
    (void)number;
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    wait_for_in_handler(child);
    inside_after_fork = inside;
}

static void fork_in_handler_while_init_waits(void)
{
    another_process_holds_the_table();
    interrupt_with(fork_in_handler, 300000, 0);
    inside = 1;
    CHECK(make_rank(&plugin, 6, COMM + 1, 2, 1).context == NULL);
    inside = 0;
    release_the_table();
    exit(inside_after_fork ? 0 : 2);
}

static void fork_in_a_signal_handler(void)
{
    int status = 2;
    for (int i = 0; i < TRIES && status == 2; i++) {
        status = status_of(fork_in_handler_while_init_waits);
    }
    CHECK_EQUAL(status, 0);
}

/* The child returns from the handler, into the middle of init. */
static void fork_and_go_on(int number)
{
    (void)number;
    pid_t child = fork();
    if (child == 0) {
        in_child = 1;
        alarm(0);
        return;
    }
    wait_for_in_handler(child);
}

static void child_goes_on_with_init_that_waits(void)
{
    another_process_holds_the_table();
    interrupt_with(fork_and_go_on, 300000, 0);
    struct rank rank = make_rank(&plugin, 6, COMM + 1, 2, 1);
    if (in_child) {
        CHECK(rank.context == NULL);
        exit(0);
    }
    release_the_table();
    exit(0);
}

static void a_child_may_go_on_from_the_handler(void)
{
    CHECK_EQUAL(status_of(child_goes_on_with_init_that_waits), 0);
}

static volatile sig_atomic_t forks;

static void fork_of_either_kind(int number)
{
    forks++;
    if (forks % 2 == 0) {
        fork_in_handler(number);
    } else {
        fork_and_go_on(number);
    }
}

/* Wherever the handler comes in between: joining and leaving, registering, making files. */
static void init_interrupted_often(void)
{
    uint64_t id = COMM;
    plugin = load_plugin();
    interrupt_with(fork_of_either_kind, 1000, PERIOD_US);
    while (forks < INTERRUPTIONS) {
        struct rank rank = make_rank(&plugin, 6, ++id, 2, 1);
        end_rank(&rank);
        if (in_child) {
            exit(0);
        }
    }
    const struct itimerval never = {.it_value = {0}};
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    struct rank rank = make_rank(&plugin, 6, ++id, 2, 1);
    CHECK(rank.context != NULL || in_child); /* no fork has harmed the parent */
    exit(0);
}

static void forks_at_any_moment(void)
{
    CHECK_EQUAL(status_of(init_interrupted_often), 0);
}

/* ---- fork() in another thread ----------------------------------------------------------------------------------- */

static void *wait_in_init(void *unused)
{
    (void)unused;
    __atomic_store_n(&inside, 1, __ATOMIC_SEQ_CST);
    make_rank(&plugin, 6, COMM + 1, 2, 1);
    __atomic_store_n(&inside, 0, __ATOMIC_SEQ_CST);
    return NULL;
}

static void fork_beside_init_that_waits(void)
{
    pthread_t thread;
    another_process_holds_the_table();
    CHECK(pthread_create(&thread, NULL, wait_in_init, NULL) == 0);
    usleep(300000);
    uint64_t began = lagom_milliseconds_now();
    pid_t child = fork();
    if (child == 0) {
        struct rank rank = make_rank(&plugin, 6, COMM + 2, 2, 1); /* inert: it comes back at once */
        _exit(rank.context == NULL ? 0 : 1); /* what the other thread has allocated, looks lost here */
    }
    bool waited = lagom_milliseconds_now() - began > 1000 || !__atomic_load_n(&inside, __ATOMIC_SEQ_CST);
    CHECK_EQUAL(status_of_bounded(child), 0);
    pthread_join(thread, NULL);
    release_the_table();
    exit(waited ? 2 : 0);
}

static void fork_in_another_thread(void)
{
    int status = 2;
    for (int i = 0; i < TRIES && status == 2; i++) {
        status = status_of(fork_beside_init_that_waits);
    }
    CHECK_EQUAL(status, 0);
}

int main(void)
{
    int failures = 0;
    failures += RUN(exit_in_a_signal_handler);
    failures += RUN(fork_in_a_signal_handler);
    failures += RUN(a_child_may_go_on_from_the_handler);
    failures += RUN(forks_at_any_moment);
    failures += RUN(fork_in_another_thread);
    return failures != 0;
}
