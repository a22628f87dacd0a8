/* SPDX-License-Identifier: Apache-2.0 */
/* capture.h - what the controller asks the ranks of one communicator to record. Exported to Python. */
#ifndef LAGOM_CAPTURE_H
#define LAGOM_CAPTURE_H

#include "protocol/lagom_protocol.h"

/* capture: bits of enum lagom_capture. A rank sees it at its next call. */
void lagom_capture_set(struct lagom_region *region, uint32_t communicator, uint32_t capture);

/* Ask one process to record its kernels (csrc/timeline), or to stop; it looks every few milliseconds. */
void lagom_timeline_want(struct lagom_region *region, uint32_t process, uint32_t wanted);

#endif
