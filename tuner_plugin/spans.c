/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/spans.h"

#include <sched.h>
#include <stdbool.h>

#include "protocol/lagom_atomic.h"
#include "shm/ring.h"

#define TRIES 200u          /* a push takes some 20 ns; this many looks outlast a few of them */
#define PATIENCE 100000u    /* looks of a thread that may wait: longer than another one sleeps in the middle of a push */
#define LOOKS_A_SLICE 1000u /* then it gives its processor to whoever may be in the middle of one */

static uint32_t turn;    /* 1 = a thread is pushing */
static uint32_t hurried; /* threads that want their turn and cannot wait for it */

static bool take_turn(void)
{
    return lagom_load_relaxed(&turn) == 0 && lagom_compare_exchange32(&turn, 0, 1); /* pairs with the release below */
}

static void push(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span, bool my_turn)
{
    if (!my_turn) {
        lagom_fetch_add(&region->processes[process].kernel_drops, 1);
        return;
    }
    lagom_kernel_ring_push(region, process, span);
    lagom_store_release(&turn, 0u);
}

void lagom_span_push(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span)
{
    bool my_turn = false;
    lagom_fetch_add(&hurried, 1u);
    for (uint32_t i = 0; i < TRIES && !my_turn; i++) {
        my_turn = take_turn();
    }
    push(region, process, span, my_turn);
    lagom_fetch_add(&hurried, UINT32_MAX); /* one less */
}

void lagom_span_push_patiently(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span)
{
    bool my_turn = false;
    for (uint32_t i = 1; i <= PATIENCE && !my_turn; i++) {
        my_turn = lagom_load_relaxed(&hurried) == 0 && take_turn();
        if (!my_turn && i % LOOKS_A_SLICE == 0) {
            sched_yield();
        }
    }
    push(region, process, span, my_turn);
}
