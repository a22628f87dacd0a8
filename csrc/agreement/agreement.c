/* SPDX-License-Identifier: Apache-2.0 */
#include "agreement/agreement.h"

#include <string.h>

#include "agreement/publisher.h"
#include "agreement/replay.h"
#include "protocol/lagom_atomic.h"

/* Each epoch that comes by within one call takes at most four steps; what is left over waits for the next call, which
 * is safe because nothing acknowledged is ever left undecided by a GO_ON or a COPY. */
#define STEPS_A_CALL 32u
#define NO_WORD UINT64_MAX /* LOCKED of the last epoch there is: never seen */

void lagom_agreement_init(struct lagom_agreement *agreement, struct lagom_region *region, uint32_t communicator,
                          struct lagom_slot *slot, const struct lagom_plan *own_config)
{
    memset(agreement, 0, sizeof(*agreement));
    agreement->shared = &region->communicators[communicator];
    agreement->offered = communicator < LAGOM_MAX_PLANS ? &region->plans[communicator] : NULL;
    agreement->slot = slot;
    agreement->own_config = own_config;
    agreement->comm_id = lagom_load_relaxed(&slot->comm_id);
    agreement->seen_word = NO_WORD;
    agreement->wake_call = UINT64_MAX;
    agreement->history_hash = LAGOM_HISTORY_SEED;
    agreement->history[0] = LAGOM_HISTORY_SEED;
}

static struct lagom_rank_plan *held(struct lagom_agreement *agreement)
{
    return &agreement->plans[1 - agreement->current];
}

/* Of a rank that replays: what another rank publishes must be what this one has read itself. */
static bool is_mine(const struct lagom_agreement *agreement, const struct lagom_plan *plan)
{
    const struct lagom_plan *mine = agreement->own_config;
    bool is_controllers = (plan->flags & LAGOM_PLAN_LAST_ACK_COMMITS) == 0;
    return mine == NULL || (is_controllers && agreement->follows_controller) ||
           lagom_plan_content_hash(plan) == lagom_plan_content_hash(mine);
}

static enum lagom_plan_fault judge(const struct lagom_agreement *agreement, const struct lagom_plan *plan)
{
    enum lagom_plan_fault fault = lagom_plan_check(plan, agreement->comm_id);
    if (fault != LAGOM_PLAN_SOUND) {
        return fault;
    }
    if (!is_mine(agreement, plan)) {
        return LAGOM_PLAN_NOT_MINE;
    }
    if (agreement->no_threads && lagom_plan_sets_threads(plan)) {
        return LAGOM_PLAN_NO_THREADS;
    }
    const uint32_t *most = agreement->most_all_gather_channels;
    if (most != NULL && lagom_plan_most_channels(plan, LAGOM_ALL_GATHER) > lagom_load_relaxed(most)) {
        return LAGOM_PLAN_MANY_CHANNELS;
    }
    bool too_late = agreement->calls >= plan->history_call + LAGOM_HISTORY_DEPTH && agreement->calls < plan->start_call;
    return too_late ? LAGOM_PLAN_LATE_HISTORY : LAGOM_PLAN_SOUND;
}

static void refuse(struct lagom_agreement *agreement, uint64_t epoch, enum lagom_plan_fault fault)
{
    lagom_store_relaxed(&agreement->slot->refused_fault, (uint64_t)fault);
    lagom_store_release(&agreement->slot->refused_epoch, epoch); /* pairs with the tally's acquire */
    lagom_pending_put_aside(&agreement->pending, epoch);
}

/* Returns the word to go on with: read again, because a plan that does not fit its word may just have been replaced. */
static uint64_t copy_plan(struct lagom_agreement *agreement, uint64_t word)
{
    uint64_t epoch = LAGOM_WORD_EPOCH(word);
    struct lagom_rank_plan *copy = held(agreement);
    if (agreement->offered == NULL) { /* no plan is being published: the word is garbage */
        refuse(agreement, epoch, LAGOM_PLAN_BAD_HASH);
        return word;
    }
    lagom_plan_copy(&copy->plan, agreement->offered);
    enum lagom_plan_fault fault = judge(agreement, &copy->plan);
    if (fault == LAGOM_PLAN_SOUND && copy->plan.epoch != epoch) {
        fault = LAGOM_PLAN_BAD_HASH;
    }
    if (fault == LAGOM_PLAN_SOUND) {
        lagom_cursor_build(&copy->plan, copy->failure);
        lagom_pending_hold(&agreement->pending, epoch, copy->plan.history_call, copy->plan.start_call);
        return word;
    }
    uint64_t now = lagom_load_acquire(&agreement->shared->word);
    if (now == word) {
        refuse(agreement, epoch, fault);
    }
    return now;
}

static uint64_t acknowledge(struct lagom_agreement *agreement, uint64_t word)
{
    struct lagom_slot *slot = agreement->slot;
    const struct lagom_plan *plan = &held(agreement)->plan;
    lagom_store_relaxed(&slot->ack_plan_hash, plan->hash);
    lagom_store_relaxed(&slot->ack_history_hash, agreement->history[plan->history_call % LAGOM_HISTORY_DEPTH]);
    lagom_store_release(&slot->ack_epoch, plan->epoch); /* pairs with the tally's acquire */
    agreement->pending.acknowledged = true;
    if (agreement->replay == NULL || (plan->flags & LAGOM_PLAN_LAST_ACK_COMMITS) == 0) {
        return word;
    }
    lagom_publish_fence(); /* mine is written, now I look at the others': one of us sees all */
    lagom_publish_poll(agreement->replay->region, agreement->replay->communicator);
    return lagom_load_acquire(&agreement->shared->word);
}

static uint64_t abort_plan(struct lagom_agreement *agreement, uint64_t word)
{
    uint64_t aborted = LAGOM_WORD(LAGOM_ABORTED, LAGOM_WORD_EPOCH(word));
    if (lagom_compare_exchange(&agreement->shared->word, word, aborted)) {
        return aborted;
    }
    return lagom_load_acquire(&agreement->shared->word); /* pairs with the faster one */
}

static void activate(struct lagom_agreement *agreement)
{
    agreement->current = 1 - agreement->current;
    agreement->active = true;
    const struct lagom_plan *plan = &agreement->plans[agreement->current].plan;
    lagom_cursor_start(&agreement->cursor, plan);
    lagom_store_relaxed(&agreement->slot->active_start, plan->start_call);
    lagom_store_relaxed(&agreement->slot->iterations, (uint64_t)0);
    lagom_store_release(&agreement->slot->active_epoch, plan->epoch); /* pairs with lagom_publish_ready */
    lagom_pending_drop(&agreement->pending);
}

/* Performs one step; returns the word to go on with. */
static uint64_t perform(struct lagom_agreement *agreement, enum lagom_step step, uint64_t word)
{
    switch (step) {
    case LAGOM_STEP_COPY: return copy_plan(agreement, word);
    case LAGOM_STEP_ACKNOWLEDGE: return acknowledge(agreement, word);
    case LAGOM_STEP_ABORT: return abort_plan(agreement, word);
    case LAGOM_STEP_COMMIT: agreement->pending.committed = true; return word;
    case LAGOM_STEP_ACTIVATE: activate(agreement); return word;
    case LAGOM_STEP_DROP: lagom_pending_drop(&agreement->pending); return word;
    case LAGOM_STEP_GO_ON: break;
    }
    return word;
}

static void follow_word(struct lagom_agreement *agreement, uint64_t word)
{
    for (uint32_t i = 0; i < STEPS_A_CALL; i++) {
        enum lagom_step step = lagom_switch_rank(&agreement->pending, word, agreement->calls);
        if (step == LAGOM_STEP_GO_ON) {
            agreement->seen_word = word;
            agreement->wake_call = lagom_switch_wake(&agreement->pending, agreement->calls);
            return;
        }
        word = perform(agreement, step, word);
    }
    agreement->seen_word = NO_WORD; /* look again at the next call */
}

__attribute__((noinline, cold)) static void poll_switch(struct lagom_agreement *agreement, uint64_t word)
{
    uint64_t next_look = UINT64_MAX;
    if (agreement->replay != NULL) {
        next_look = lagom_replay_poll_switch(agreement->replay);
        word = lagom_load_acquire(&agreement->shared->word); /* it may just have been ours to move */
    }
    follow_word(agreement, word);
    agreement->wake_call = next_look < agreement->wake_call ? next_look : agreement->wake_call;
}

static void look_up(struct lagom_agreement *agreement, uint32_t function, uint64_t bytes,
                    struct lagom_decision *decision)
{
    const struct lagom_rank_plan *mine = &agreement->plans[agreement->current];
    decision->epoch = mine->plan.epoch;
    decision->point = lagom_cursor_advance(&agreement->cursor, &mine->plan, mine->failure, function, bytes);
    decision->choice = lagom_choose(&mine->plan, &decision->point, decision->call, function, bytes);
    if (__builtin_expect(decision->point.suspended_now, false)) {
        lagom_store_relaxed(&agreement->slot->suspensions, agreement->cursor.suspensions);
    } else if (decision->point.in_program && decision->point.position == 0) {
        lagom_store_relaxed(&agreement->slot->iterations, (uint64_t)agreement->cursor.iteration);
    }
}

/* The counter goes out after the decision: whoever sees it past N knows that call N is decided. Since ranks also
 * publish which plan they run (activate), lagom_switch_passed would hold without it; two guards, neither costs a cycle.
 * The release orders history_hash before the counter for whoever compares histories. The agreement itself does not need
 * it, nor that of active_epoch: the plan was read before ack_epoch was stored with release, and an old counter or
 * active_epoch only says "not yet" (tests/memory_model weakens both and finds nothing). */
static void publish_counter(struct lagom_agreement *agreement, uint32_t function, uint64_t bytes)
{
    uint64_t next = agreement->calls + 1;
    agreement->history_hash = lagom_history_next(agreement->history_hash, function, bytes);
    agreement->history[next % LAGOM_HISTORY_DEPTH] = agreement->history_hash;
    agreement->calls = next;
    lagom_store_relaxed(&agreement->slot->history_hash, agreement->history_hash);
    lagom_store_release(&agreement->slot->calls, next); /* pairs with lagom_counters */
}

struct lagom_decision lagom_agreement_decide(struct lagom_agreement *agreement, uint32_t function, uint64_t bytes)
{
    struct lagom_decision decision = {.call = agreement->calls, .choice = {.config = LAGOM_CONFIG_STOCK}};
    uint64_t word = lagom_load_acquire(&agreement->shared->word); /* pairs with PREPARED and with every outcome */
    if (__builtin_expect(word != agreement->seen_word || decision.call >= agreement->wake_call, false)) {
        poll_switch(agreement, word);
    }
    if (agreement->active) {
        look_up(agreement, function, bytes, &decision);
    } else {
        decision.point.transparent = lagom_is_transparent(function, bytes) != 0;
    }
    publish_counter(agreement, function, bytes);
    return decision;
}
