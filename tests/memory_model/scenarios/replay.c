/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks acknowledge at once a plan that the last to acknowledge commits: one of them sees both and does.
 *
 * Each writes its own ack_epoch and then reads the other's. Without a fence between the two, both may read the old one:
 * then nobody commits here, and the plan waits for the publishing rank to look again. */
#include "tests/memory_model/group.h"

const unsigned scenario_threads = 2;

void scenario_setup(void)
{
    make_group(2);
    const struct lagom_plan *content = plan_from(0, 0);
    for (uint32_t i = 0; i < 2; i++) {
        model_require(lagom_replay_start(&replays[i], &ranks[i], &region, content), "replay starts");
        replays[i].state = LAGOM_REPLAY_FOLLOWING; /* a third rank published; it does not look again here */
    }
    struct lagom_plan *plan = plan_from(1, 8);
    plan->rules[0] = content->rules[0];
    plan->flags = LAGOM_PLAN_START_SEARCHING | LAGOM_PLAN_LAST_ACK_COMMITS;
    model_require(lagom_publish(&region, 0, plan) == LAGOM_PUBLISH_OK, "the plan is published");
}

void scenario_thread(unsigned thread)
{
    call(thread, MIB);
}

void scenario_check(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        model_require(region.slots[i].ack_epoch == 1, "both acknowledged");
    }
    model_require(word_now() == LAGOM_WORD(LAGOM_COMMITTED, 1), "both acknowledged and nobody committed");
}
