/* SPDX-License-Identifier: Apache-2.0 */
/* clock.h - the one clock of the kernel timeline. CUPTI stamps by it too, while we are its user. */
#ifndef LAGOM_TIMELINE_CLOCK_H
#define LAGOM_TIMELINE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t lagom_clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* CLOCK_MONOTONIC: steps of the wall clock must not look like kernels. */
static inline uint64_t lagom_now_ns(void)
{
    return lagom_clock_ns(CLOCK_MONOTONIC);
}

/* 0 where `since` is later: another thread may have stamped it after `now` was read. */
static inline uint64_t lagom_elapsed_ns(uint64_t now, uint64_t since)
{
    return now > since ? now - since : 0;
}

#endif
