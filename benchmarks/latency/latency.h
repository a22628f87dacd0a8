/* SPDX-License-Identifier: Apache-2.0 */
/* latency.h - what the latency programs share: a clock of nanoseconds, samples, NCCL's side of the plugin, and the proofs
 * that nothing allocates, calls the system or waits. Linked into each program of benchmarks/ that includes it. */
#ifndef LAGOM_BENCHMARK_LATENCY_H
#define LAGOM_BENCHMARK_LATENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/lagom_protocol.h"

_Noreturn void fail(const char *what);

/* ---- Time (ticks.c) ---------------------------------------------------------------------------------------------- */

uint64_t monotonic_ns(void);

/* The processor's own counter, fenced; elsewhere the clock. */
#if defined(__x86_64__)
static inline uint64_t ticks_before(void)
{
    __builtin_ia32_lfence();
    uint64_t ticks = __builtin_ia32_rdtsc();
    __builtin_ia32_lfence();
    return ticks;
}

static inline uint64_t ticks_after(void)
{
    unsigned processor;
    uint64_t ticks = __builtin_ia32_rdtscp(&processor);
    __builtin_ia32_lfence();
    return ticks;
}
#else
#define ticks_before monotonic_ns
#define ticks_after monotonic_ns
#endif

double nanoseconds_a_tick(void);
double counter_step_ticks(void); /* the smallest step the counter takes */
uint64_t empty_ticks(void);      /* the counter read twice with nothing in between */

struct samples {
    uint64_t *values;
    size_t count, room;
};
struct samples make_samples(size_t room);
void add_sample(struct samples *samples, uint64_t value); /* what does not fit is left out */
void sort_samples(struct samples *samples);
uint64_t quantile(const struct samples *samples, double share); /* of sorted ones */
double nanoseconds_above(uint64_t ticks, uint64_t empty, double tick_ns);

/* ---- Proofs (proofs.c) ------------------------------------------------------------------------------------------- */

extern uint64_t allocations;      /* by whatever code of this process, so far */
bool forbid_system_calls(void);   /* from here on anything but exit is SIGSYS; false = no seccomp here */

/* Runs body(argument) in a child that may make no system call: "none", "made", or why it was not checked. */
const char *verdict_under_seccomp(void (*body)(const void *argument), const void *argument);

/* ---- NCCL's side (nccl.c) ---------------------------------------------------------------------------------------- */

#define COMM 0xbe5cULL

struct rank {
    void *context;
    int (*ask)(void *, int, size_t, int, float **, int, int, int, int *);
    int (*chunk)(void *, int, size_t, int, int, int, size_t *);
    uint64_t step; /* in the sequence of calls */
};

extern float table[LAGOM_ALGORITHMS][LAGOM_PROTOCOLS];
extern int channels;
extern size_t chunk_bytes;
extern struct lagom_region *region; /* mapped beside the plugin */
extern uint32_t communicator;

struct rank open_rank(const char *library_path, int api);
void map_region(void);
void offer(void); /* cost table, channels and chunk as NCCL has them before it asks */
void drain(uint32_t slot);

/* What an iteration looks like: AllGathers forward, pairs of AllGather and ReduceScatter backward, over SITES sizes. */
#define SITES 96
struct lagom_site site_at(uint32_t index);
uint32_t site_of_position(uint32_t position);
void fill_program(struct lagom_plan *plan, uint32_t positions);
void fill_rules(struct lagom_plan *plan, uint32_t count); /* the last one fits */

static inline void ask(struct rank *rank, const struct lagom_site *site)
{
    rank->ask(rank->context, (int)site->function, site->bytes, 1, (float **)(void *)table, LAGOM_ALGORITHMS,
              LAGOM_PROTOCOLS, 0, &channels);
}

#endif
