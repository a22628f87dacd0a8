/* SPDX-License-Identifier: Apache-2.0 */
/* life.c - ranks come and go, and an entry that nobody is in is used again (csrc/shm/registration.c, region_table.c).
 * All of it happens under the register lock, hence in one move each. */
#include <string.h>

#include "model.h"

static uint32_t ready_slots(const struct state *state)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < now->ranks; r++) {
        count += state->slots[r].ready;
    }
    return count;
}

static uint32_t ranks_at(const struct state *state, enum rank_pc pc)
{
    uint32_t count = 0;
    for (uint32_t r = 0; r < now->ranks; r++) {
        count += state->ranks[r].pc == pc;
    }
    return count;
}

/* Word 0 again, nothing else: plan and epochs stay as they are. */
bool sweep(struct state *state)
{
    bool some_left = ranks_at(state, R_GONE) > 0;
    bool may = now->fault == RECYCLED_TOO_EARLY ? some_left : ranks_at(state, R_GONE) == now->ranks;
    if (now->lives < 2 || state->recycled || !may) {
        return false;
    }
    if (now->fault != RECYCLED_TOO_EARLY && ready_slots(state) != 0) {
        return false;
    }
    state->word = 0;
    state->recycled = true;
    state->epochs = now->fault == ACK_LEFT_BEHIND ? 0 : state->epochs;
    return true;
}

/* The next job, with another communicator: it begins when the last rank of this one has gone. */
static void begin_next_life(struct state *state)
{
    state->life++;
    state->recycled = false;
    memset(state->decided, 0, sizeof(state->decided));
    for (uint32_t r = 0; r < now->ranks; r++) {
        state->ranks[r] = (struct rank_state){.pc = R_JOIN, .life = state->life};
    }
}

bool join(struct state *state, uint32_t r)
{
    struct shared_slot *slot = &state->slots[r];
    struct shared_slot left_behind = *slot;
    *slot = (struct shared_slot){.ready = true};
    if (now->fault == ACK_LEFT_BEHIND) {
        slot->ack_epoch = left_behind.ack_epoch;
        slot->ack_plan = left_behind.ack_plan;
        slot->ack_history = left_behind.ack_history;
    }
    state->ranks[r].pc = now->fault == COUNTER_FIRST ? R_COUNT : R_LOAD;
    return true;
}

void leave(struct state *state, uint32_t r)
{
    state->slots[r].ready = false;
    state->ranks[r].pc = R_GONE;
    bool another = state->life + 1 < now->lives;
    if (ranks_at(state, R_GONE) == now->ranks && !another) {
        for (uint32_t i = 0; i < now->ranks; i++) {
            state->ranks[i].pc = R_DONE;
        }
    }
}

/* A rank that has gone comes again once the entry is free. */
bool come_again(struct state *state)
{
    if (state->life + 1 >= now->lives || !state->recycled || ranks_at(state, R_GONE) != now->ranks) {
        return false;
    }
    begin_next_life(state);
    return true;
}
