/* SPDX-License-Identifier: Apache-2.0 */
/* stale_regions.h - regions of this user that nobody holds any more. Internal to csrc/shm; the attachments' lock is
 * held. */
#ifndef LAGOM_STALE_REGIONS_H
#define LAGOM_STALE_REGIONS_H

#include <stdbool.h>

#include "shm/wait_budget.h"

/* Removes, beside `path`, some of what jobs of this user left that were killed whole or ended by a power cut. Whether somebody
 * alive is making the region of `path` itself. NCCL's init waits with it, and another user may have put thousands of files
 * there: their owner is looked at first, and looking ends with *wait. */
bool lagom_stale_regions_remove(const char *path, struct lagom_wait *wait);

#endif
