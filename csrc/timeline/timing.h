/* timing.h - NCCL times its kernels itself (KernelCh): by the GPU's clock, which runs evenly, from a zero of its own.
 *
 * Kernels put side by side with launches are rightly put if all of them took as long by both clocks and the clocks are
 * equally far apart at each. Seen on 8xH200: 17 us at most between the two over 250 kernels where it was right, 2,400 us
 * and more of standard deviation where it was an iteration off.
 */
#ifndef LAGOM_TIMING_H
#define LAGOM_TIMING_H

#include <stdbool.h>

#include "protocol/lagom_protocol.h"

#define LAGOM_TIMING_PAIRS 8u /* so many must agree, or differ */

struct lagom_timing {
    uint32_t pairs;
    int64_t least; /* CUPTI's clock less the GPU's, over the pairs, ns */
    int64_t most;
    int64_t lengths_apart; /* at most, ns */
    uint64_t first_ns;     /* CUPTI's clock */
    uint64_t last_ns;
};

/* UNKNOWN: too few pairs, or between the two. IMPOSSIBLE: not even if the GPU's clock ticked by the millisecond, as some
 * do: then what is right may look UNLIKE, so that says something only beside what is ALIKE. */
enum lagom_timing_verdict {
    LAGOM_TIMING_UNKNOWN,
    LAGOM_TIMING_ALIKE,
    LAGOM_TIMING_UNLIKE,
    LAGOM_TIMING_IMPOSSIBLE
};

/* When NCCL says that a launch's kernel ran, by the GPU's clock; both 0 = it does not say. */
struct lagom_ran {
    uint64_t start_ns;
    uint64_t end_ns;
};

/* One more pair: a kernel as CUPTI recorded it, and as NCCL timed that of the launch. */
void lagom_timing_add(struct lagom_timing *timing, const struct lagom_kernel_span *kernel, const struct lagom_ran *ran);

enum lagom_timing_verdict lagom_timing_verdict(const struct lagom_timing *timing);

#endif
