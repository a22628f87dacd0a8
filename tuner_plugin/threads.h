/* SPDX-License-Identifier: Apache-2.0 */
/* threads.h - NT, the one knob that NCCL has no interface for. Opt-in (LAGOM_NT=1), guarded, RING only.
 *
 * NCCL hands every tuner `&comm->tunerContext` at init, and reads comm->maxThreads[algorithm][protocol] right after
 * getCollInfo returns, on the same stack, and nowhere else. On builds whose layout is known, a rank can therefore set
 * the threads of the very next collective by writing that one int, and put the default back at the next call.
 *
 * Guards, all of which must hold: those of build.h (a known build, recognised memory); and, before the first write,
 * maxThreads has the pattern that NCCL's own tuning leaves there. Anything else: not one byte is written, and the reason
 * is kept.
 */
#ifndef LAGOM_THREADS_H
#define LAGOM_THREADS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/lagom_protocol.h"
#include "tuner_plugin/build.h"

struct lagom_threads {
    bool possible;  /* every guard held so far */
    bool confirmed; /* the pattern was looked at, and the defaults are remembered */
    bool changed;   /* this protocol's entry is not the default now */
    uint8_t changed_protocol;
    int32_t (*max_threads)[LAGOM_PROTOCOLS];  /* [LAGOM_ALGORITHMS][LAGOM_PROTOCOLS], inside NCCL */
    int64_t (*thresholds)[LAGOM_PROTOCOLS];   /* bytes a thread below which NCCL halves the threads; same shape */
    int32_t default_threads[LAGOM_PROTOCOLS]; /* of RING */
    int64_t default_thresholds[LAGOM_PROTOCOLS];
};

/* At init, once lagom_build_check held for the same place. */
void lagom_threads_open(struct lagom_threads *threads, const struct lagom_nccl_build *build, void *context_place);

/* At the first getCollInfo: before it, NCCL (>= 2.28) has not filled the tables. false = refused, with a reason. */
bool lagom_threads_confirm(struct lagom_threads *threads, char *reason, size_t reason_bytes);

/* Writes why NT is off to where doctor and the controller read it: the first reason of the process, if nothing else is
 * written there. */
void lagom_threads_remark(struct lagom_process *process, const char *reason);

/* For this call RING with `protocol` runs `count` threads. exact = also keep NCCL from halving them for small sizes;
 * only where the plan sets the channels too, because it lifts NCCL's own size-dependent limit on those. false = out of
 * range for the protocol (LL, SIMPLE 96..512; LL128 160..640; multiples of 32): nothing written. */
bool lagom_threads_set(struct lagom_threads *threads, int protocol, uint32_t count, bool exact);

/* Puts the defaults back. */
void lagom_threads_put_back(struct lagom_threads *threads);
static inline void lagom_threads_restore(struct lagom_threads *threads)
{
    if (threads->changed) {
        lagom_threads_put_back(threads);
    }
}

#endif
