/* SPDX-License-Identifier: Apache-2.0 */
/* launched.h - the launches that were noted, in their order, and what is known of each until its kernel is found. */
#ifndef LAGOM_LAUNCHED_H
#define LAGOM_LAUNCHED_H

#include <stdbool.h>

#include "timeline/launches.h"
#include "timeline/nccl_kernel.h"
#include "timeline/timing.h"

#define LAGOM_LAUNCHED 4096u /* noted and not yet met by their kernels: some iterations of run-ahead */

struct lagom_launch {
    struct lagom_note note; /* its span: the first call of the plan */
    uint32_t collectives;   /* of the plan; 0 = none: send and receive */
    bool bracketed;
    bool disputed;        /* another thread launched at the same time: which came first is not known */
    uint64_t last_call;   /* the largest of the plan's */
    struct lagom_ran ran; /* of the only one */
    uint64_t start_ns;    /* of the kernel that it was joined with; 0 = none, or without times */
    uint64_t end_ns;
};

/* Whether NCCL reports when its kernel ran, or will report it: not for an aggregate, nor if its times are refuted. */
static inline bool lagom_launch_is_told(const struct lagom_launch *launch)
{
    return launch->collectives == 1 && !launch->disputed && launch->note.span.untold == 0;
}

struct lagom_launched {
    uint64_t since_ns; /* a launch that was over by then has no kernel, and is not kept */
    bool bracketed;    /* launches are noted, not only calls */
    uint64_t oldest;   /* [oldest, newest) wait for their kernels; those before have been passed, and are still there */
    uint64_t newest;
    struct lagom_launch launches[LAGOM_LAUNCHED];
};

static inline struct lagom_launch *lagom_launched_at(struct lagom_launched *launched, uint64_t number)
{
    return &launched->launches[number & (LAGOM_LAUNCHED - 1)];
}

static inline uint64_t lagom_launched_waiting(const struct lagom_launched *launched)
{
    return launched->newest - launched->oldest;
}

/* The number of the oldest one that is still there, passed or not. */
static inline uint64_t lagom_launched_kept(const struct lagom_launched *launched)
{
    return launched->newest < LAGOM_LAUNCHED ? 0 : launched->newest - LAGOM_LAUNCHED;
}

/* Nothing is noted; nothing was recorded before. */
void lagom_launched_start(struct lagom_launched *launched, uint64_t since_ns);

/* A launch, or a call of one; without brackets a call stands for its launch. false = the oldest had to be forgotten. */
bool lagom_launched_note(struct lagom_launched *launched, const struct lagom_note *note);

/* Stores NCCL's time of a collective. Returns the number of its launch; newest = no launch is known, or it is part of
 * an aggregate, whose kernel runs longer. */
uint64_t lagom_launched_ran(struct lagom_launched *launched, const struct lagom_note *ran);

/* What NCCL's time and the times of its kernel say of each other, where both are known. */
void lagom_launch_pair(const struct lagom_launch *launch, uint64_t start_ns, uint64_t end_ns,
                       struct lagom_timing *timing);

/* By function, channels and order in time. */
bool lagom_launch_may_be(const struct lagom_launch *launch, const struct lagom_nccl_kernel *kernel);

#endif
