/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's times of kernels, told apart from other kernels' times: never doubted where they are right, whatever the host
 * does; refuted within a few steps where NCCL counts works otherwise than the GPU. */
#include <unistd.h>

#include "tests/native/profiler_harness.h"
#include "tuner_plugin/call_clock.h"
#include "tuner_plugin/gpu_times.h"

#define SLOT 3u
#define MS 1000000u
#define EPOCH 1767766829233827840u /* the GPU's clock shows the time of day, the host's the time since it started */
#define KERNELS 4800

static uint64_t seed = 88172645463325252u;

static uint64_t chance(uint64_t below)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed % below;
}

struct job {
    uint64_t host_ns, gpu_free_ns; /* by the host's clock */
    uint64_t ahead_ns;             /* the host may run so far ahead of the GPU; 0 = it waits at the end of each step */
    uint64_t drift_ppm;
    unsigned calls; /* a step */
    unsigned shift; /* works by which NCCL's count lags the GPU's */
    unsigned wrong, refused;
    uint64_t starts[KERNELS];
};

static uint64_t gpu_clock(const struct job *job, uint64_t host_ns)
{
    return EPOCH + host_ns + host_ns / 1000000u * job->drift_ppm;
}

/* One collective: called, queued behind the ones before, run, told of a while after it ended. */
static void one_call(struct job *job, unsigned number)
{
    uint64_t called = job->host_ns += 20000 + chance(200000) + (chance(500) == 0 ? 30 * MS : 0); /* preempted */
    uint64_t begins = called + 5000 > job->gpu_free_ns ? called + 5000 : job->gpu_free_ns;
    uint64_t ends = begins + 300000 + chance(400000);
    job->starts[number] = begins;
    job->gpu_free_ns = ends + 200000; /* computes */
    unsigned told = number < job->shift ? 0 : number - job->shift;
    uint64_t arrives = (told == number ? ends : called) + 2000 + chance(chance(50) == 0 ? 20 * MS : 50000);
    lagom_gpu_times_arrived(SLOT, gpu_clock(job, job->starts[told]), arrives);
    bool hold = lagom_gpu_times_hold(SLOT, gpu_clock(job, job->starts[told]), called);
    job->wrong += told != number && hold;
    job->refused += told == number && !hold;
}

static void run(struct job *job)
{
    lagom_gpu_times_forget(SLOT);
    job->host_ns = job->gpu_free_ns = 77 * (uint64_t)MS;
    for (unsigned number = 0; number < KERNELS; number++) {
        bool last = number % job->calls == job->calls - 1;
        one_call(job, number);
        bool waits = job->ahead_ns == 0 ? last : job->gpu_free_ns > job->host_ns + job->ahead_ns;
        if (waits && job->gpu_free_ns > job->host_ns) {
            job->host_ns = job->gpu_free_ns - job->ahead_ns;
        }
        job->gpu_free_ns += last ? 8 * MS : 0; /* the optimizer */
    }
}

static void right_times_are_never_doubted(void)
{
    static struct job job;
    for (int i = 0; i < 40; i++) {
        job = (struct job){.calls = 12, .ahead_ns = (uint64_t)(i % 4) * 25 * MS, .drift_ppm = (uint64_t)(i % 6) * 100};
        run(&job);
        CHECK_EQUAL(job.refused, 0);
        CHECK(!lagom_gpu_times_refuted(SLOT));
    }
}

static void another_kernels_times_are_refuted(void)
{
    static struct job job;
    const unsigned calls[] = {4, 12, 64, 100, 300, 640};
    for (unsigned i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        for (unsigned shift = 1; shift <= 48; shift++) {
            job = (struct job){.calls = calls[i], .shift = shift, .drift_ppm = shift % 6 * 100};
            run(&job);
            CHECK(lagom_gpu_times_refuted(SLOT));
            CHECK(job.wrong < 200 + 5 * calls[i]); /* then never again */
            unsigned until_now = job.wrong;
            one_call(&job, KERNELS - 1);
            CHECK_EQUAL(job.wrong, until_now);
        }
    }
}

/* A slot read between its two words: that kernel is left out, the others are believed. */
static void a_slip_is_no_habit(void)
{
    lagom_gpu_times_forget(SLOT);
    uint64_t now = 5000 * (uint64_t)MS;
    for (int i = 0; i < 200000; i++, now += MS) {
        bool slips = i % 61000 == 60999; /* once a minute */
        uint64_t start = EPOCH + now - (slips ? 400 * MS : 0);
        lagom_gpu_times_arrived(SLOT, start, now + 10000);
        CHECK_EQUAL(lagom_gpu_times_hold(SLOT, start, now - 50000), !slips);
    }
    CHECK(!lagom_gpu_times_refuted(SLOT));
}

/* The GPU's clock counts by a millisecond and the two drift apart as fast as NTP may slew; kernels are seconds apart, or
 * come in bursts. */
static void a_coarse_clock_is_not_doubted(void)
{
    static const uint64_t apart_ns[] = {400 * MS, 990 * MS, 1490 * (uint64_t)MS, 7000 * (uint64_t)MS, 100000};
    for (unsigned i = 0; i < sizeof(apart_ns) / sizeof(apart_ns[0]); i++) {
        lagom_gpu_times_forget(SLOT);
        uint64_t now = 5000 * (uint64_t)MS;
        for (int kernel = 0; kernel < 3000; kernel++, now += apart_ns[i] + chance(apart_ns[i] / 50)) {
            uint64_t gpu = EPOCH + now + now / 2000;
            lagom_gpu_times_arrived(SLOT, gpu - gpu % 1024000, now + 5000);
            lagom_gpu_times_arrived(SLOT, gpu + 300000 - (gpu + 300000) % 1024000, now + 310000);
            CHECK(lagom_gpu_times_hold(SLOT, gpu - gpu % 1024000, now - 20000));
        }
    }
}

static void a_slot_of_no_kernel_is_left_alone(void)
{
    lagom_gpu_times_arrived(UINT32_MAX, 1, 2);
    lagom_gpu_times_forget(UINT32_MAX);
    CHECK(!lagom_gpu_times_hold(UINT32_MAX, 1, 2) && !lagom_gpu_times_refuted(UINT32_MAX));
    lagom_gpu_times_forget(SLOT);
    CHECK(lagom_gpu_times_hold(SLOT, 1, 1000 * (uint64_t)MS)); /* no event has placed the clocks yet */
}

/* ---- Through the plugin ----------------------------------------------------------------------------------------- */

/* Spans of kernels from `count` calls, each given the times of the call `shift` before it. */
static unsigned kernels_told(struct profiled_rank *rank, int count, int shift)
{
    struct lagom_kernel_span spans[16];
    uint64_t starts[64];
    unsigned told = 0;
    for (int i = 0; i < count; i++) {
        usleep(4000);
        call(&rank->rank, LAGOM_ALL_REDUCE, 2 * MIB);
        starts[i] = EPOCH + lagom_monotonic_ns();
        union nccl_event_body body = coll_of("AllReduce", MIB, 2, (uint64_t)i);
        void *coll = start(rank, COLL, NULL, &body);
        run_kernel(rank, coll, 2, starts[i < shift ? 0 : i - shift]);
        for (uint32_t n = drain(spans, 16), at = 0; at < n; at++) {
            told += spans[at].source == LAGOM_SPAN_NCCL_KERNEL;
        }
    }
    return told;
}

static void the_controller_is_told_and_gets_no_more_of_them(void)
{
    struct profiled_rank pair[2];
    pair_of(pair, 5);
    measure(&pair[0], LAGOM_CAPTURE_KERNELS);
    CHECK_EQUAL(kernels_told(&pair[0], 20, 0), 20);
    CHECK_EQUAL(region->slots[0].times_refuted, 0);
    CHECK(kernels_told(&pair[0], 20, 3) <= 3);
    CHECK_EQUAL(region->slots[0].times_refuted, 1);
    CHECK_EQUAL(kernels_told(&pair[0], 5, 0), 0);
    end_rank(&pair[0].rank);
}

int main(void)
{
    int failures = 0;
    failures += RUN(right_times_are_never_doubted);
    failures += RUN(another_kernels_times_are_refuted);
    failures += RUN(a_slip_is_no_habit);
    failures += RUN(a_coarse_clock_is_not_doubted);
    failures += RUN(a_slot_of_no_kernel_is_left_alone);
    failures += RUN(the_controller_is_told_and_gets_no_more_of_them);
    return failures != 0;
}
