/* alignment.h - the launch at which the kernels that are held may begin. It only looks; join.c decides what follows. */
#ifndef LAGOM_ALIGNMENT_H
#define LAGOM_ALIGNMENT_H

#include "timeline/join.h"

#define LAGOM_ALIGNMENT_KERNELS 8u /* kernels that must fit in a row, after something went wrong */

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
uint64_t lagom_alignment_last(struct lagom_join *join);

/* A job repeats itself: an alignment one iteration off fits as well, but for how long things took. */
struct lagom_alignments lagom_alignments_find(struct lagom_join *join, uint64_t last);

/* Where NCCL tells times, they must agree; where it tells none of these, nothing else is waited for. */
bool lagom_alignment_is_certain(const struct lagom_join *join, const struct lagom_alignment *alignment,
                                bool no_more_to_come);

#endif
