/* SPDX-License-Identifier: Apache-2.0 */
/* chunk.h - which chunk size goes with the collective that getChunkSize asks about (NCCL >= 2.30.3).
 *
 * getChunkSize does not say which call it belongs to: it sees one channel's bytes, and in a group it comes after the
 * getCollInfo of *all* the group's collectives. So the decisions since the last getChunkSize are kept, by (function,
 * algorithm, protocol). Calls with the same three cannot be distinguished and get the smallest chunk of them, on
 * every rank: all ranks must use the same.
 */
#ifndef LAGOM_CHUNK_H
#define LAGOM_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h" /* LAGOM_CHUNK_FLOOR */
#include "protocol/lagom_protocol.h"

struct lagom_chunk_list {
    uint32_t generation; /* of the current list; entries of another one are not in it */
    bool asked;          /* getChunkSize came since the last decision: the next decision starts a new list */
    struct lagom_chunk_entry {
        uint32_t generation;
        uint32_t bytes; /* 0 = leave */
    } entries[LAGOM_FUNCTIONS][LAGOM_ALGORITHMS][LAGOM_PROTOCOLS];
};

void lagom_chunk_list_open(struct lagom_chunk_list *list);

/* A decision was made; bytes 0 = it leaves the chunk to NCCL. Numbers out of range are ignored. */
void lagom_chunk_list_add(struct lagom_chunk_list *list, uint32_t function, int algorithm, int protocol,
                          uint32_t bytes);

/* Only ever lowers *chunk, never below LAGOM_CHUNK_FLOOR. */
void lagom_chunk_list_apply(struct lagom_chunk_list *list, int function, int algorithm, int protocol, size_t *chunk);

#endif
