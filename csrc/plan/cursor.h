/* SPDX-License-Identifier: Apache-2.0 */
/* cursor.h - the point in the program at which a communicator is. A pure function of the calls since the plan's
 * start_call, hence the same on every rank.
 *
 * Armed: the next call that is not transparent must be what positions[position] expects. A mismatch suspends the
 * program; then the cursor runs a Knuth-Morris-Pratt match of the whole period against the calls, and re-arms at
 * position 0 once one full period has matched. Irregular phases (evaluation, checkpoints) cost an iteration or two,
 * never the tuner.
 */
#ifndef LAGOM_CURSOR_H
#define LAGOM_CURSOR_H

#include <stdbool.h>

#include "protocol/lagom_protocol.h"

struct lagom_cursor {
    uint32_t position;   /* armed: expected next position; suspended: length of the prefix matched so far */
    uint32_t iteration;  /* whole periods since start_call that were begun; counts on after a re-arm */
    uint32_t block;      /* of alternate_iterations iterations, modulo 4: kept here because a division costs 10 ns */
    uint32_t block_left; /* iterations of this block that are still to begin */
    bool armed;
    uint64_t suspensions;
};

/* What a call turned out to be. */
struct lagom_program_point {
    bool in_program; /* position, site and iteration are valid */
    bool transparent;
    bool suspended_now; /* this very call broke the program */
    bool armed;         /* before this call and not broken by it; true for transparent calls of an armed program */
    uint8_t block;      /* modulo 4, see choose.h */
    uint32_t position;
    uint32_t iteration;
    uint32_t site;
};

/* failure[] is the KMP table of the plan's program: position_count entries, built once at acknowledge time. */
void lagom_cursor_build(const struct lagom_plan *plan, uint16_t failure[LAGOM_MAX_POSITIONS]);
void lagom_cursor_start(struct lagom_cursor *cursor, const struct lagom_plan *plan);
struct lagom_program_point lagom_cursor_advance(struct lagom_cursor *cursor, const struct lagom_plan *plan,
                                                const uint16_t failure[LAGOM_MAX_POSITIONS], uint32_t function,
                                                uint64_t bytes);

#endif
