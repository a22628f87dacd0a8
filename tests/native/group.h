/* SPDX-License-Identifier: Apache-2.0 */
/* group.h - a communicator of a few ranks in private memory, for tests of the agreement that need no file and no locks.
 */
#ifndef LAGOM_GROUP_H
#define LAGOM_GROUP_H

#include <sys/mman.h>

#include "agreement/agreement.h"
#include "agreement/publisher.h"
#include "agreement/replay.h"
#include "protocol/lagom_atomic.h"
#include "tests/native/check.h"

#define GROUP_MOST 8u
#define GROUP_COMM_ID 42u

struct group {
    struct lagom_region *region;
    uint32_t ranks;
    struct lagom_agreement *rank[GROUP_MOST];
    struct lagom_replay replay[GROUP_MOST];
};

static inline struct group make_group(uint32_t ranks)
{
    struct group group = {.ranks = ranks};
    group.region = mmap(NULL, sizeof(*group.region), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(group.region != MAP_FAILED);
    struct lagom_communicator *communicator = &group.region->communicators[0];
    communicator->comm_id = GROUP_COMM_ID;
    communicator->rank_count = ranks;
    communicator->node_count = 1;
    communicator->state = LAGOM_READY;
    for (uint32_t i = 0; i < ranks; i++) {
        struct lagom_slot *slot = &group.region->slots[i];
        slot->comm_id = GROUP_COMM_ID;
        slot->rank = i;
        slot->state = LAGOM_READY;
        group.rank[i] = malloc(sizeof(*group.rank[i]));
        lagom_agreement_init(group.rank[i], group.region, 0, slot, NULL);
    }
    return group;
}

static inline void free_group(struct group *group)
{
    for (uint32_t i = 0; i < group->ranks; i++) {
        free(group->rank[i]);
    }
    munmap(group->region, sizeof(*group->region));
}

static inline struct lagom_decision decide(struct group *group, uint32_t rank)
{
    return lagom_agreement_decide(group->rank[rank], LAGOM_ALL_GATHER, MIB);
}

static inline void call_all(struct group *group, uint32_t times)
{
    for (; times > 0; times--) {
        for (uint32_t i = 0; i < group->ranks; i++) {
            decide(group, i);
        }
    }
}

/* Every AllGather with `incumbent` channels, and one more in the candidate's turn. */
static inline struct lagom_plan simple_plan(uint64_t start, uint64_t end, uint16_t incumbent)
{
    struct lagom_plan plan = {.start_call = start, .end_call = end, .flags = end != 0 ? LAGOM_PLAN_HAS_CANDIDATE : 0};
    add_rule(&plan, LAGOM_ALL_GATHER, 0, UINT64_MAX, incumbent);
    return plan;
}

static inline uint64_t word_of(const struct group *group)
{
    return lagom_load_acquire(&group->region->communicators[0].word);
}

static inline void check_word(const struct group *group, enum lagom_switch_state state, uint64_t epoch)
{
    CHECK_EQUAL(LAGOM_WORD_STATE(word_of(group)), state);
    CHECK_EQUAL(LAGOM_WORD_EPOCH(word_of(group)), epoch);
}

#endif
