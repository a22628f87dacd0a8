/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_fork.c - children forked while other threads make the first communicators: whatever the child finds locked, it
 * comes back from the plugin at once, and nothing of it is tuned or told. In mode off no lock is taken at all. */
#include <pthread.h>

#include "tests/native/plugin_harness.h"

#define THREADS 4
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROUNDS 4 /* under these, a fork takes ten times as long */
#else
#define ROUNDS 12 /* processes: each has one first communicator */
#endif
#define FORKS 40  /* in each */
#define CHILD_SECONDS 30 /* nothing is waited for in there: one that is killed by this was hanging */

static struct plugin plugin;
static pthread_barrier_t start;
static uint32_t over;
static bool off;

static void *make_communicators(void *argument)
{
    uint64_t id = (uint64_t)(uintptr_t)argument << 16;
    pthread_barrier_wait(&start);
    do {
        struct rank rank = make_rank(&plugin, 6, ++id, 2, 1);
        CHECK(!off || rank.context == NULL);
        end_rank(&rank);
    } while (__atomic_load_n(&over, __ATOMIC_ACQUIRE) == 0);
    return NULL;
}

/* As a DataLoader worker that is made at any moment, and then does what its parent does. */
static void child_that_enters(void)
{
    void *context = &plugin, *profiler = &plugin;
    alarm(CHILD_SECONDS);
    CHECK(plugin.v6->init(&context, 77, 2, 1, NULL, NULL, NULL) == 0);
    int mask = 0;
    CHECK(plugin.profiler_v6->init(&profiler, 77, &mask, "", 1, 2, 0, NULL) == 0);
    _exit(0);
}

static void fork_in_a_loop(void)
{
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            child_that_enters();
        }
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK_EQUAL(status, 0);
    }
}

static void one_round(void)
{
    pthread_t threads[THREADS];
    plugin = load_plugin();
    CHECK(pthread_barrier_init(&start, NULL, THREADS + 1) == 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, make_communicators, (void *)(i + 1)) == 0);
    }
    pthread_barrier_wait(&start);
    fork_in_a_loop();
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
}

static void rounds(void)
{
    for (int i = 0; i < ROUNDS; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            one_round();
            exit(0);
        }
        int status = -1;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_EQUAL(status, 0);
    }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* these bring a pthread_mutex_lock of their own */
static int (*real_lock)(pthread_mutex_t *mutex);
static uint32_t locks_taken;
static bool fork_at_locks, in_child_of_lock;
static uint32_t children_of_locks;

/* As another thread may do at this moment, with the lock held: the child must not want any. */
static void fork_under_a_lock(void)
{
    pid_t child = fork();
    if (child == 0) {
        in_child_of_lock = true;
        child_that_enters();
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    children_of_locks++;
}

__attribute__((constructor)) static void find_real_lock(void)
{
    void *symbol = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    memcpy(&real_lock, &symbol, sizeof(symbol));
}

/* Every lock of the process, the plugin's too, is taken here. */
int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    __atomic_add_fetch(&locks_taken, 1, __ATOMIC_RELAXED);
    if (in_child_of_lock) {
        _exit(3); /* it would wait for ever */
    }
    int failure = real_lock(mutex);
    if (fork_at_locks) {
        fork_under_a_lock();
    }
    return failure;
}

static uint32_t locks_of_a_communicator(void)
{
    void *profiler = &plugin;
    int mask = 0;
    uint32_t before = locks_taken;
    CHECK(plugin.profiler_v6->init(&profiler, 77, &mask, "", 1, 2, 0, NULL) == 0);
    struct rank rank = make_rank(&plugin, 6, 77, 2, 1);
    end_rank(&rank);
    CHECK(plugin.profiler_v6->finalize(profiler) == 0);
    return locks_taken - before;
}

static void mode_off_takes_no_lock(void)
{
    setenv("LAGOM_MODE", "off", 1);
    plugin = load_plugin();
    CHECK_EQUAL(locks_of_a_communicator(), 0);
}

static void other_modes_do(void)
{
    plugin = load_plugin();
    CHECK(locks_of_a_communicator() > 0); /* else the case above would show nothing */
}

/* The first lock above all: with it the process has begun. */
static void a_child_of_any_lock_takes_none(void)
{
    plugin = load_plugin();
    fork_at_locks = true;
    struct rank rank = make_rank(&plugin, 6, 77, 2, 1);
    fork_at_locks = false;
    CHECK(children_of_locks > 0 && rank.context != NULL);
    end_rank(&rank);
}
#else
static void mode_off_takes_no_lock(void) {}
static void other_modes_do(void) {}
static void a_child_of_any_lock_takes_none(void) {}
#endif

static void while_the_first_one_is_made(void)
{
    rounds();
}

static void in_mode_off(void)
{
    off = true;
    setenv("LAGOM_MODE", "off", 1);
    rounds();
}

/* Forked before there was any communicator: this process is as good as its parent. */
static void a_child_that_came_before_is_a_rank(void)
{
    plugin = load_plugin();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct rank rank = make_rank(&plugin, 6, 5, 2, 1);
        CHECK(rank.context != NULL && map_region() != NULL);
        end_rank(&rank);
        exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
}

/* And afterwards it is nobody, for good. */
static void a_child_that_came_after_is_inert(void)
{
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, 5, 2, 1);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        void *context = &plugin;
        CHECK(plugin.v6->init(&context, 6, 2, 1, NULL, NULL, NULL) == 0 && context == NULL);
        call(&rank, LAGOM_ALL_REDUCE, MIB);
        CHECK(untouched(&rank));
        exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    end_rank(&rank);
}

/* ---- The end ---------------------------------------------------------------------------------------------------- */

static void fake_controller(void)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/python", case_folder);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs("#!/bin/sh\n", file) >= 0 && fclose(file) == 0 && chmod(path, 0700) == 0);
    setenv("LAGOM_PYTHON", path, 1);
    setenv("LAGOM_CONTROLLER", "auto", 1);
}

static void end_a_child(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
}

static void a_job_with_workers(void)
{
    plugin = load_plugin();
    end_a_child();
    struct rank rank = make_rank(&plugin, 6, 5, 2, 1);
    for (int i = 0; i < 3; i++) {
        end_a_child(); /* while it has a communicator */
    }
    end_rank(&rank);
    end_a_child();
    exit(0);
}

static uint32_t lines_with(const char *words, int fd)
{
    static char text[65536];
    size_t length = 0;
    ssize_t count;
    while ((count = read(fd, text + length, sizeof(text) - 1 - length)) > 0) {
        length += (size_t)count;
    }
    uint32_t found = 0;
    for (const char *at = text; (at = strstr(at, words)) != NULL; at += strlen(words)) {
        found++;
    }
    return found;
}

/* By the process that has started the controller, not by its DataLoader workers too. */
static void the_end_is_said_once(void)
{
    int ends[2], status = -1;
    fake_controller();
    CHECK(pipe(ends) == 0);
    fflush(NULL);
    pid_t job = fork();
    if (job == 0) {
        CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        a_job_with_workers();
    }
    close(ends[1]);
    CHECK(waitpid(job, &status, 0) == job);
    CHECK_EQUAL(status, 0);
    CHECK_EQUAL(lines_with("lagom: ended;", ends[0]), 1);
}

int main(void)
{
    int failures = 0;
    failures += RUN(while_the_first_one_is_made);
    failures += RUN(in_mode_off);
    failures += RUN(mode_off_takes_no_lock);
    failures += RUN(other_modes_do);
    failures += RUN(a_child_of_any_lock_takes_none);
    failures += RUN(a_child_that_came_before_is_a_rank);
    failures += RUN(a_child_that_came_after_is_inert);
    failures += RUN(the_end_is_said_once);
    return failures != 0;
}
