/* SPDX-License-Identifier: Apache-2.0 */
/* decision.c - what a rank runs at a call, by the function that ships, and whether that breaks a promise. */
#include <string.h>

#include "model.h"
#include "plan/choose.h"

/* What plan number `body` says about a call: twice its number for the incumbent, one more for the candidate. */
static uint8_t chosen_channels(uint8_t body, uint8_t start, uint8_t call)
{
    static struct lagom_plan plan = {.flags = LAGOM_PLAN_HAS_CANDIDATE, .rule_count = 1};
    const struct lagom_program_point nowhere = {0};
    plan.start_call = start;
    plan.end_call = (uint64_t)start + LEASE_CALLS;
    plan.rules[0] = (struct lagom_rule){.bytes_max = UINT64_MAX, .function = LAGOM_ANY_FUNCTION};
    plan.rules[0].incumbent.channels = (uint16_t)(2 * body);
    plan.rules[0].candidate.channels = (uint16_t)(2 * body + 1);
    return (uint8_t)lagom_choose(&plan, &nowhere, call, LAGOM_ALL_GATHER, 1u << 20).config.channels;
}

uint8_t collective_of(const struct state *state, uint32_t r)
{
    return (uint8_t)(state->ranks[r].call - (now->diverged && r == 1));
}

void forget_what_all_decided(struct state *state)
{
    uint8_t first = UINT8_MAX;
    for (uint32_t r = 0; r < now->ranks; r++) {
        uint8_t at = collective_of(state, r);
        first = at < first ? at : first;
    }
    memset(state->decided, 0, first);
}

/* The call a lease is asked about; the planted ones believe that another has come. */
static uint8_t call_of_lease(const struct rank_state *rank)
{
    uint8_t candidates = rank->active_start; /* the first call of the lease */
    uint8_t incumbents = (uint8_t)(rank->active_start + LEASE_CALLS);
    switch (now->fault) {
    case LEASE_UNTIL_TOLD: return rank->pending_epoch == 0 ? candidates : incumbents;
    case LEASE_DROPPED_AT_ACK: return rank->acknowledged ? incumbents : rank->call;
    case LEASE_FROM_ACTIVATION:
    case LEASE_RENEWED_BY_ABORT: return (uint8_t)(rank->call - rank->lease_start + rank->active_start);
    default: return rank->call;
    }
}

static void note_lease_end(const struct state *state, const struct rank_state *rank)
{
    if (rank->call >= rank->active_start + LEASE_CALLS) {
        seen.leases_ended++;
        seen.ended_under_way += LAGOM_WORD_STATE(state->word) == LAGOM_PREPARED || rank->pending_epoch != 0;
    }
}

void decide(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    uint8_t channels = 0;
    if (rank->active_epoch != 0) {
        channels = chosen_channels(rank->active_body, rank->active_start, call_of_lease(rank));
        note_lease_end(state, rank);
        if (channels % 2 == 1 && rank->call >= rank->active_start + LEASE_CALLS) {
            violation = "a candidate outlived its lease";
        }
    }
    uint8_t *others = &state->decided[collective_of(state, r)];
    if (*others != 0 && *others != channels + 1) {
        violation = "two ranks decided differently at the same collective";
    }
    *others = (uint8_t)(channels + 1);
}
