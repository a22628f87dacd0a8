/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/call_clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define CLOCKSOURCE "/sys/devices/system/clocksource/clocksource0/current_clocksource"
#define SPAN_NS 100000000u           /* between two looks at clock_gettime */
#define LONGEST_SPAN_NS 10000000000u /* a rate taken over this is not worth less, but 128 bits are enough for it */

uint64_t lagom_monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* vDSO: not a system call */
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool kernel_trusts_the_counter(void)
{
    char name[32] = "";
    FILE *file = fopen(CLOCKSOURCE, "re");
    if (file != NULL) {
        if (fgets(name, sizeof(name), file) == NULL) {
            name[0] = '\0';
        }
        fclose(file);
    }
    return strcmp(name, "tsc\n") == 0;
}

void lagom_call_clock_open(struct lagom_call_clock *clock)
{
    *clock = (struct lagom_call_clock){.counter_good = lagom_ticks() != 0 && kernel_trusts_the_counter()};
    clock->anchor_ns = lagom_monotonic_ns();
    clock->anchor_ticks = lagom_ticks();
    clock->last_ns = clock->anchor_ns;
}

/* The rate over the span that ends now. A counter that did not advance, or a span out of bounds, gives none. */
static void take_rate(struct lagom_call_clock *clock, uint64_t span_ns, uint64_t span_ticks)
{
    if (!clock->counter_good || span_ns > LONGEST_SPAN_NS || span_ticks == 0 || span_ticks >> 40 != 0) {
        clock->limit_ticks = 0;
        return;
    }
    clock->ns_per_tick = (uint64_t)(((unsigned __int128)span_ns << 32) / span_ticks);
    clock->limit_ticks = (uint64_t)((unsigned __int128)span_ticks * SPAN_NS / span_ns);
}

uint64_t lagom_call_clock_anchor(struct lagom_call_clock *clock, uint64_t ticks)
{
    uint64_t now = lagom_monotonic_ns();
    uint64_t span_ns = now - clock->anchor_ns;
    clock->last_ns = now > clock->last_ns ? now : clock->last_ns;
    if (span_ns >= SPAN_NS) {
        take_rate(clock, span_ns, ticks - clock->anchor_ticks);
        clock->anchor_ns = now;
        clock->anchor_ticks = ticks;
    }
    return clock->last_ns;
}
