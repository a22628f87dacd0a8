/* SPDX-License-Identifier: Apache-2.0 */
/* explore.c - depth first over all moves, each state once. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model.h"

#define MOST_DEPTH 4096u

const struct scenario *now;
const char *violation;
struct seen seen;

uint8_t wire_epoch(uint8_t epoch)
{
    return now->fault == WRAPPED_EPOCH ? (uint8_t)(1 + epoch % 2) : epoch;
}

/* ---- What nobody can ever look at again, so that states that differ in nothing else are one --------------------- */

static bool somebody_polls(const struct state *state)
{
    bool found = false;
    for (uint32_t r = 0; r < now->ranks; r++) {
        found |= state->ranks[r].poll.pc != P_LOAD;
    }
    for (uint32_t d = 0; d < now->deciders; d++) {
        found |= state->deciders[d].poll.pc != P_LOAD;
    }
    return found;
}

static bool plan_is_in_use(const struct state *state)
{
    bool found = LAGOM_WORD_STATE(state->word) == LAGOM_PREPARED || now->counter_only || now->fault == COUNTER_FIRST;
    for (uint32_t r = 0; r < now->ranks; r++) {
        found |= state->ranks[r].pc == R_COPY_FIXED || state->ranks[r].pc == R_COPY_BODY;
    }
    for (uint32_t d = 0; d < now->deciders; d++) {
        found |= state->deciders[d].pc == D_BODY || state->deciders[d].pc == D_PREPARE;
    }
    return found;
}

static bool epochs_come_back(void)
{
    return now->fault == WRAPPED_EPOCH || now->fault == EPOCHS_START_AGAIN || now->fault == ACK_LEFT_BEHIND ||
           now->fault == BLIND_PREPARE || now->fault == BLIND_COMMIT || now->fault == BLIND_ABORT;
}

/* Epochs never come back, so an acknowledgement of a closed one is as good as none. */
static void forget_the_dead(struct state *state)
{
    bool open = LAGOM_WORD_STATE(state->word) == LAGOM_PREPARED;
    uint64_t epoch = LAGOM_WORD_EPOCH(state->word);
    bool polling = somebody_polls(state);
    if (epochs_come_back()) {
        return;
    }
    for (uint32_t r = 0; r < now->ranks; r++) {
        struct shared_slot *slot = &state->slots[r];
        state->ranks[r].put_aside *= open && state->ranks[r].put_aside == epoch;
        if (!polling && !(open && slot->ack_epoch == epoch) && state->ranks[r].pc != R_ACK_EPOCH) {
            slot->ack_epoch = slot->ack_plan = slot->ack_history = 0;
        }
        if (!polling && !(open && slot->refused == epoch)) {
            slot->refused = 0;
        }
    }
    if (!plan_is_in_use(state)) {
        state->plan = (struct fixed_part){0};
        state->body = 0;
    }
}

/* ---- Moves, numbered -------------------------------------------------------------------------------------------- */

#define CHOICES (BEGINNINGS + 2u) /* of a decider: to begin something, to die, to be stopped */

static uint32_t moves_in_all(void)
{
    return now->ranks * 2u + now->deciders * CHOICES + 1u;
}

static bool apply(struct state *state, uint32_t move)
{
    if (move < now->ranks * 2u) {
        return rank_move(state, move / 2, move % 2 == 1);
    }
    move -= now->ranks * 2u;
    if (move == now->deciders * CHOICES) {
        return sweep(state);
    }
    switch (move % CHOICES) {
    case BEGINNINGS: return decider_dies(state, move / CHOICES);
    case BEGINNINGS + 1: return decider_is_stopped(state, move / CHOICES);
    default: return decider_move(state, move / CHOICES, move % CHOICES);
    }
}

/* ---- Promises about whole states -------------------------------------------------------------------------------- */

/* A rank that is left alone comes to the end of its call. */
static void check_nobody_waits(const struct state *state)
{
    for (uint32_t r = 0; r < now->ranks && violation == NULL; r++) {
        struct state alone = *state;
        uint32_t left = 64;
        while (left > 0 && alone.ranks[r].call == state->ranks[r].call && rank_move(&alone, r, false)) {
            left--;
        }
        if (left == 0) {
            violation = "a rank waits for others";
        }
    }
}

/* Replay: all have acknowledged and looked, nothing was decided, and nobody will look again. */
static void check_no_commit_is_lost(const struct state *state)
{
    if (!now->last_ack_commits || LAGOM_WORD_STATE(state->word) != LAGOM_PREPARED) {
        return;
    }
    for (uint32_t r = 0; r < now->ranks; r++) {
        const struct rank_state *rank = &state->ranks[r];
        bool idle = rank->pc == R_LOAD || rank->pc == R_COUNT;
        if (!idle || !rank->acknowledged || rank->pending_epoch != LAGOM_WORD_EPOCH(state->word)) {
            return;
        }
    }
    violation = "all ranks acknowledged and nobody committed";
}

/* ---- Visited states --------------------------------------------------------------------------------------------- */

static uint64_t fingerprint(const struct state *state)
{
    uint64_t hash = 0x9e3779b97f4a7c15ULL;
    const uint8_t *bytes = (const uint8_t *)state;
    for (size_t i = 0; i < sizeof(*state); i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, sizeof(*state) - i < 8 ? sizeof(*state) - i : 8);
        hash = (hash ^ word) * 0xd6e8feb86659fd93ULL;
        hash ^= hash >> 32;
    }
    return hash != 0 ? hash : 1;
}

static struct {
    uint64_t *slots;
    uint64_t mask, count;
} visited;

static void visited_grow(void)
{
    uint64_t *old = visited.slots, size = visited.mask + 1;
    visited.mask = size * 2 - 1;
    visited.slots = calloc(size * 2, sizeof(uint64_t));
    if (visited.slots == NULL) {
        perror("calloc");
        exit(1);
    }
    for (uint64_t i = 0; old != NULL && i < size; i++) {
        if (old[i] != 0) {
            uint64_t at = old[i] & visited.mask;
            while (visited.slots[at] != 0) {
                at = (at + 1) & visited.mask;
            }
            visited.slots[at] = old[i];
        }
    }
    free(old);
}

static void visited_clear(void)
{
    free(visited.slots);
    visited.slots = NULL;
    visited.mask = (1u << 15) - 1;
    visited.count = 0;
    visited_grow();
}

static bool visit(const struct state *state)
{
    uint64_t hash = fingerprint(state), at = hash & visited.mask;
    while (visited.slots[at] != 0) {
        if (visited.slots[at] == hash) {
            return false;
        }
        at = (at + 1) & visited.mask;
    }
    visited.slots[at] = hash;
    if (++visited.count > visited.mask / 2) {
        visited_grow();
    }
    return true;
}

/* ---- The search ------------------------------------------------------------------------------------------------- */

static struct {
    struct state state;
    uint32_t next_move;
} path[MOST_DEPTH];

static void print_move(const struct state *s, uint32_t move)
{
    uint32_t at = move - now->ranks * 2u;
    if (move < now->ranks * 2u) {
        printf("      rank    %u at step %2u, call %u, life %u", move / 2, s->ranks[move / 2].pc,
               s->ranks[move / 2].call, s->ranks[move / 2].life);
    } else if (at == now->deciders * CHOICES) {
        printf("      sweep");
    } else {
        const char *what = at % CHOICES == BEGINNINGS ? " dies" : at % CHOICES > BEGINNINGS ? " is stopped" : "";
        printf("      decider %u at step %2u%s", at / CHOICES, s->deciders[at / CHOICES].pc, what);
    }
    printf("; word %u/%u\n", s->word & 3, s->word >> 2);
}

static void print_trace(uint32_t depth)
{
    printf("    %s, %u moves:\n", violation, depth);
    for (uint32_t i = depth > 40 ? depth - 40 : 0; i < depth; i++) {
        print_move(&path[i].state, path[i].next_move - 1);
    }
}

static struct state first_state(void)
{
    struct state state = {0};
    for (uint32_t r = 0; r < now->ranks; r++) {
        state.slots[r].ready = !comes_and_goes();
        state.ranks[r].pc = comes_and_goes() ? R_JOIN : now->fault == COUNTER_FIRST ? R_COUNT : R_LOAD;
    }
    if (now->diverged) {
        state.ranks[1].call = 1;
        state.slots[1].calls = 1;
    }
    if (now->stopped_at != D_IDLE) {
        state.deciders[1] = (struct decider){.pc = now->stopped_at, .margin = 2};
    }
    return state;
}

/* Returns the depth at which a promise was broken. */
static uint32_t explore(void)
{
    uint32_t depth = 0;
    path[0].state = first_state();
    path[0].next_move = 0;
    visit(&path[0].state);
    for (;;) {
        if (path[depth].next_move == moves_in_all()) {
            if (depth-- == 0) {
                return 0;
            }
            continue;
        }
        struct state next = path[depth].state;
        if (!apply(&next, path[depth].next_move++)) {
            continue;
        }
        forget_the_dead(&next);
        if (violation == NULL && !visit(&next)) {
            continue;
        }
        check_no_commit_is_lost(&next);
        check_nobody_waits(&next);
        if (depth + 1 == MOST_DEPTH) {
            violation = "the search is deeper than it has room for";
        }
        if (violation != NULL) {
            return depth + 1;
        }
        path[++depth].state = next;
        path[depth].next_move = 0;
    }
}

static double seconds(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* A promise that holds because nothing ever happened would prove nothing. */
static bool something_happened(void)
{
    bool restarts = now->crashes > 0 || now->stops > 0 || now->lives > 1;
    return now->diverged || (seen.activations > 0 && (!restarts || seen.after_restart > 0));
}

bool run(const struct scenario *scenario, bool with_trace)
{
    double began = seconds();
    now = scenario;
    violation = NULL;
    memset(&seen, 0, sizeof(seen));
    visited_clear();
    uint32_t depth = explore();
    bool good = (scenario->fault == NO_FAULT) == (violation == NULL) && (violation != NULL || something_happened());
    if (violation != NULL && (with_trace || !good)) {
        print_trace(depth);
    }
    printf("%s %s: %s, %llu states, %.1f s; %llu activations (%llu after a restart), %llu aborts by a rank, "
           "%llu leases ended (%llu under the next plan), %llu torn copies, %llu lost swaps\n",
           good ? "ok  " : "FAIL", scenario->name, violation == NULL ? "holds" : violation,
           (unsigned long long)visited.count, seconds() - began, (unsigned long long)seen.activations,
           (unsigned long long)seen.after_restart, (unsigned long long)seen.aborts_by_rank,
           (unsigned long long)seen.leases_ended, (unsigned long long)seen.ended_under_way,
           (unsigned long long)seen.torn_copies, (unsigned long long)seen.lost_swaps);
    fflush(stdout);
    return good;
}
