/* SPDX-License-Identifier: Apache-2.0 */
#include "agreement/switch.h"

#include "protocol/lagom_protocol.h"

static enum lagom_step on_prepared(const struct lagom_pending *pending, uint64_t epoch, uint64_t call)
{
    if (pending->epoch != epoch) {
        return epoch == pending->put_aside_epoch ? LAGOM_STEP_GO_ON : LAGOM_STEP_COPY;
    }
    if (call >= pending->start_call) {
        return LAGOM_STEP_ABORT; /* this rank is there and no decision was made: no rank waits */
    }
    bool may_acknowledge = !pending->acknowledged && call >= pending->history_call;
    return may_acknowledge ? LAGOM_STEP_ACKNOWLEDGE : LAGOM_STEP_GO_ON;
}

static enum lagom_step on_committed(const struct lagom_pending *pending, uint64_t call)
{
    if (!pending->committed) {
        return LAGOM_STEP_COMMIT;
    }
    return call >= pending->start_call ? LAGOM_STEP_ACTIVATE : LAGOM_STEP_GO_ON;
}

enum lagom_step lagom_switch_rank(const struct lagom_pending *pending, uint64_t word, uint64_t call)
{
    enum lagom_switch_state state = LAGOM_WORD_STATE(word);
    uint64_t epoch = LAGOM_WORD_EPOCH(word);
    bool mine = pending->epoch != 0 && epoch == pending->epoch;
    if (pending->committed || (mine && pending->acknowledged && state == LAGOM_COMMITTED)) {
        return on_committed(pending, call);
    }
    /* A later epoch, or a commit I never acknowledged, means that what I hold was aborted: had it been committed, no
     * other PREPARED could stand here before I passed its start. */
    if (pending->epoch != 0 && !(mine && state == LAGOM_PREPARED)) {
        return LAGOM_STEP_DROP;
    }
    return state == LAGOM_PREPARED ? on_prepared(pending, epoch, call) : LAGOM_STEP_GO_ON;
}

uint64_t lagom_switch_wake(const struct lagom_pending *pending, uint64_t call)
{
    if (pending->epoch == 0) {
        return UINT64_MAX;
    }
    bool before_history = !pending->acknowledged && call < pending->history_call;
    return before_history ? pending->history_call : pending->start_call;
}

void lagom_pending_hold(struct lagom_pending *pending, uint64_t epoch, uint64_t history_call, uint64_t start_call)
{
    *pending = (struct lagom_pending){.epoch = epoch,
                                      .history_call = history_call,
                                      .start_call = start_call,
                                      .put_aside_epoch = pending->put_aside_epoch};
}

void lagom_pending_put_aside(struct lagom_pending *pending, uint64_t epoch)
{
    *pending = (struct lagom_pending){.put_aside_epoch = epoch};
}

void lagom_pending_drop(struct lagom_pending *pending)
{
    lagom_pending_put_aside(pending, pending->epoch);
}

void lagom_tally_add(struct lagom_tally *tally, const struct lagom_ack *ack)
{
    tally->slots++;
    tally->refused |= ack->refused_epoch == tally->epoch;
    if (ack->epoch != tally->epoch) {
        return;
    }
    if (tally->acknowledged++ == 0) {
        tally->plan_hash = ack->plan_hash;
        tally->history_hash = ack->history_hash;
    }
    tally->differ |= ack->plan_hash != tally->plan_hash || ack->history_hash != tally->history_hash;
}

enum lagom_verdict lagom_tally_verdict(const struct lagom_tally *tally, uint32_t rank_count)
{
    if (tally->slots != rank_count || tally->doubled || tally->refused || tally->differ) {
        return LAGOM_VERDICT_ABORT; /* a rank is missing, said no, or is not where the others are */
    }
    return tally->acknowledged == rank_count ? LAGOM_VERDICT_COMMIT : LAGOM_VERDICT_WAIT;
}

bool lagom_switch_passed(uint64_t committed_epoch, uint64_t active_epoch, uint64_t active_start, uint64_t calls)
{
    return committed_epoch == 0 || (active_epoch == committed_epoch && calls > active_start);
}

bool lagom_switch_may_prepare(uint64_t word, bool all_passed)
{
    switch (LAGOM_WORD_STATE(word)) {
    case LAGOM_COMMITTED: return all_passed;
    case LAGOM_ABORTED: return true;
    case LAGOM_PREPARED:
    case LAGOM_LOCKED: return false;
    }
    return false;
}
