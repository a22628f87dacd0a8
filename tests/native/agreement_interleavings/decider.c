/* SPDX-License-Identifier: Apache-2.0 */
/* decider.c - the controller, or the publishing rank, in the order of publisher.c; killed, or stopped and succeeded. */
#include "model.h"

static void begin_publishing(struct decider *decider, uint8_t margin)
{
    *decider = (struct decider){.pc = D_COUNTERS, .margin = margin, .passed = true};
}

static bool is_complete(const struct decider *decider)
{
    uint32_t wanted = now->fault == PARTIAL_IS_ENOUGH ? 1 : now->ranks;
    return decider->present >= wanted;
}

static void read_counter(struct state *state, struct decider *decider)
{
    const struct shared_slot *slot = &state->slots[decider->slot];
    uint8_t calls = slot->ready ? slot->calls : 0;
    decider->present += slot->ready;
    decider->largest = calls > decider->largest ? calls : decider->largest;
    if (++decider->slot < now->ranks) {
        return;
    }
    decider->slot = 0;
    decider->pc = D_WORD;
    if (!is_complete(decider)) {
        *decider = (struct decider){0};
    } else {
        decider->present = 0;
    }
}

static void read_active(struct state *state, struct decider *decider)
{
    const struct shared_slot *slot = &state->slots[decider->slot];
    uint64_t committed = LAGOM_WORD_EPOCH(decider->word);
    uint64_t active = now->counter_only || now->fault == COUNTER_FIRST ? committed : slot->active_epoch;
    uint64_t start = active == slot->active_epoch ? slot->active_start : state->plan.start;
    decider->passed &= !slot->ready || lagom_switch_passed(committed, active, start, decider->calls);
    decider->calls = 0;
    decider->pc = D_PASSED_CALLS;
    if (++decider->slot < now->ranks) {
        return;
    }
    bool passed = decider->passed || now->fault == REUSE_AT_ONCE;
    decider->slot = 0;
    decider->pc = now->lives > 1 ? D_LIFE : D_FIXED;
    if (!lagom_switch_may_prepare(decider->word, passed)) {
        *decider = (struct decider){0};
    }
}

static void write_fixed(struct state *state, struct decider *decider)
{
    decider->epoch = ++state->epochs;
    state->plan = (struct fixed_part){.epoch = wire_epoch(decider->epoch),
                                      .start = (uint8_t)(decider->largest + decider->margin),
                                      .history = decider->largest,
                                      .life = decider->life,
                                      .sealed = wire_epoch(decider->epoch)};
    decider->pc = D_BODY;
}

static void prepare(struct state *state, struct decider *decider)
{
    if (state->word == decider->word || now->fault == BLIND_PREPARE) {
        state->word = (uint8_t)LAGOM_WORD(LAGOM_PREPARED, wire_epoch(decider->epoch));
    } else {
        seen.lost_swaps++;
    }
    *decider = (struct decider){0};
}

static bool begin(struct state *state, struct decider *decider, uint32_t choice)
{
    bool open = LAGOM_WORD_STATE(state->word) == LAGOM_PREPARED;
    if (choice <= 1 && !(choice == 1 && now->one_margin) && !open && state->epochs < now->publications) {
        begin_publishing(decider, (uint8_t)(1 + choice));
        return true; /* no access yet, and the same from every state */
    }
    if (choice == 2 && open && !now->last_ack_commits) {
        decider->pc = D_POLL;
        poll_move(state, &decider->poll);
        return true;
    }
    if (choice == 3 && open) {
        decider->pc = D_WITHDRAW;
        decider->word = state->word;
        return true;
    }
    return false;
}

static void go_on(struct state *state, struct decider *decider)
{
    switch ((enum decider_pc)decider->pc) {
    case D_IDLE: break;
    case D_COUNTERS: read_counter(state, decider); break;
    case D_WORD:
        decider->word = state->word;
        decider->pc = D_PASSED_CALLS;
        break;
    case D_PASSED_CALLS:
        decider->calls = state->slots[decider->slot].calls;
        decider->pc = D_PASSED_ACTIVE;
        break;
    case D_PASSED_ACTIVE: read_active(state, decider); break;
    case D_LIFE:
        decider->life = state->life;
        decider->pc = D_FIXED;
        break;
    case D_FIXED: write_fixed(state, decider); break;
    case D_BODY:
        state->body = wire_epoch(decider->epoch);
        decider->pc = D_PREPARE;
        break;
    case D_PREPARE: prepare(state, decider); break;
    case D_POLL:
        if (poll_move(state, &decider->poll)) {
            *decider = (struct decider){0};
        }
        break;
    case D_WITHDRAW:
        swap_word(state, decider->word, LAGOM_ABORTED, now->fault == BLIND_COMMIT);
        *decider = (struct decider){0};
        break;
    }
}

/* Who is not in charge finishes what it had begun, and begins nothing. */
bool decider_move(struct state *state, uint32_t d, uint32_t choice)
{
    struct decider *decider = &state->deciders[d];
    if (decider->pc == D_IDLE) {
        return d == state->in_charge && begin(state, decider, choice);
    }
    if (choice == 0) {
        go_on(state, decider);
    }
    return choice == 0;
}

/* Dies wherever it is, and is followed at once by one that knows nothing: the lock went with the dead one. */
bool decider_dies(struct state *state, uint32_t d)
{
    struct decider *decider = &state->deciders[d];
    if (state->crashes == now->crashes || decider->pc == D_IDLE) {
        return false;
    }
    state->crashes++;
    *decider = (struct decider){0};
    if (now->fault == EPOCHS_START_AGAIN) {
        state->epochs = 0;
    }
    return true;
}

/* Stops wherever it is; the other, which knows nothing, is in charge from now on. It may go on at any later moment. */
bool decider_is_stopped(struct state *state, uint32_t d)
{
    uint8_t other = (uint8_t)(1 - d);
    bool can_be_succeeded = d == state->in_charge && state->deciders[other].pc == D_IDLE;
    if (state->stops == now->stops || state->deciders[d].pc == D_IDLE || !can_be_succeeded) {
        return false;
    }
    state->stops++;
    state->in_charge = other;
    return true;
}
