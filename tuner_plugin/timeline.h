/* timeline.h - the way to liblagom_timeline.so, a library of its own beside this one: jobs that want no kernel timeline
 * (LAGOM_TIMELINE=0, replay, virtual ranks) never load it. Without it everything here does nothing.
 */
#ifndef LAGOM_PLUGIN_TIMELINE_H
#define LAGOM_PLUGIN_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>

#include "protocol/lagom_protocol.h"

/* Loads the library, once, and starts its thread. NULL, or why there is no timeline. */
const char *lagom_kernels_open(struct lagom_region *region, uint32_t process);

/* The last communicator has gone: ends the thread. */
void lagom_kernels_close(void);

/* What the launching threads know; see csrc/timeline/timeline.h. */
void lagom_kernels_launch_begins(uint32_t slot);
void lagom_kernels_launch_ends(void);
void lagom_kernels_launched(const struct lagom_kernel_span *collective);
void lagom_kernels_asked(const struct lagom_kernel_span *call);
void lagom_kernels_unreported(const struct lagom_kernel_span *call);
void lagom_kernels_ran(const struct lagom_kernel_span *collective); /* of a thread of NCCL's */

#endif
