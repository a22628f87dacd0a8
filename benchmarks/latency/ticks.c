/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "benchmarks/latency/latency.h"

#define EMPTY_SAMPLES 200000u

_Noreturn void fail(const char *what)
{
    fprintf(stderr, "latency benchmark: %s\n", what);
    exit(1);
}

uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double nanoseconds_a_tick(void)
{
    uint64_t start_ns = monotonic_ns(), start = ticks_before();
    while (monotonic_ns() - start_ns < 50000000u) {
    }
    uint64_t ticks = ticks_after() - start;
    return (double)(monotonic_ns() - start_ns) / (double)ticks;
}

double counter_step_ticks(void)
{
    uint64_t smallest = UINT64_MAX;
    for (int i = 0; i < 10000; i++) {
        uint64_t start = ticks_before(), step = ticks_after() - start;
        uint64_t next = ticks_after() - start - step;
        smallest = next > 0 && next < smallest ? next : smallest;
    }
    return (double)smallest;
}

struct samples make_samples(size_t room)
{
    struct samples samples = {.values = malloc(room * sizeof(uint64_t)), .room = room};
    if (samples.values == NULL) {
        fail("no memory for samples");
    }
    return samples;
}

void add_sample(struct samples *samples, uint64_t value)
{
    if (samples->count < samples->room) {
        samples->values[samples->count++] = value;
    }
}

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

void sort_samples(struct samples *samples)
{
    qsort(samples->values, samples->count, sizeof(samples->values[0]), compare);
}

uint64_t quantile(const struct samples *samples, double share)
{
    return samples->count == 0 ? 0 : samples->values[(size_t)(share * (double)(samples->count - 1))];
}

double nanoseconds_above(uint64_t ticks, uint64_t empty, double tick_ns)
{
    return ticks > empty ? (double)(ticks - empty) * tick_ns : 0;
}

uint64_t empty_ticks(void)
{
    struct samples samples = make_samples(EMPTY_SAMPLES);
    for (size_t i = 0; i < EMPTY_SAMPLES; i++) {
        uint64_t start = ticks_before();
        add_sample(&samples, ticks_after() - start);
    }
    sort_samples(&samples);
    uint64_t median = quantile(&samples, 0.5);
    free(samples.values);
    return median;
}
