/* SPDX-License-Identifier: Apache-2.0 */
/* Producer and consumer of a ring of two records: each record arrives whole, once and in order, and nobody touches a record
 * that the other one is using. The kernel ring is the same code. */
#include "tests/memory_model/scenario.h"

#include "protocol/lagom_protocol.h"
#include "shm/ring.c"

#define PUSHES 3u
#define DRAINS 2u

const unsigned scenario_threads = 2;

static struct lagom_region region;
static uint64_t pushed;
static uint64_t arrived, last;

void scenario_setup(void)
{
    model_share(&region, sizeof(region));
    model_plain(region.calls[0], sizeof(region.calls[0]));
    model_private(&pushed, sizeof(pushed));
    model_private(&arrived, sizeof(arrived));
    model_private(&last, sizeof(last));
    region.slots[0].call_ring = 1; /* the first of the rings */
}

static void drain_once(void)
{
    struct lagom_call_record records[2];
    uint32_t count = lagom_call_ring_drain(&region, 0, records, 2);
    for (uint32_t i = 0; i < count; i++) {
        model_require(records[i].call > last && records[i].bytes == records[i].call, "a record is torn, old or out of order");
        last = records[i].call;
        arrived++;
    }
}

void scenario_thread(unsigned thread)
{
    if (thread == 1) {
        for (uint32_t i = 0; i < DRAINS; i++) {
            drain_once();
        }
        return;
    }
    for (uint64_t i = 1; i <= PUSHES; i++) {
        struct lagom_call_record record = {.call = i, .bytes = i};
        pushed += (uint64_t)lagom_call_ring_push(&region, 0, &record);
    }
}

void scenario_check(void)
{
    drain_once();
    model_require(arrived == pushed, "a record was lost or came twice");
    model_require(pushed + region.slots[0].call_drops == PUSHES, "what did not fit is counted");
}
