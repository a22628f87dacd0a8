/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h - the checks of a plan before it is used: hash and validity. Pure. */
#ifndef LAGOM_PLAN_H
#define LAGOM_PLAN_H

#include "protocol/lagom_protocol.h"

/* Why a plan was refused; 0 = it is sound. Kept in slot.refused_fault, so numbers never change meaning. */
enum lagom_plan_fault {
    LAGOM_PLAN_SOUND = 0,
    LAGOM_PLAN_BAD_HASH = 1,
    LAGOM_PLAN_BAD_COUNT = 2,    /* positions, sites or rules beyond the arrays, or a lease without alternation */
    LAGOM_PLAN_BAD_POSITION = 3, /* a position names no site */
    LAGOM_PLAN_BAD_CONFIG = 4,   /* a knob outside its range */
    LAGOM_PLAN_BAD_LEASE = 5,    /* candidate without end, or end before start */
    LAGOM_PLAN_BAD_COMMUNICATOR = 6,
    LAGOM_PLAN_NOT_MINE = 7,        /* replay: differs from the saved config this rank has read */
    LAGOM_PLAN_LATE_HISTORY = 8,    /* history_call is too far back to be remembered */
    LAGOM_PLAN_BAD_TRANSPARENT = 9, /* a position's site is transparent, so the program could never advance */
    LAGOM_PLAN_NO_THREADS = 10,     /* it sets threads, which this rank cannot (LAGOM_NT, unknown NCCL build) */
    LAGOM_PLAN_MANY_CHANNELS = 11,  /* AllGather on more channels than are known to be built, where NCCL does not check */
};

/* Over every byte in use except `hash` itself; unused positions, sites and rules do not count. */
uint64_t lagom_plan_hash(const struct lagom_plan *plan);

/* Hash of sites, rules and positions only: a replaying rank compares it with that of its own saved config. */
uint64_t lagom_plan_content_hash(const struct lagom_plan *plan);

/* Bounded: looks at nothing outside the struct whatever the counts say. `comm_id` 0 = any. */
enum lagom_plan_fault lagom_plan_check(const struct lagom_plan *plan, uint64_t comm_id);

/* The part of the check that a section of a file can be put to: sites, positions and rules, no lease and no hash. */
enum lagom_plan_fault lagom_plan_check_content(const struct lagom_plan *plan);

/* Every knob within what NCCL can do at all. */
int lagom_config_is_sound(const struct lagom_config *config);

/* Whether any site or rule, incumbent or candidate, sets threads. */
int lagom_plan_sets_threads(const struct lagom_plan *plan);

/* The most channels it asks for at calls of that function, incumbent or candidate; 0 = it leaves them. */
uint32_t lagom_plan_most_channels(const struct lagom_plan *plan, uint32_t function);

/* Copies counts and used entries only; safe on garbage (counts are clamped; check() then refuses them). */
void lagom_plan_copy(struct lagom_plan *to, const struct lagom_plan *from);

const char *lagom_plan_fault_text(enum lagom_plan_fault fault); /* one sentence */

/* Smaller chunks are refused. NVLS kernels align their last chunk to this, and below the protocol's grain (1,920 bytes at
 * most) NCCL would divide by zero. One floor serves both. */
#define LAGOM_CHUNK_FLOOR 16384u

static inline int lagom_is_transparent(uint32_t function, uint64_t bytes)
{
    return bytes < LAGOM_TRANSPARENT_BELOW_BYTES || function == LAGOM_BROADCAST || function == LAGOM_REDUCE;
}

/* The rolling hash of one more call. Inputs are the same on every rank: never regBuff, never a clock. */
static inline uint64_t lagom_history_next(uint64_t hash, uint32_t function, uint64_t bytes)
{
    hash = (hash ^ (bytes * 8u + function)) * 0x9e3779b97f4a7c15ULL;
    return hash ^ (hash >> 29);
}
#define LAGOM_HISTORY_SEED 0x6c61676f6dULL

#endif
