/* SPDX-License-Identifier: Apache-2.0 */
/* rank.c - a rank, in the order of agreement.c. */
#include "model.h"

static struct lagom_pending pending_of(const struct rank_state *rank)
{
    return (struct lagom_pending){rank->pending_epoch,     rank->pending_history, rank->pending_start,
                                  rank->acknowledged != 0, rank->committed != 0,  rank->put_aside};
}

static void keep_pending(struct rank_state *rank, const struct lagom_pending *pending)
{
    rank->pending_epoch = (uint8_t)pending->epoch;
    rank->pending_history = (uint8_t)pending->history_call;
    rank->pending_start = (uint8_t)pending->start_call;
    rank->acknowledged = pending->acknowledged;
    rank->committed = pending->committed;
    rank->put_aside = (uint8_t)pending->put_aside_epoch;
    if (pending->epoch == 0) {
        rank->copy = (struct fixed_part){0};
        rank->copy_body = 0;
    }
}

static void finish_call(struct state *state, struct rank_state *rank)
{
    rank->call++;
    rank->word = 0;
    bool more = rank->call - (now->diverged && rank == &state->ranks[1]) < now->calls;
    rank->pc = more ? R_LOAD : comes_and_goes() ? R_LEAVE : R_DONE;
    if (now->fault == COUNTER_FIRST && rank->pc == R_LOAD) {
        rank->pc = R_COUNT;
    }
    forget_what_all_decided(state);
}

/* What the planted leases remember of an outcome. */
static void note_outcome(struct rank_state *rank, enum lagom_step step)
{
    bool marks = (now->fault == LEASE_FROM_ACTIVATION && step == LAGOM_STEP_COMMIT) ||
                 (now->fault == LEASE_RENEWED_BY_ABORT && step == LAGOM_STEP_DROP);
    if (marks) {
        rank->lease_start = rank->call;
    }
}

/* The private steps up to the next access to shared memory. */
static void follow(struct state *state, uint32_t r)
{
    static const uint8_t next_pc[] = {[LAGOM_STEP_COPY] = R_COPY_FIXED,
                                      [LAGOM_STEP_ACKNOWLEDGE] = R_ACK_HASHES,
                                      [LAGOM_STEP_ABORT] = R_ABORT,
                                      [LAGOM_STEP_ACTIVATE] = R_ACTIVATE};
    struct rank_state *rank = &state->ranks[r];
    struct lagom_pending pending = pending_of(rank);
    for (;;) {
        enum lagom_step step = lagom_switch_rank(&pending, rank->word, rank->call);
        if (step == LAGOM_STEP_ABORT && now->fault == NO_ABORT) {
            step = LAGOM_STEP_DROP;
        }
        note_outcome(rank, step);
        if (step == LAGOM_STEP_COMMIT) {
            pending.committed = true;
        } else if (step == LAGOM_STEP_DROP) {
            lagom_pending_drop(&pending);
        } else {
            keep_pending(rank, &pending);
            rank->pc = step == LAGOM_STEP_GO_ON ? R_COUNT : next_pc[step];
            break;
        }
    }
    if (rank->pc == R_COUNT) {
        decide(state, r);
        rank->word = 0;
        if (now->fault == COUNTER_FIRST) {
            finish_call(state, rank);
        }
    }
}

static bool copy_is_sound(const struct rank_state *rank)
{
    bool fits = rank->copy.epoch == LAGOM_WORD_EPOCH(rank->word) && rank->copy.life == rank->life;
    return fits && (rank->copy.sealed == rank->copy_body || now->fault == TORN_PLAN);
}

static void judge_copy(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    struct lagom_pending pending = pending_of(rank);
    if (!copy_is_sound(rank)) {
        seen.torn_copies++;
        rank->pc = R_READ_AGAIN;
        return;
    }
    lagom_pending_hold(&pending, rank->copy.epoch, rank->copy.history, rank->copy.start);
    keep_pending(rank, &pending);
    follow(state, r);
}

static void refuse(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    struct lagom_pending pending = pending_of(rank);
    seen.refusals++;
    state->slots[r].refused = (uint8_t)LAGOM_WORD_EPOCH(rank->word);
    lagom_pending_put_aside(&pending, LAGOM_WORD_EPOCH(rank->word));
    keep_pending(rank, &pending);
    follow(state, r);
}

static void read_again(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    if (state->word == rank->word) {
        rank->pc = R_REFUSE;
        return;
    }
    rank->word = state->word;
    follow(state, r);
}

static void acknowledge_hashes(struct state *state, uint32_t r)
{
    const struct rank_state *rank = &state->ranks[r];
    uint8_t path = now->diverged && r == 1 ? 100 : 0;
    uint8_t whose = now->fault == ACK_LEFT_BEHIND ? 0 : (uint8_t)(64 * rank->life);
    state->slots[r].ack_plan = (uint8_t)(whose + 16 * rank->copy.epoch + rank->copy.start);
    state->slots[r].ack_history = (uint8_t)(rank->copy.history + path);
}

static void after_acknowledging(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    rank->acknowledged = true;
    if (now->last_ack_commits) {
        rank->pc = R_POLL;
    } else {
        follow(state, r);
    }
}

static void activate(struct state *state, uint32_t r, bool decline)
{
    struct rank_state *rank = &state->ranks[r];
    struct lagom_pending pending = pending_of(rank);
    seen.activations++;
    seen.after_restart += rank->life > 0 || state->crashes > 0 || state->stops > 0;
    if (!decline) {
        rank->active_epoch = rank->pending_epoch;
        rank->active_start = rank->pending_start;
        rank->active_body = rank->copy_body;
        rank->lease_start = now->fault == LEASE_RENEWED_BY_ABORT ? rank->active_start : rank->lease_start;
    }
    state->slots[r].active_start = rank->pending_start;
    state->slots[r].active_epoch = rank->pending_epoch;
    lagom_pending_drop(&pending);
    keep_pending(rank, &pending);
    follow(state, r);
}

static void abort_plan(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    if (state->word != rank->word && now->fault != BLIND_ABORT) {
        seen.lost_swaps++;
        rank->pc = R_RELOAD;
        return;
    }
    seen.aborts_by_rank++;
    state->word = (uint8_t)LAGOM_WORD(LAGOM_ABORTED, LAGOM_WORD_EPOCH(rank->word));
    rank->word = state->word;
    follow(state, r);
}

static void count(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    state->slots[r].calls = (uint8_t)(rank->call + 1);
    if (now->fault == COUNTER_FIRST) {
        rank->pc = R_LOAD;
    } else {
        finish_call(state, rank);
    }
}

static void load_word(struct state *state, uint32_t r)
{
    state->ranks[r].word = state->word;
    follow(state, r);
}

static void acknowledge_epoch(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    state->slots[r].ack_epoch = rank->pending_epoch;
    if (now->fault == LOOK_BEFORE_WRITING) {
        rank->acknowledged = true;
        rank->pc = R_RELOAD;
    } else {
        after_acknowledging(state, r);
    }
}

bool rank_move(struct state *state, uint32_t r, bool other)
{
    struct rank_state *rank = &state->ranks[r];
    enum rank_pc pc = (enum rank_pc)rank->pc;
    if (other && !(pc == R_ACTIVATE && now->fault == DECLINE_AFTER_COMMIT)) {
        return false;
    }
    bool late_store = now->fault == LOOK_BEFORE_WRITING;
    switch (pc) {
    case R_JOIN: return join(state, r);
    case R_LOAD:
    case R_RELOAD: load_word(state, r); break;
    case R_COPY_FIXED:
        rank->copy = state->plan;
        rank->pc = R_COPY_BODY;
        break;
    case R_COPY_BODY:
        rank->copy_body = state->body;
        judge_copy(state, r);
        break;
    case R_READ_AGAIN: read_again(state, r); break;
    case R_REFUSE: refuse(state, r); break;
    case R_ACK_HASHES:
        acknowledge_hashes(state, r);
        rank->pc = late_store ? R_POLL : R_ACK_EPOCH;
        break;
    case R_ACK_EPOCH: acknowledge_epoch(state, r); break;
    case R_POLL:
        if (poll_move(state, &rank->poll)) {
            rank->pc = late_store ? R_ACK_EPOCH : R_RELOAD;
        }
        break;
    case R_ABORT: abort_plan(state, r); break;
    case R_ACTIVATE: activate(state, r, other); break;
    case R_COUNT: count(state, r); break;
    case R_LEAVE: leave(state, r); break;
    case R_GONE: return come_again(state);
    case R_DONE: return false;
    }
    return true;
}
