/* SPDX-License-Identifier: Apache-2.0 */
/* switch.h - the switch itself: pure transition functions of the rank and of whoever decides.
 *
 * They read no shared memory and write none; agreement.c and publisher.c perform what they say, one memory access at a
 * time, and tests/native/agreement_interleavings.c puts every interleaving of those accesses to the very same
 * functions.
 */
#ifndef LAGOM_SWITCH_H
#define LAGOM_SWITCH_H

#include <stdbool.h>
#include <stdint.h>

/* ---- A rank ----------------------------------------------------------------------------------------------------- */

/* What a rank knows about the plan it holds a private copy of and which is not in force yet. */
struct lagom_pending {
    uint64_t epoch; /* 0 = it holds none */
    uint64_t history_call;
    uint64_t start_call;
    bool acknowledged;
    bool committed;           /* seen COMMITTED: nothing the word says later can change it */
    uint64_t put_aside_epoch; /* the last one refused, aborted or dropped: not copied again */
};

enum lagom_step {
    LAGOM_STEP_GO_ON,       /* nothing to do until the word changes or the call of lagom_switch_wake() comes */
    LAGOM_STEP_COPY,        /* PREPARED with an epoch not held: copy the plan, check it, hold it or put it aside */
    LAGOM_STEP_ACKNOWLEDGE, /* write hashes, then the epoch with release */
    LAGOM_STEP_ABORT,       /* compare-and-swap PREPARED -> ABORTED, then go by whatever the word says */
    LAGOM_STEP_COMMIT,      /* note that it is decided; it takes effect at start_call */
    LAGOM_STEP_ACTIVATE,    /* this call is start_call: the held plan is in force from here on */
    LAGOM_STEP_DROP,        /* aborted: forget it */
};

/* What `word` asks of a rank that is about to decide call number `call`. Asked again after each step but GO_ON. */
enum lagom_step lagom_switch_rank(const struct lagom_pending *pending, uint64_t word, uint64_t call);

/* The next call at which there is something to do even if the word stays as it is; UINT64_MAX = none. */
uint64_t lagom_switch_wake(const struct lagom_pending *pending, uint64_t call);

/* The steps' effect on what is held. Copying is hold() or put_aside(). */
void lagom_pending_hold(struct lagom_pending *pending, uint64_t epoch, uint64_t history_call, uint64_t start_call);
void lagom_pending_put_aside(struct lagom_pending *pending, uint64_t epoch);
void lagom_pending_drop(struct lagom_pending *pending);

/* ---- Whoever decides: the controller, or the last acknowledging rank -------------------------------------------- */

/* One slot's acknowledgement as read: refused and acknowledged epochs first, then what they cover. */
struct lagom_ack {
    uint64_t refused_epoch;
    uint64_t epoch;
    uint64_t plan_hash;
    uint64_t history_hash;
};

/* A count over the slots of one communicator, for one epoch. */
struct lagom_tally {
    uint64_t epoch;
    uint32_t slots;
    uint32_t acknowledged;
    bool doubled; /* two of the slots are of the same rank, so another rank is missing */
    bool refused;
    bool differ;
    uint64_t plan_hash;
    uint64_t history_hash;
};

enum lagom_verdict { LAGOM_VERDICT_WAIT, LAGOM_VERDICT_COMMIT, LAGOM_VERDICT_ABORT };

void lagom_tally_add(struct lagom_tally *tally, const struct lagom_ack *ack);
enum lagom_verdict lagom_tally_verdict(const struct lagom_tally *tally, uint32_t rank_count);

/* Whether a rank has left the last committed epoch's start behind: it runs it, and its counter, which it publishes
 * after the decision, is past the start. */
bool lagom_switch_passed(uint64_t committed_epoch, uint64_t active_epoch, uint64_t active_start, uint64_t calls);

/* Whether a new PREPARED may follow `word`. After COMMITTED only once every rank has passed it. */
bool lagom_switch_may_prepare(uint64_t word, bool all_passed);

#endif
