/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/wait_budget.h"

#include <time.h>

#include "protocol/lagom_atomic.h"
#include "shm/attachment.h"
#include "shm/file_lock.h"

#define MILLISECOND 1000000u /* in nanoseconds */
#define WHOLE ((uint64_t)LAGOM_WAIT_BUDGET_MILLISECONDS * MILLISECOND)
#define LONGEST_PAUSE (50u * MILLISECOND)
#define LOCK_PAUSE_MICROSECONDS 200u

static uint64_t left_ns = WHOLE;
static bool over;

void lagom_wait_budget_renew(void)
{
    left_ns = WHOLE;
    lagom_store_relaxed(&over, false);
}

bool lagom_wait_budget_over(void)
{
    return lagom_load_relaxed(&over);
}

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000u * MILLISECOND + (uint64_t)now.tv_nsec;
}

static void take_from(uint64_t *left, uint64_t spent)
{
    *left -= spent < *left ? spent : *left;
}

static uint64_t sleep_for(uint32_t microseconds)
{
    const struct timespec pause = {.tv_nsec = (long)microseconds * 1000};
    uint64_t before = now_ns(CLOCK_MONOTONIC);
    lagom_attachments_sleep(&pause);
    uint64_t slept = now_ns(CLOCK_MONOTONIC) - before;
    return slept < LONGEST_PAUSE ? slept : LONGEST_PAUSE;
}

struct lagom_wait lagom_wait_begin(uint32_t milliseconds)
{
    return (struct lagom_wait){(uint64_t)milliseconds * MILLISECOND, now_ns(CLOCK_THREAD_CPUTIME_ID)};
}

static void take(struct lagom_wait *wait, uint64_t spent)
{
    take_from(&left_ns, spent);
    take_from(&wait->left_ns, spent);
}

static void take_what_looking_took(struct lagom_wait *wait)
{
    uint64_t cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
    take(wait, cpu_ns - wait->cpu_ns);
    wait->cpu_ns = cpu_ns;
}

bool lagom_wait_look(struct lagom_wait *wait)
{
    take_what_looking_took(wait);
    return left_ns != 0 && wait->left_ns != 0;
}

bool lagom_wait_pause(struct lagom_wait *wait, uint32_t microseconds)
{
    if (left_ns == 0 || wait->left_ns == 0) {
        wait->left_ns = 0;
        return false;
    }
    take_what_looking_took(wait);
    take(wait, sleep_for(microseconds));
    wait->cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID); /* the processor's part of the pause is in it already */
    return true;
}

bool lagom_wait_budget_lock(const int *fd, uint32_t byte, uint32_t milliseconds)
{
    if (lagom_lock_try(*fd, byte)) {
        return true;
    }
    struct lagom_wait wait = lagom_wait_begin(milliseconds);
    while (*fd >= 0 && lagom_wait_pause(&wait, LOCK_PAUSE_MICROSECONDS)) {
        if (lagom_lock_try(*fd, byte)) {
            return true;
        }
    }
    lagom_store_relaxed(&over, over || left_ns == 0);
    return false;
}
