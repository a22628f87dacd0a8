/* SPDX-License-Identifier: Apache-2.0 */
/* alignment.h - the launch at which the kernels that are held may begin. It only looks; join.c decides what follows. */
#ifndef LAGOM_ALIGNMENT_H
#define LAGOM_ALIGNMENT_H

#include "timeline/launched.h"

#define LAGOM_ALIGNMENT_KERNELS 8u /* kernels that must fit in a row, after something went wrong */

/* What there is to align, and what is known of it (join.h). Nothing of it is changed. */
struct lagom_alignment_input {
    struct lagom_launched *launched;
    const struct lagom_nccl_kernel *held;
    uint32_t held_count;
    uint32_t search;    /* how many launches from the oldest may be the first kernel's; if it has not just begun */
    uint64_t on_end_ns; /* CUPTI was surely on by then */
    uint64_t tick_ns;   /* of the clock of NCCL's kernel times; 0 = NCCL has reported none so far */
    const struct lagom_clocks *clocks;
    bool starting;
    bool doubtful; /* only NCCL's own times can decide */
};

struct lagom_alignment {
    enum lagom_timing_verdict verdict;
    uint32_t pairs;
    uint32_t timed; /* launches up to the last one that NCCL timed */
    bool has_times; /* NCCL times the kernel of some launch there, or will */
    bool by_clocks; /* the clocks are as far apart as they were: it is not only regular */
};

struct lagom_alignments {
    uint32_t count; /* that fit */
    uint64_t first; /* launches after the oldest one */
    struct lagom_alignment there;
};

/* The last alignment to look at, in launches after the oldest one. Just begun: the first kernel's launch is at the latest
 * the first one that began after CUPTI was on. */
uint64_t lagom_alignment_last(const struct lagom_alignment_input *input);

/* A job repeats itself: an alignment one iteration off fits as well, but for how long things took. */
struct lagom_alignments lagom_alignments_find(const struct lagom_alignment_input *input, uint64_t last);

/* If NCCL reports times, they must agree. If it reports none for these launches, nothing else is waited for. */
bool lagom_alignment_is_certain(const struct lagom_alignment_input *input, const struct lagom_alignment *alignment,
                                bool no_more_to_come);

#endif
