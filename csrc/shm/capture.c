/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/capture.h"

#include "protocol/lagom_atomic.h"

void lagom_capture_set(struct lagom_region *region, uint32_t communicator, uint32_t capture)
{
    if (communicator >= LAGOM_MAX_COMMUNICATORS) {
        return;
    }
    lagom_store_release(&region->communicators[communicator].capture, capture); /* pairs with the ranks' load */
}

void lagom_timeline_want(struct lagom_region *region, uint32_t process, uint32_t wanted)
{
    if (process < LAGOM_MAX_PROCESSES) {
        lagom_store_release(&region->processes[process].timeline_wanted, wanted); /* pairs with the watching thread */
    }
}
