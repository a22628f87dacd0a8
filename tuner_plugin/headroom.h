/* SPDX-License-Identifier: Apache-2.0 */
/* headroom.h - channels beyond NCCL's own, so that NC can be searched upwards too. Opt-in: LAGOM_HEADROOM=built:stock.
 *
 * NCCL_MIN_NCHANNELS makes NCCL build `built` channels instead of the `stock` it would have built. Every call that no
 * plan covers must run as without it, from the first one, even if region, controller or file fail. So stock's NC is put
 * back here, as a pure function of the environment, the communicator's size, the algorithm and protocol, and the call's
 * bytes: the same on every rank, also on one that could not join (a passthrough context).
 *
 * NCCL's own rule (enqueue.cc, 2.24 to 2.32): as many channels as it built, less one for as long as a channel would get
 * fewer bytes than threads x threshold. Below stock x that size NCCL stops at fewer than `stock` by itself, with or
 * without head-room; from there on its answer would be more than `stock`, and is set to it.
 *
 * What this cannot restore: several collectives in one group share the channels that were built, and there NCCL counts
 * all of them (README.md).
 */
#ifndef LAGOM_HEADROOM_H
#define LAGOM_HEADROOM_H

#include <stdbool.h>
#include <stdint.h>

#include "tuner_plugin/nccl_abi.h"

struct lagom_pick;

struct lagom_headroom {
    uint32_t built; /* channels NCCL was told to build at least */
    uint32_t stock; /* those it would have built; 0 = no head-room, and nothing here does anything */
    uint32_t ring_threads; /* threads of a RING/SIMPLE channel: 512, or 256 where NCCL takes the path for a slow one */
};
extern struct lagom_headroom lagom_headroom; /* of the process; set once, before the first communicator */

/* "32:24" or "32:24:256". false = not understood: then there is none, and the caller says so. */
bool lagom_headroom_read(const char *value, struct lagom_headroom *out);

/* NC of stock for a call, where head-room would change it; 0 = NCCL's own answer is stock's. */
uint32_t lagom_headroom_pin(const struct lagom_headroom *headroom, int algorithm, int protocol, uint64_t bytes,
                            uint32_t ranks);

/* The same, written where NCCL looks. */
void lagom_headroom_keep_stock(const struct lagom_call *call, const struct lagom_pick *pick, uint32_t ranks);

/* ---- Communicators that are not tuned
 * ------------------------------------------------------------------------------------ */

/* What stands behind the context of a communicator that this process could not join, or in LAGOM_MODE=off. */
struct lagom_passthrough {
    const void *region; /* NULL, where struct lagom_comm_context has its region */
    uint32_t ranks;
    struct lagom_passthrough *next;
};

static inline bool lagom_is_passthrough(const void *context)
{
    return ((const struct lagom_passthrough *)context)->region == NULL;
}

/* NULL without head-room (then NCCL is not to call us at all), or without memory. Never freed. */
void *lagom_passthrough_for(uint32_t ranks);
void lagom_passthrough_decide(const struct lagom_passthrough *passthrough, const struct lagom_call *call);

#endif
