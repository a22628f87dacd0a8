/* SPDX-License-Identifier: Apache-2.0 */
/* A plan is published while a rank decides: a rank that sees PREPARED copies the whole plan.
 *
 * A torn copy would be refused by its hash, so no wrong plan can be run; but the plan would be lost for nothing. */
#include "tests/memory_model/group.h"

#define CALLS 10 /* about as many accesses as the publisher makes */

const unsigned scenario_threads = 2;

void scenario_setup(void)
{
    make_group(1);
    plan_from(0, CALLS + 2);
}

void scenario_thread(unsigned thread)
{
    if (thread == 1) {
        model_require(lagom_publish(&region, 0, &plans[0]) == LAGOM_PUBLISH_OK, "the plan is published");
        return;
    }
    for (int calls = 0; calls < CALLS; calls++) {
        call(0, MIB);
    }
}

void scenario_check(void)
{
    model_require(region.slots[0].refused_epoch == 0, "a plan that was published whole was refused");
    call(0, MIB);
    model_require(region.slots[0].ack_epoch == 1, "the plan is acknowledged in the end");
}
