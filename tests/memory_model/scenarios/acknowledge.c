/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks whose calls differ acknowledge the same plan while the publisher looks: it must never commit.
 *
 * Both slots still hold the acknowledgement of an earlier plan, with equal hashes. A publisher that sees the new ack_epoch
 * beside the old hashes takes the two histories for equal. */
#include "tests/memory_model/group.h"

#define LOOKS 3

const unsigned scenario_threads = 3;

void scenario_setup(void)
{
    make_group(2);
    region.header.epoch_counter = 1;
    for (uint32_t i = 0; i < 2; i++) {
        region.slots[i].ack_epoch = 1;
        region.slots[i].ack_plan_hash = region.slots[i].ack_history_hash = 7;
        call(i, (i + 1) * MIB); /* here they differ */
    }
    model_require(lagom_publish(&region, 0, plan_from(0, 8)) == LAGOM_PUBLISH_OK, "the plan is published");
}

void scenario_thread(unsigned thread)
{
    if (thread < 2) {
        call(thread, MIB);
    } else {
        for (int looks = 0; looks < LOOKS && lagom_publish_poll(&region, 0) == LAGOM_OUTCOME_OPEN; looks++) {
        }
    }
}

void scenario_check(void)
{
    model_require(LAGOM_WORD_STATE(word_now()) != LAGOM_COMMITTED, "committed though the histories differ");
    model_require(lagom_publish_poll(&region, 0) == LAGOM_OUTCOME_ABORTED, "the difference is seen at last");
}
