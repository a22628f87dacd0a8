/* nccl_kernel.h - one kernel of NCCL's as CUPTI recorded it, for those who find out which call it is. */
#ifndef LAGOM_NCCL_KERNEL_H
#define LAGOM_NCCL_KERNEL_H

#include <stdbool.h>

#include "protocol/lagom_protocol.h"

#define LAGOM_CLOCKS_APART_NS 200000u /* CUPTI interpolates the GPU's clock: a kernel may seem to start too early */

struct lagom_nccl_kernel {
    struct lagom_kernel_span span;
    uint32_t correlation;
    bool from_graph;
};

/* By correlation id: in the order of the launches; the sequence is 32 bits wide and wraps. */
static inline bool lagom_launched_before(uint32_t correlation, uint32_t other)
{
    return (int32_t)(correlation - other) < 0;
}

#endif
