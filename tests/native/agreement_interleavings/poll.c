/* SPDX-License-Identifier: Apache-2.0 */
/* poll.c - lagom_publish_poll, one access at a time. */
#include "model.h"

void swap_word(struct state *state, uint8_t expected, enum lagom_switch_state to, bool blind)
{
    if (state->word == expected || blind) {
        state->word = (uint8_t)LAGOM_WORD(to, LAGOM_WORD_EPOCH(expected));
    } else {
        seen.lost_swaps++;
    }
}

static struct lagom_tally tally_of(const struct poll *poll)
{
    return (struct lagom_tally){.epoch = LAGOM_WORD_EPOCH(poll->word),
                                .slots = poll->slots,
                                .acknowledged = poll->acknowledged,
                                .refused = poll->refused,
                                .differ = poll->differ,
                                .plan_hash = poll->plan,
                                .history_hash = poll->history};
}

static void poll_verdict(struct poll *poll)
{
    struct lagom_tally tally = tally_of(poll);
    uint32_t ranks = now->fault == PARTIAL_IS_ENOUGH ? tally.slots : now->ranks;
    switch (lagom_tally_verdict(&tally, ranks)) {
    case LAGOM_VERDICT_COMMIT: poll->pc = P_COMMIT; break;
    case LAGOM_VERDICT_ABORT: poll->pc = P_ABORT; break;
    case LAGOM_VERDICT_WAIT: *poll = (struct poll){0}; break;
    }
}

static void poll_add(struct poll *poll, const struct shared_slot *slot)
{
    struct lagom_tally tally = tally_of(poll);
    struct lagom_ack ack = {poll->ack_refused, poll->ack_epoch, slot->ack_plan, slot->ack_history};
    ack.history_hash = now->fault == NO_HISTORY || now->fault == WRAPPED_EPOCH ? 0 : ack.history_hash;
    ack.plan_hash = now->fault == WRAPPED_EPOCH ? 0 : ack.plan_hash;
    if (poll->ready) {
        lagom_tally_add(&tally, &ack);
    }
    poll->slots = (uint8_t)tally.slots;
    poll->acknowledged = (uint8_t)tally.acknowledged;
    poll->refused = tally.refused;
    poll->differ = tally.differ;
    poll->plan = (uint8_t)tally.plan_hash;
    poll->history = (uint8_t)tally.history_hash;
    poll->ready = poll->ack_epoch = poll->ack_refused = 0;
}

bool poll_move(struct state *state, struct poll *poll)
{
    struct shared_slot *slot = &state->slots[poll->slot];
    switch ((enum poll_pc)poll->pc) {
    case P_LOAD:
        poll->word = state->word;
        if (LAGOM_WORD_STATE(poll->word) != LAGOM_PREPARED) {
            *poll = (struct poll){0};
            return true;
        }
        poll->pc = P_EPOCHS;
        return false;
    case P_EPOCHS:
        poll->ready = slot->ready;
        poll->ack_refused = slot->refused;
        poll->ack_epoch = slot->ack_epoch;
        poll->pc = P_HASHES;
        return false;
    case P_HASHES:
        poll_add(poll, slot);
        poll->pc = P_EPOCHS;
        if (++poll->slot == now->ranks) {
            poll_verdict(poll);
        }
        return poll->word == 0;
    case P_COMMIT:
    case P_ABORT:
        swap_word(state, poll->word, poll->pc == P_COMMIT ? LAGOM_COMMITTED : LAGOM_ABORTED,
                  now->fault == BLIND_COMMIT);
        *poll = (struct poll){0};
        return true;
    }
    return true;
}
