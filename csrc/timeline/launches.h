/* SPDX-License-Identifier: Apache-2.0 */
/* launches.h - notes of the launching threads about NCCL's launches, for the thread that joins them with kernels.
 *
 * A queue of many writers and one reader; nobody waits. While nobody records, a note costs one load.
 */
#ifndef LAGOM_LAUNCHES_H
#define LAGOM_LAUNCHES_H

#include <stdbool.h>

#include "protocol/lagom_protocol.h"

enum lagom_note_kind {
    LAGOM_NOTE_LAUNCH,     /* a bracket around one kernel launch (profiler plugin, NCCL from 2.28.3 on) */
    LAGOM_NOTE_CALL,       /* a collective of the plan that was just launched (profiler plugin) */
    LAGOM_NOTE_ASKED,      /* NCCL asked the tuner; the launch follows (no profiler plugin) */
    LAGOM_NOTE_UNREPORTED, /* NCCL asked the tuner and may report it to no profiler (beside the profiler plugin) */
    LAGOM_NOTE_RAN,        /* NCCL timed a collective's kernel, by the GPU's clock (profiler plugin) */
};

struct lagom_note {
    uint32_t kind;   /* enum lagom_note_kind */
    uint32_t thread; /* who launched: any number, the same for the same thread */
    uint64_t serial; /* of a launch: unique in the process; 0 = none */
    uint64_t begin_ns;
    uint64_t end_ns;
    struct lagom_kernel_span span; /* slot; of a call also call, bytes, function, channels, algorithm, ... */
};

/* Whether notes are wanted: checked first, on the launching thread. */
void lagom_notes_want(bool wanted);
bool lagom_notes_wanted(void);

void lagom_note_add(const struct lagom_note *note); /* any thread; `thread` is filled in */
bool lagom_note_take(struct lagom_note *note);      /* the one reader */
uint64_t lagom_notes_lost(void);    /* found no room, ever */
uint64_t lagom_notes_written(void); /* found room, ever */

#endif
