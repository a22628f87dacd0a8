/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_kernel.h - one kernel of NCCL's as CUPTI recorded it, input of the code that finds its call. */
#ifndef LAGOM_NCCL_KERNEL_H
#define LAGOM_NCCL_KERNEL_H

#include <stdbool.h>

#include "protocol/lagom_protocol.h"

struct lagom_nccl_kernel {
    struct lagom_kernel_span span;
    uint64_t launched_by_ns; /* its launch began before this, by the host's clock; UINT64_MAX = it has no times */
    uint32_t correlation;
    bool from_graph;
};

/* By correlation id: in the order of the launches; the sequence is 32 bits wide and wraps. */
static inline bool lagom_launched_before(uint32_t correlation, uint32_t other)
{
    return (int32_t)(correlation - other) < 0;
}

#endif
