/* SPDX-License-Identifier: Apache-2.0 */
/* capture_client.h - loads liblagom_timeline.so, a library of its own beside this one, and calls it. Jobs that want no
 * kernel timeline (LAGOM_TIMELINE=0, replay, virtual ranks) never load it. Without it nothing here does anything.
 */
#ifndef LAGOM_CAPTURE_CLIENT_H
#define LAGOM_CAPTURE_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "protocol/lagom_protocol.h"

/* Loads the library, once, and starts its thread. NULL, or why there is no timeline. */
const char *lagom_capture_client_open(struct lagom_region *region, uint32_t process);

/* The last communicator has gone: ends the thread. */
void lagom_capture_client_close(void);

/* What the launching threads know; see csrc/timeline/liblagom_timeline.h. */
void lagom_capture_client_launch_begins(uint32_t slot);
void lagom_capture_client_launch_ends(void);
void lagom_capture_client_launched(const struct lagom_kernel_span *collective);
void lagom_capture_client_asked(const struct lagom_kernel_span *call);
void lagom_capture_client_unreported(const struct lagom_kernel_span *call);
void lagom_capture_client_ran(const struct lagom_kernel_span *collective); /* of a thread of NCCL's */

#endif
