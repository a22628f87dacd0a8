#include "shm/wait_budget.h"

#include <time.h>

#include "protocol/lagom_atomic.h"
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

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u * MILLISECOND + (uint64_t)now.tv_nsec;
}

static void take_from(uint64_t *left, uint64_t spent)
{
    *left -= spent < *left ? spent : *left;
}

bool lagom_wait_budget_pause(uint64_t *share_ns, uint32_t microseconds)
{
    const struct timespec pause = {.tv_nsec = (long)microseconds * 1000};
    if (left_ns == 0 || *share_ns == 0) {
        *share_ns = 0;
        return false;
    }
    uint64_t before = now_ns();
    nanosleep(&pause, NULL);
    uint64_t spent = now_ns() - before;
    spent = spent < LONGEST_PAUSE ? spent : LONGEST_PAUSE;
    take_from(&left_ns, spent);
    take_from(share_ns, spent);
    return true;
}

bool lagom_wait_budget_lock(int fd, uint32_t byte, uint32_t milliseconds)
{
    uint64_t share_ns = (uint64_t)milliseconds * MILLISECOND;
    while (!lagom_lock_try(fd, byte)) {
        if (!lagom_wait_budget_pause(&share_ns, LOCK_PAUSE_MICROSECONDS)) {
            lagom_store_relaxed(&over, over || left_ns == 0);
            return false;
        }
    }
    return true;
}
