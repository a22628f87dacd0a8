/* stale_regions.h - regions of this user that nobody holds any more. Internal to csrc/shm; the attachments' lock is
 * held. */
#ifndef LAGOM_STALE_REGIONS_H
#define LAGOM_STALE_REGIONS_H

#include <stdbool.h>

/* Removes, beside `path`, what jobs of this user left that were killed whole or ended by a power cut. Whether somebody
 * alive is making the region of `path` itself. */
bool lagom_stale_regions_remove(const char *path);

#endif
