/* SPDX-License-Identifier: Apache-2.0 */
/* call_clock.h - CLOCK_MONOTONIC for call records, at the price of reading the processor's counter.
 *
 * clock_gettime costs 20 to 30 ns, most of what a recorded call may cost in all. Where the kernel itself keeps time by
 * the TSC, so do we: clock_gettime every tenth of a second, the counter in between, its rate taken from the last such
 * span. What the two can drift apart in that time is far below a microsecond. Elsewhere it is clock_gettime, always.
 *
 * One a communicator, used by its one thread. Never runs backwards.
 */
#ifndef LAGOM_CALL_CLOCK_H
#define LAGOM_CALL_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

struct lagom_call_clock {
    bool counter_good; /* the kernel trusts the TSC */
    uint64_t anchor_ns;
    uint64_t anchor_ticks;
    uint64_t limit_ticks; /* from the anchor on; 0 = no rate known yet */
    uint64_t ns_per_tick; /* times 2^32 */
    uint64_t last_ns;
};

void lagom_call_clock_open(struct lagom_call_clock *clock);
uint64_t lagom_call_clock_anchor(struct lagom_call_clock *clock, uint64_t ticks); /* the slow way; returns now */
uint64_t lagom_monotonic_ns(void);

#if defined(__x86_64__)
static inline uint64_t lagom_ticks(void)
{
    return __builtin_ia32_rdtsc();
}
#else
static inline uint64_t lagom_ticks(void)
{
    return 0;
}
#endif

static inline uint64_t lagom_call_clock_now(struct lagom_call_clock *clock)
{
    uint64_t ticks = lagom_ticks();
    uint64_t since = ticks - clock->anchor_ticks;
    if (__builtin_expect(since >= clock->limit_ticks, false)) {
        return lagom_call_clock_anchor(clock, ticks);
    }
    uint64_t now = clock->anchor_ns + (uint64_t)((unsigned __int128)since * clock->ns_per_tick >> 32);
    clock->last_ns = now > clock->last_ns ? now : clock->last_ns;
    return clock->last_ns;
}

#endif
