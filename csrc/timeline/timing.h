/* SPDX-License-Identifier: Apache-2.0 */
/* timing.h - NCCL times its kernels itself (KernelCh): by the GPU's clock, which runs evenly, from a zero of its own.
 *
 * Kernels put side by side with launches are rightly put if all of them took as long by both clocks and the clocks are
 * equally far apart at each. Seen on H200s: 41 us at most over 300 kernels and 10 s where it was right, but on one rank
 * CUPTI's clock ran off by an even 63 us a second; some milliseconds where it was an iteration off. Each communicator is
 * compared with itself: another's GPU may have another clock.
 */
#ifndef LAGOM_TIMING_H
#define LAGOM_TIMING_H

#include <stdbool.h>

#include "protocol/lagom_protocol.h"

#define LAGOM_TIMING_PAIRS 8u /* so many of one communicator must agree */
#define LAGOM_TIMED_SLOTS 4u  /* communicators that are compared at a time; pairs of others do not count */

/* NCCL's times of a launch's kernel, by the GPU's clock; both 0 = not reported. */
struct lagom_ran {
    uint64_t start_ns;
    uint64_t end_ns;
};

/* How the pairs agree; all zero = there are none yet. */
struct lagom_timing {
    struct lagom_slot_timing {
        uint32_t pairs;
        uint32_t slot;
        int64_t least; /* CUPTI's clock less the GPU's, over the pairs, ns */
        int64_t most;
        int64_t last;
        int64_t steps_apart;   /* from one pair to the next at most, beyond what clocks drift meanwhile */
        int64_t lengths_apart; /* at most, ns */
        uint64_t first_ns;     /* CUPTI's clock */
        uint64_t last_ns;
    } of[LAGOM_TIMED_SLOTS];
};

enum lagom_timing_verdict {
    LAGOM_TIMING_UNKNOWN, /* too few pairs, or between the two */
    LAGOM_TIMING_ALIKE,
    LAGOM_TIMING_UNLIKE
};

/* One more pair: a kernel as CUPTI recorded it, and as NCCL timed that of the launch, which was on `slot`. */
void lagom_timing_add(struct lagom_timing *timing, uint64_t start_ns, uint64_t end_ns, uint32_t slot,
                      const struct lagom_ran *ran);

/* UNLIKE if one communicator's pairs are, ALIKE if one's are and none's are UNLIKE. tick_ns: what the GPU's clock counts
 * by; UNKNOWN if that is too coarse to say anything. */
enum lagom_timing_verdict lagom_timing_verdict(const struct lagom_timing *timing, uint64_t tick_ns);

/* Of the communicator that has most. */
uint32_t lagom_timing_pairs(const struct lagom_timing *timing);

/* How far apart each communicator's GPU's clock and CUPTI's were when that was last certain; at_ns 0 = it never was. */
struct lagom_clocks {
    struct lagom_apart {
        int64_t apart_ns;
        uint64_t at_ns;
        uint32_t slot;
    } of[LAGOM_TIMED_SLOTS];
};

/* Takes over what this communicator's pairs say, if they are alike. */
void lagom_clocks_learn(struct lagom_clocks *clocks, const struct lagom_timing *timing, uint32_t slot,
                        uint64_t tick_ns);

/* Whether a kernel may be the one that NCCL timed so on this slot. */
bool lagom_clocks_allow(const struct lagom_clocks *clocks, uint32_t slot, uint64_t start_ns, uint64_t end_ns,
                        const struct lagom_ran *ran, uint64_t tick_ns);

/* The tick of a clock that counts by `tick_ns` as far as is known (0 = not at all) and has shown this, too. */
uint64_t lagom_timing_tick(uint64_t tick_ns, uint64_t shown_ns);

#endif
