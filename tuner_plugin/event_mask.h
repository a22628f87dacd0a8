/* SPDX-License-Identifier: Apache-2.0 */
/* event_mask.h - which profiler events NCCL sends. The mask is one int a process and NCCL, which NCCL reads whenever a
 * collective is called; several communicators want different things from it, so wants are counted.
 *
 * Always, while a communicator is tuned: the cheap host events that say "a graph is being captured" and "this never
 * reaches the tuner" (send/receive, copy engines). Only while somebody measures: COLL, KERNEL_CH and KERNEL_LAUNCH.
 */
#ifndef LAGOM_EVENT_MASK_H
#define LAGOM_EVENT_MASK_H

#include <stdint.h>

struct lagom_event_mask {
    int *nccl;          /* NCCL's own; NULL = this place is free */
    uint32_t tuned;     /* communicators that are tuned */
    uint32_t measured;  /* of which kernels are timed now */
    int always;         /* by profiler version */
    int while_measured; /* on top of that; by profiler version too */
};

/* The entry of that mask; NULL if mask is NULL or more NCCLs are loaded than anybody has seen in one process. */
struct lagom_event_mask *lagom_event_mask_of(int *mask, uint32_t profiler_api);

/* +1 or -1. A few atomic operations; safe from any thread, also from the path of a collective. NULL is allowed. */
void lagom_event_mask_tuned(struct lagom_event_mask *mask, int change);
void lagom_event_mask_measured(struct lagom_event_mask *mask, int change);

#endif
