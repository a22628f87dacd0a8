/* SPDX-License-Identifier: Apache-2.0 */
/* Do kernels and launches put side by side go together, by NCCL's own times? And what that clock counts by. */
#include "check.h"
#include "timeline/timing.h"

#define MS 1000000u
#define SLOT 3u
#define GPU_ZERO 1795186421937000000u /* its clock's, less the host's */

static struct lagom_timing pairs(uint32_t count, int64_t last_start_off, int64_t last_end_off)
{
    struct lagom_timing timing = {.of = {{.pairs = 0}}};
    for (uint32_t i = 0; i < count; i++) {
        uint64_t start = 50 * MS * (i + 1), end = start + 3 * MS;
        bool last = i + 1 == count;
        struct lagom_ran ran = {start + GPU_ZERO + (uint64_t)(last ? last_start_off : 0),
                                end + GPU_ZERO + (uint64_t)(last ? last_end_off : 0)};
        lagom_timing_add(&timing, start, end, SLOT, &ran);
    }
    return timing;
}

static enum lagom_timing_verdict verdict_of(uint32_t count, int64_t last_start_off, int64_t last_end_off, uint64_t tick)
{
    struct lagom_timing timing = pairs(count, last_start_off, last_end_off);
    return lagom_timing_verdict(&timing, tick);
}

static void verdicts(void)
{
    CHECK_EQUAL(verdict_of(0, 0, 0, 32), LAGOM_TIMING_UNKNOWN);
    CHECK_EQUAL(verdict_of(LAGOM_TIMING_PAIRS - 1, 0, 0, 32), LAGOM_TIMING_UNKNOWN);
    CHECK_EQUAL(verdict_of(LAGOM_TIMING_PAIRS, 0, 0, 32), LAGOM_TIMING_ALIKE);
    CHECK_EQUAL(verdict_of(LAGOM_TIMING_PAIRS, 40000, 30000, 32), LAGOM_TIMING_ALIKE);
    CHECK_EQUAL(verdict_of(LAGOM_TIMING_PAIRS, 900000, 900000, 32), LAGOM_TIMING_UNLIKE); /* began at another time */
    CHECK_EQUAL(verdict_of(2, 0, 900000, 32), LAGOM_TIMING_UNLIKE);                        /* took another time */
    CHECK_EQUAL(verdict_of(LAGOM_TIMING_PAIRS, 900000, 900000, MS), LAGOM_TIMING_ALIKE);  /* one tick */
    CHECK_EQUAL(verdict_of(LAGOM_TIMING_PAIRS, 0, 0, 5 * MS), LAGOM_TIMING_UNKNOWN);
    CHECK_EQUAL(verdict_of(80, 2 * MS, 2 * MS, 32), LAGOM_TIMING_UNLIKE); /* after 4 s: clocks do not drift at once */
}

/* Another communicator's GPU has another clock: its pairs say nothing about these. */
static void one_communicator_at_a_time(void)
{
    struct lagom_timing timing = pairs(LAGOM_TIMING_PAIRS, 0, 0);
    lagom_timing_add(&timing, 900 * MS, 905 * MS, SLOT + 1, &(struct lagom_ran){77, 77 + 5 * MS});
    CHECK_EQUAL(lagom_timing_pairs(&timing), LAGOM_TIMING_PAIRS);
    CHECK_EQUAL(lagom_timing_verdict(&timing, 32), LAGOM_TIMING_ALIKE);
}

static void the_tick_shows(void)
{
    uint64_t tick = 0, random = 4711;
    for (int i = 0; i < 40; i++) {
        tick = lagom_timing_tick(tick, (GPU_ZERO / 1024 + next_random(&random) % 100000) * 1024);
    }
    CHECK_EQUAL(tick, 1024);
    CHECK_EQUAL(lagom_timing_tick(0, 96), 96);
    CHECK_EQUAL(lagom_timing_tick(96, 64), 32);
}

int main(void)
{
    RUN(verdicts);
    RUN(one_communicator_at_a_time);
    RUN(the_tick_shows);
    return 0;
}
