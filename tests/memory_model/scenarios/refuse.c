/* SPDX-License-Identifier: Apache-2.0 */
/* Replay: one rank refuses for good while the publishing rank looks. Its slot still holds the fault of an earlier
 * refusal, "too late", after which the publisher would try again. */
#include "tests/memory_model/group.h"

#define LOOKS 3

const unsigned scenario_threads = 2;

void scenario_setup(void)
{
    make_group(2);
    region.header.epoch_counter = 1;
    region.slots[1].refused_epoch = 1;
    region.slots[1].refused_fault = LAGOM_PLAN_LATE_HISTORY;
    const struct lagom_plan *content = plan_from(0, 0);
    model_require(lagom_replay_start(&replays[0], &ranks[0], &region, content), "replay starts");
    struct lagom_plan *plan = plan_from(1, 8); /* not the content of rank 1's saved config */
    plan->flags = LAGOM_PLAN_START_SEARCHING | LAGOM_PLAN_LAST_ACK_COMMITS;
    model_require(lagom_publish(&region, 0, plan) == LAGOM_PUBLISH_OK, "the plan is published");
    replays[0].published_epoch = plan->epoch;
    replays[0].tries = 1;
    replays[0].state = LAGOM_REPLAY_OPEN;
    ranks[1].own_config = content;
}

void scenario_thread(unsigned thread)
{
    if (thread == 1) {
        call(1, MIB);
        return;
    }
    for (int looks = 0; looks < LOOKS && replays[0].state == LAGOM_REPLAY_OPEN; looks++) {
        replays[0].next_look = 0;
        lagom_replay_poll_switch(&replays[0]);
    }
}

void scenario_check(void)
{
    model_require(region.slots[1].refused_fault == LAGOM_PLAN_NOT_MINE, "rank 1 refused");
    model_require(replays[0].state != LAGOM_REPLAY_WAITING, "the fault of an earlier refusal was read");
}
