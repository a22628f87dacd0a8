/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks go past a plan's start while the publisher commits it and prepares the next one at once: call by call they
 * run the same plan. Whoever is early aborts. */
#include "tests/memory_model/group.h"

#define START 3u
#define CALLS 5u

const unsigned scenario_threads = 3;

static uint64_t ran[MOST_RANKS][CALLS]; /* epoch in force at each call */

static void make_call(uint32_t rank)
{
    struct lagom_decision decision = call(rank, MIB);
    ran[rank][decision.call] = decision.epoch;
}

void scenario_setup(void)
{
    make_group(2);
    model_private(ran, sizeof(ran));
    model_require(lagom_publish(&region, 0, plan_from(0, START)) == LAGOM_PUBLISH_OK, "the plan is published");
    for (uint32_t i = 0; i < 2; i++) {
        make_call(i); /* acknowledged */
    }
    plan_from(1, 20);
}

void scenario_thread(unsigned thread)
{
    if (thread < 2) {
        for (uint64_t n = 1; n <= START; n++) {
            make_call(thread);
        }
        return;
    }
    lagom_publish_poll(&region, 0);
    lagom_publish(&region, 0, &plans[1]);
}

void scenario_check(void)
{
    for (uint32_t i = 0; i < 2; i++) {
        make_call(i);
    }
    for (uint32_t n = 0; n < CALLS; n++) {
        model_require(ran[0][n] == ran[1][n], "two ranks ran different plans at one call");
    }
    model_require(ran[0][START - 1] == 0, "a plan took effect before its start");
}
