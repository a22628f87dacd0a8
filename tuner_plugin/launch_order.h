/* SPDX-License-Identifier: Apache-2.0 */
/* launch_order.h - which call a launched collective belongs to.
 *
 * NCCL asks for a whole group first (getCollInfo, once per aggregate) and launches it afterwards (one COLL event per
 * collective); the event names function and size but not the call. Within a group the order is kept, an aggregate's
 * size is the sum of its members', and the first call after a launch belongs to the next group. What still does not
 * fit is left unjoined, never guessed.
 *
 * Calls and launches of one communicator normally share a thread; a graph's launches may come from another one. A
 * flag that is only ever tried, never waited for, keeps the list sound then: the loser goes unjoined.
 */
#ifndef LAGOM_LAUNCH_ORDER_H
#define LAGOM_LAUNCH_ORDER_H

#include <stdint.h>

#define LAGOM_LAUNCH_ORDER_DEPTH 64u /* calls of one group remembered */
#define LAGOM_UNKNOWN_CALL UINT64_MAX

struct lagom_launch_order {
    uint32_t taken; /* the flag */
    uint32_t launched;
    uint32_t count;
    struct lagom_asked {
        uint64_t call;
        uint64_t bytes_left;
        uint64_t asked_ns;
        uint32_t function;
        uint32_t reserved;
    } asked[LAGOM_LAUNCH_ORDER_DEPTH];
};

/* NCCL asked about this call at `now_ns`; `bytes` as in getCollInfo. */
void lagom_launch_order_ask(struct lagom_launch_order *order, uint64_t call, uint32_t function, uint64_t bytes,
                            uint64_t now_ns);

/* The group is being launched, without a COLL event (getChunkSize says so). */
void lagom_launch_order_launching(struct lagom_launch_order *order);

/* A collective of that function and size is launched. Its call number and when NCCL asked about it, or
 * LAGOM_UNKNOWN_CALL and 0. */
uint64_t lagom_launch_order_match(struct lagom_launch_order *order, uint32_t function, uint64_t bytes,
                                  uint64_t *asked_ns);

#endif
