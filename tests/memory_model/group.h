/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - ranks of one communicator in a region small enough to check every execution: what most scenarios use. */
#ifndef LAGOM_MODEL_GROUP_H
#define LAGOM_MODEL_GROUP_H

#include "agreement/agreement.h"
#include "agreement/publisher.h"
#include "agreement/replay.h"
#include "protocol/lagom_atomic.h"
#include "tests/memory_model/scenario.h"

#define COMM_ID 42u
#define MIB (1ull << 20)
#define MOST_RANKS 2u

static struct lagom_region region;
static struct lagom_agreement ranks[MOST_RANKS];
static struct lagom_replay replays[MOST_RANKS];
static struct lagom_plan plans[2];

static inline struct lagom_communicator *shared_entry(void)
{
    return &region.communicators[0];
}

static inline void make_slot(uint32_t i)
{
    struct lagom_slot *slot = &region.slots[i];
    slot->comm_id = COMM_ID;
    slot->rank = i;
    slot->process = i;
    slot->device = i;
    slot->state = LAGOM_READY;
    model_private(&ranks[i], sizeof(ranks[i]));
    lagom_agreement_init(&ranks[i], &region, 0, slot, NULL);
}

static inline void make_group(uint32_t rank_count)
{
    model_share(&region, sizeof(region));
    model_private(plans, sizeof(plans));
    model_private(replays, sizeof(replays));
    shared_entry()->comm_id = COMM_ID;
    shared_entry()->rank_count = rank_count;
    shared_entry()->node_count = 1;
    shared_entry()->state = LAGOM_READY;
    for (uint32_t i = 0; i < rank_count; i++) {
        make_slot(i);
    }
}

static inline struct lagom_decision call(uint32_t rank, uint64_t bytes)
{
    return lagom_agreement_decide(&ranks[rank], LAGOM_ALL_GATHER, bytes);
}

/* The plan that takes effect at `start`: one rule, so that there is something to copy. */
static inline struct lagom_plan *plan_from(uint32_t which, uint64_t start)
{
    struct lagom_plan *plan = &plans[which];
    plan->start_call = start;
    plan->rule_count = 1;
    plan->rules[0].bytes_max = UINT64_MAX;
    plan->rules[0].function = LAGOM_ALL_GATHER;
    plan->rules[0].incumbent.algorithm = plan->rules[0].candidate.algorithm = LAGOM_LEAVE;
    plan->rules[0].incumbent.protocol = plan->rules[0].candidate.protocol = LAGOM_LEAVE;
    plan->rules[0].incumbent.channels = plan->rules[0].candidate.channels = (uint16_t)(which + 1);
    return plan;
}

static inline uint64_t word_now(void)
{
    return lagom_load_acquire(&shared_entry()->word);
}

#endif
