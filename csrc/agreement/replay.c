/* SPDX-License-Identifier: Apache-2.0 */
#include "agreement/replay.h"

#include "agreement/publisher.h"
#include "protocol/lagom_atomic.h"

#define FIRST_MARGIN 64u /* calls, and a period on top: ranks enqueue a few iterations apart at most */
#define LONGEST_PAUSE 256u

bool lagom_replay_start(struct lagom_replay *replay, struct lagom_agreement *agreement, struct lagom_region *region,
                        const struct lagom_plan *content)
{
    *replay = (struct lagom_replay){0};
    if (lagom_plan_check_content(content) != LAGOM_PLAN_SOUND || agreement->shared->node_count != 1) {
        return false;
    }
    replay->agreement = agreement;
    replay->content = content;
    replay->region = region;
    replay->communicator = (uint32_t)(agreement->shared - region->communicators);
    replay->margin = FIRST_MARGIN + content->position_count;
    replay->pause = 1;
    replay->state = LAGOM_REPLAY_WAITING;
    agreement->replay = replay;
    agreement->own_config = content;
    agreement->wake_call = agreement->calls;
    return true;
}

/* Once all ranks are here, exactly one of them becomes the publisher. */
static bool is_publisher(struct lagom_replay *replay)
{
    struct lagom_communicator *shared = replay->agreement->shared;
    uint64_t me = (uint64_t)(replay->agreement->slot - replay->region->slots) + 1;
    lagom_compare_exchange(&shared->publisher, 0, me);
    return lagom_load_acquire(&shared->publisher) == me;
}

static void publish(struct lagom_replay *replay)
{
    struct lagom_plan plan;
    uint64_t smallest, largest;
    lagom_plan_copy(&plan, replay->content);
    lagom_counters(replay->region, replay->communicator, &smallest, &largest);
    plan.start_call = largest + replay->margin;
    plan.end_call = 0;
    plan.alternate_iterations = 0;
    plan.flags = LAGOM_PLAN_START_SEARCHING | LAGOM_PLAN_LAST_ACK_COMMITS;
    plan.reserved = 0;
    if (lagom_publish(replay->region, replay->communicator, &plan) == LAGOM_PUBLISH_OK) {
        replay->published_epoch = plan.epoch;
        replay->tries++;
        replay->state = LAGOM_REPLAY_OPEN;
    }
}

static uint64_t look_for_ranks(struct lagom_replay *replay)
{
    if (lagom_publish_complete(replay->region, replay->communicator)) {
        if (!is_publisher(replay)) {
            replay->state = LAGOM_REPLAY_FOLLOWING;
            return UINT64_MAX;
        }
        publish(replay);
    }
    replay->pause = replay->pause < LONGEST_PAUSE ? replay->pause * 2 : LONGEST_PAUSE;
    return replay->agreement->calls + (replay->state == LAGOM_REPLAY_OPEN ? 1 : replay->pause);
}

/* What a rank held against the published plan; being late is a reason to try again, everything else is not. */
static uint64_t refusal(const struct lagom_replay *replay)
{
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        struct lagom_slot *slot = &replay->region->slots[i];
        bool ours = lagom_load_relaxed(&slot->communicator) == replay->communicator;
        if (ours && lagom_load_acquire(&slot->refused_epoch) == replay->published_epoch) {
            return lagom_load_relaxed(&slot->refused_fault);
        }
    }
    return LAGOM_PLAN_SOUND;
}

static uint64_t try_again(struct lagom_replay *replay)
{
    uint64_t fault = refusal(replay);
    if ((fault != LAGOM_PLAN_SOUND && fault != LAGOM_PLAN_LATE_HISTORY) || replay->tries == LAGOM_REPLAY_TRIES) {
        replay->refused_fault = fault;
        replay->state = LAGOM_REPLAY_REFUSED;
        return UINT64_MAX;
    }
    replay->margin *= 2;
    replay->pause = 1;
    replay->state = LAGOM_REPLAY_WAITING;
    return replay->agreement->calls + 1;
}

static uint64_t look_at_outcome(struct lagom_replay *replay)
{
    enum lagom_outcome outcome = lagom_publish_poll(replay->region, replay->communicator);
    if (LAGOM_WORD_EPOCH(lagom_load_acquire(&replay->agreement->shared->word)) != replay->published_epoch) {
        replay->state = LAGOM_REPLAY_FOLLOWING; /* a controller publishes here by now */
        return UINT64_MAX;
    }
    if (outcome == LAGOM_OUTCOME_ABORTED) {
        return try_again(replay);
    }
    if (outcome == LAGOM_OUTCOME_COMMITTED) {
        replay->state = LAGOM_REPLAY_AGREED;
        return UINT64_MAX;
    }
    return replay->agreement->calls + 1;
}

uint64_t lagom_replay_poll_switch(struct lagom_replay *replay)
{
    if (replay->agreement->calls < replay->next_look) {
        return replay->next_look;
    }
    switch (replay->state) {
    case LAGOM_REPLAY_WAITING: replay->next_look = look_for_ranks(replay); break;
    case LAGOM_REPLAY_OPEN: replay->next_look = look_at_outcome(replay); break;
    default: replay->next_look = UINT64_MAX; break;
    }
    return replay->next_look;
}
