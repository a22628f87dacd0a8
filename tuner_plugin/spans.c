#include "tuner_plugin/spans.h"

#include <stdbool.h>

#include "protocol/lagom_atomic.h"
#include "shm/ring.h"

#define TRIES 200u /* a push takes some 20 ns; this many looks outlast a few of them */

static uint32_t turn; /* 1 = a thread is pushing */

static bool take_turn(void)
{
    for (uint32_t i = 0; i < TRIES; i++) {
        if (lagom_load_relaxed(&turn) == 0 &&
            lagom_compare_exchange32(&turn, 0, 1)) { /* pairs with the release below */
            return true;
        }
    }
    return false;
}

void lagom_span_push(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span)
{
    if (!take_turn()) {
        lagom_fetch_add(&region->processes[process].kernel_drops, 1);
        return;
    }
    lagom_kernel_ring_push(region, process, span);
    lagom_store_release(&turn, 0u);
}
