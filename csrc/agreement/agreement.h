/* SPDX-License-Identifier: Apache-2.0 */
/* agreement.h - the rank's half of a switch: sees PREPARED, copies, checks, acknowledges, aborts when it arrives too
 * early, activates at start_call. README.md in this folder explains the protocol.
 *
 * No rank ever waits here. Nothing here allocates, locks or calls the system.
 */
#ifndef LAGOM_AGREEMENT_H
#define LAGOM_AGREEMENT_H

#include <stdbool.h>

#include "agreement/switch.h"
#include "plan/choose.h"
#include "plan/cursor.h"
#include "plan/plan.h"
#include "protocol/lagom_protocol.h"

#define LAGOM_HISTORY_DEPTH 1024u /* rolling hashes remembered: how far back history_call may lie */

struct lagom_replay;

struct lagom_rank_plan {
    struct lagom_plan plan;
    uint16_t failure[LAGOM_MAX_POSITIONS];
};

/* Private memory of one (process, communicator): about 70 KiB, allocated once at init. */
struct lagom_agreement {
    uint64_t calls;     /* number of the next call */
    uint64_t seen_word; /* last word acted on, and */
    uint64_t wake_call; /* the next call at which it asks for something: the fast path is one load, two compares */
    uint64_t history_hash;
    struct lagom_communicator *shared;
    const struct lagom_plan *offered; /* where the publisher writes; NULL = this communicator has no plan and runs stock */
    struct lagom_slot *slot;
    struct lagom_replay *replay;          /* replay.h; NULL = a controller decides */
    const struct lagom_plan *own_config; /* replay: only a plan of equal content is acknowledged; NULL = any */
    bool follows_controller; /* replay: a controller's plan is acknowledged, too. The plugin may set it after init */
    uint64_t comm_id;
    struct lagom_pending pending;
    bool no_threads;  /* this rank cannot set threads: it refuses a plan that does. The plugin may set it after init */
    const uint32_t *most_all_gather_channels; /* more than this many at an AllGather are refused; NULL = no bound */
    bool active;      /* false = stock */
    uint32_t current; /* plans[current] is in force if active; plans[1 - current] is pending */
    struct lagom_cursor cursor;
    uint64_t history[LAGOM_HISTORY_DEPTH]; /* history[n % depth] = hash of all calls before n */
    struct lagom_rank_plan plans[2];
};

/* What a call came to. */
struct lagom_decision {
    uint64_t call;
    uint64_t epoch; /* of the plan in force, 0 = stock */
    struct lagom_program_point point;
    struct lagom_choice choice;
};

/* communicator: its index in the region. */
void lagom_agreement_init(struct lagom_agreement *agreement, struct lagom_region *region, uint32_t communicator,
                          struct lagom_slot *slot, const struct lagom_plan *own_config);

/* The whole of the fast path: handles the word, finds the plan for this call, advances the program, chooses, and then
 * publishes the counter (release, after the decision). Call once for every getCollInfo with a usable entry. */
struct lagom_decision lagom_agreement_decide(struct lagom_agreement *agreement, uint32_t function, uint64_t bytes);

#endif
