/* SPDX-License-Identifier: Apache-2.0 */
/* join.h - which call a kernel belongs to: README.md has the policy in words. One thread, no clock, no CUPTI.
 *
 * Kernels come in the order of their correlation ids, launches in the order in which they were noted: both are the
 * order in which the process launched. What has to be found is the alignment: the launch at which the two begin
 * together; from there they go in step, and every pair is checked.
 */
#ifndef LAGOM_JOIN_H
#define LAGOM_JOIN_H

#include <stdbool.h>

#include "protocol/lagom_protocol.h"
#include "timeline/launched.h"
#include "timeline/unreported.h"

#define LAGOM_JOIN_PATIENT 256u /* kernels that wait until the alignment is certain; */
#define LAGOM_JOIN_HELD 384u    /* and one buffer's more: nothing is decided in the middle of one */

typedef void (*lagom_join_emit)(void *context, const struct lagom_kernel_span *span);

struct lagom_join {
    lagom_join_emit emit;
    void *context;
    uint64_t on_end_ns; /* CUPTI was surely on by then */
    bool in_sync;
    bool starting;   /* out of sync because it has just begun: `search` follows from the times */
    bool doubtful;   /* so much was lost that only NCCL's own times determine the alignment */
    uint32_t search; /* out of sync: how many launches from the oldest may be the first kernel's */
    uint32_t held_count;
    uint64_t tick_ns;           /* of the clock of NCCL's kernel times; 0 = NCCL has reported none so far */
    struct lagom_timing sync_timing; /* of pairs since it is in sync */
    uint64_t sync_from;              /* the first launch since then */
    uint64_t timed_up_to;       /* NCCL reports times in order: none will come for earlier launches */
    uint64_t doubted_from;      /* notes are missing somewhere from this launch on */
    uint64_t doubted_up_to;     /* and before this one; 0 = none are */
    struct lagom_clocks clocks; /* when it was last surely in sync */
    uint64_t counts[LAGOM_JOIN_RESULTS]; /* by enum lagom_join_result */
    struct lagom_nccl_kernel held[LAGOM_JOIN_HELD];
    struct lagom_launched launched;
    struct lagom_unreported unreported; /* Broadcasts, which have no launch */
};

/* NCCL says when its kernels ran: no alignment is accepted against these times, or before them. */
static inline bool lagom_join_is_timed(const struct lagom_join *join)
{
    return join->tick_ns != 0;
}

/* CUPTI began to record between the two times. Forgets all but the counts, whether Broadcasts are reported, and what is
 * known of NCCL's times and their clocks. */
void lagom_join_start(struct lagom_join *join, uint64_t on_begin_ns, uint64_t on_end_ns);

void lagom_join_note(struct lagom_join *join, const struct lagom_note *note);

/* A collective or P2P kernel. Kernels of one delivered buffer may come in any order before settle. */
void lagom_join_kernel(struct lagom_join *join, const struct lagom_nccl_kernel *recorded);

/* Its thread had pushed this launch's serial: exact, whatever the order. */
void lagom_join_exact(struct lagom_join *join, const struct lagom_nccl_kernel *kernel, uint64_t serial);

/* Joins what is certain by now. */
void lagom_join_settle(struct lagom_join *join);

/* Up to `count` kernels are missing: the alignment must be found anew. */
void lagom_join_lost(struct lagom_join *join, uint64_t count);

/* Notes are missing, somewhere since this launch was the newest. Their kernels come later, and belong to no launch. */
void lagom_join_notes_lost(struct lagom_join *join, uint64_t newest);

/* The window is over: what is still held goes out unjoined. */
void lagom_join_finish(struct lagom_join *join);

/* The window is given up: what is still held is forgotten. */
void lagom_join_drop(struct lagom_join *join);

#endif
