/* SPDX-License-Identifier: Apache-2.0 */
/* adopter.h - which process becomes the parent of a controller that a rank starts.
 *
 * The process between rank and controller ends at once, so the kernel gives the controller to the nearest ancestor that is a
 * child subreaper, or to process 1 of the PID namespace. If that is a rank, a `while (wait(NULL) > 0)` of its own would never
 * end, because the controller lives as long as there is a rank. A launcher (torchrun as process 1 of a container) does no harm:
 * the controller ends after the last rank. The kernel does not report whether an ancestor is a subreaper.
 */
#ifndef LAGOM_ADOPTER_H
#define LAGOM_ADOPTER_H

#include "protocol/lagom_protocol.h"

/* Why a rank of the job could become the parent, as a clause; NULL = none that is registered in the region so far. */
const char *lagom_controller_adopter(const struct lagom_region *region);

#endif
