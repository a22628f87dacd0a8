/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_record.h - from CUPTI's record of a kernel, or of a copy between GPUs, to our span. Pure. */
#ifndef LAGOM_KERNEL_RECORD_H
#define LAGOM_KERNEL_RECORD_H

#include <stdbool.h>

#include "protocol/lagom_protocol.h"
#include "timeline/cupti_abi.h"
#include "timeline/kernel_name.h"

/* false = the record has no usable times, and the span's are 0: none were taken, they run backwards, or they are on another clock than ours
 * (later than `now_ns`, or before the machine had a clock). */
bool lagom_kernel_record_read(const struct cupti_kernel *record, const struct lagom_known_name *name, uint64_t now_ns,
                              struct lagom_kernel_span *span);

/* The same for a copy; `name` is the index of its name. */
bool lagom_peer_copy_read(const struct cupti_peer_copy *record, uint32_t name, uint64_t now_ns,
                          struct lagom_kernel_span *span);

#endif
