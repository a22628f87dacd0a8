/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/liblagom_timeline.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "protocol/lagom_atomic.h"
#include "shm/ring.h"
#include "timeline/cupti_control.h"

#define TURN_NS 5000000

static struct {
    pthread_mutex_t lock; /* attach against detach; the thread never takes it */
    pthread_t thread;
    pid_t owner; /* a forked child has no thread */
    bool running;
    bool registered; /* for the process's end */
    uint32_t ending; /* atomic */
    struct lagom_cupti_control control;
} timeline = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void push_alone(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span)
{
    lagom_kernel_ring_push(region, process, span);
}

static void *run_thread(void *unused)
{
    const struct timespec turn = {.tv_nsec = TURN_NS};
    (void)unused;
    while (lagom_load_acquire(&timeline.ending) == 0) {
        lagom_cupti_control_step(&timeline.control);
        nanosleep(&turn, NULL);
    }
    lagom_cupti_control_end(&timeline.control);
    return NULL;
}

/* The job's signals are for the job's threads. */
static bool start_thread(void)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&timeline.thread, NULL, run_thread, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) {
        pthread_setname_np(timeline.thread, "lagom-timeline");
    }
    return started;
}

static void end_thread(void)
{
    if (timeline.running) {
        lagom_store_release(&timeline.ending, 1u);
        pthread_join(timeline.thread, NULL);
        timeline.running = false;
    }
}

/* exit() without finalize: CUPTI must not be called once its own end has begun. Registered after it was loaded, this
 * runs before. Not waited for: a signal handler that calls exit() may have interrupted the thread which holds the lock. */
static void at_exit(void)
{
    if (timeline.owner == getpid() && pthread_mutex_trylock(&timeline.lock) == 0) {
        end_thread();
        pthread_mutex_unlock(&timeline.lock);
    }
}

int lagom_timeline_attach(struct lagom_region *region, uint32_t process, lagom_timeline_push push)
{
    if (region == NULL || process >= LAGOM_MAX_PROCESSES) {
        return -1;
    }
    pthread_mutex_lock(&timeline.lock);
    if (!timeline.registered) {
        timeline.registered = atexit(at_exit) == 0;
    }
    if (!timeline.running || timeline.owner != getpid()) {
        lagom_cupti_control_init(&timeline.control, region, process, push == NULL ? push_alone : push);
        lagom_store_release(&timeline.ending, 0u);
        timeline.owner = getpid();
        timeline.running = start_thread();
    }
    int result = timeline.running ? 0 : -1;
    pthread_mutex_unlock(&timeline.lock);
    return result;
}

void lagom_timeline_detach(void)
{
    if (timeline.owner != getpid()) {
        return; /* nothing of ours runs in a forked child, and its parent may have held the lock */
    }
    pthread_mutex_lock(&timeline.lock);
    end_thread();
    pthread_mutex_unlock(&timeline.lock);
}
