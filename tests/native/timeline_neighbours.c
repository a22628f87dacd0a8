/* SPDX-License-Identifier: Apache-2.0 */
/* Capture beside other users of CUPTI: torch.profiler, whoever takes the clock, the callbacks or a buffer, injected tools. */
#include <limits.h>

#include "timeline_harness.h"

static void torch_profiler_comes_and_goes(void)
{
    int before[4], after[4];
    attach();
    switch_on();
    compute();
    fake.counts(before);
    fake.torch_profiling(1);
    fake.steal();
    CHECK(becomes(LAGOM_TIMELINE_YIELDED));
    CHECK(strstr(process->timeline_remark, "torch.profiler") != NULL);
    want(0);
    rest(100 * MS);
    fake.counts(after);
    CHECK_EQUAL(after[1], before[1]); /* nothing was switched off */
    CHECK_EQUAL(after[2], before[2]); /* and no callback taken back */
    want(1);
    rest(400 * MS);
    CHECK_EQUAL(state(), LAGOM_TIMELINE_YIELDED); /* still theirs */
    fake.torch_profiling(0);
    CHECK(becomes(LAGOM_TIMELINE_ON));
    drain();
    span_count = 0;
    nccl_launch(GATHER, 4, 9, 1, LAGOM_ALL_GATHER, 16);
    await_spans(1);
    check_span(nccl_span(0), 9, LAGOM_JOIN_CALL);
    leave();
}

/* CUDA activities alone: torch keeps it to the profiled thread, which launches. */
static void torch_profiles_a_thread(void)
{
    int before[4], after[4];
    attach();
    switch_on();
    fake.counts(before);
    fake.torch_profiling_thread(1);
    fake.steal();
    nccl_launch(GATHER, 4, 1, 1, LAGOM_ALL_GATHER, 16);
    CHECK(becomes(LAGOM_TIMELINE_YIELDED));
    CHECK(strstr(process->timeline_remark, "torch.profiler") != NULL);
    for (int i = 0; i < 80; i++) {
        nccl_launch(GATHER, 4, 2, 1, LAGOM_ALL_GATHER, 16);
        rest(20 * MS);
        fake.counts(after);
        CHECK_EQUAL(after[1], before[1]);
        CHECK_EQUAL(after[2], before[2]);
    }
    fake.torch_profiling_thread(0);
    CHECK(becomes(LAGOM_TIMELINE_ON));
    leave();
}

/* Kineto gets ready: its clock is there before any thread is profiled. */
static void somebody_takes_the_clock(void)
{
    int before[4], after[4];
    attach();
    switch_on();
    fake.counts(before);
    fake.take_clock();
    uint64_t began = now_ns();
    CHECK(becomes(LAGOM_TIMELINE_YIELDED));
    CHECK(now_ns() - began < 500 * MS);
    fake.steal();
    rest(700 * MS); /* nobody is profiled yet: still theirs */
    CHECK_EQUAL(state(), LAGOM_TIMELINE_YIELDED);
    fake.torch_profiling_thread(1);
    nccl_launch(GATHER, 4, 1, 1, LAGOM_ALL_GATHER, 16);
    fake.torch_profiling_thread(0);
    nccl_launch(GATHER, 4, 2, 1, LAGOM_ALL_GATHER, 16);
    fake.counts(after);
    CHECK_EQUAL(after[1], before[1]);
    CHECK_EQUAL(after[2], before[2]);
    CHECK(becomes(LAGOM_TIMELINE_ON)); /* it was profiled, and is no longer */
    leave();
}

/* The kernels before it may be told late, or never. */
static void await_kernel_of(uint8_t function)
{
    uint64_t until = now_ns() + 10000ull * MS;
    bool is_there = false;
    while (!is_there && now_ns() < until) {
        drain();
        for (uint32_t i = 0; i < span_count; i++) {
            is_there |= spans[i].kind == LAGOM_SPAN_COLLECTIVE && spans[i].function == function;
        }
        rest(2 * MS);
    }
    CHECK(is_there);
}

static void somebody_takes_the_callbacks_silently(void)
{
    attach();
    switch_on();
    fake.steal();
    uint64_t until = now_ns() + 8000ull * MS;
    for (uint64_t call = 0; state() == LAGOM_TIMELINE_ON && now_ns() < until; call++) {
        nccl_launch(GATHER, 4, call, 1, LAGOM_ALL_GATHER, 16);
        rest(20 * MS);
    }
    CHECK_EQUAL(state(), LAGOM_TIMELINE_YIELDED);
    CHECK(strstr(process->timeline_remark, "another profiler") != NULL);
    fake.torch_profiling_thread(1); /* it was torch; and is no longer */
    nccl_launch(GATHER, 4, 498, 1, LAGOM_ALL_GATHER, 16);
    fake.torch_profiling_thread(0);
    CHECK(becomes(LAGOM_TIMELINE_ON)); /* registered again: it is still wanted */
    rest(50 * MS); /* their half-filled buffer comes to us, is not ours, and takes its records with it */
    nccl_launch(GATHER, 4, 500, 1, LAGOM_ALL_GATHER, 16);
    nccl_launch(SCATTER, 4, 501, 1, LAGOM_REDUCE_SCATTER, 16);
    await_kernel_of(LAGOM_REDUCE_SCATTER);
    leave();
}

static void foreign_buffers_are_left_alone(void)
{
    attach();
    switch_on();
    uint8_t *foreign = fake.foreign_buffer();
    uint64_t until = now_ns() + 1000ull * MS;
    while (lagom_load_acquire(&process->timeline_lost) == 0 && now_ns() < until) {
        rest(2 * MS);
    }
    CHECK_EQUAL(lagom_load_acquire(&process->timeline_lost), 1);
    free(foreign); /* a second free of it would be ours */
    leave();
}

static void an_injected_tool_is_respected(void)
{
    setenv("CUDA_INJECTION64_PATH", "/opt/nvidia/libToolsInjection64.so", 1);
    attach();
    want(1);
    CHECK(becomes(LAGOM_TIMELINE_YIELDED));
    CHECK(strstr(process->timeline_remark, "CUDA_INJECTION64_PATH") != NULL);
    int counts[4];
    fake.counts(counts);
    CHECK_EQUAL(counts[0] + counts[2], 0);
    leave();
}

int main(void)
{
    unsetenv("CUDA_INJECTION64_PATH");
    build_fakes();
    CASE(torch_profiler_comes_and_goes);
    CASE(torch_profiles_a_thread);
    CASE(somebody_takes_the_clock);
    CASE(somebody_takes_the_callbacks_silently);
    CASE(foreign_buffers_are_left_alone);
    CASE(an_injected_tool_is_respected);
    end_cases();
    return 0;
}
