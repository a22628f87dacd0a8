/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/chunk.h"

void lagom_chunk_list_open(struct lagom_chunk_list *list)
{
    *list = (struct lagom_chunk_list){.generation = 1};
}

static struct lagom_chunk_entry *entry_of(struct lagom_chunk_list *list, int64_t function, int algorithm, int protocol)
{
    bool known = function >= 0 && function < LAGOM_FUNCTIONS && algorithm >= 0 && algorithm < LAGOM_ALGORITHMS &&
                 protocol >= 0 && protocol < LAGOM_PROTOCOLS;
    return known ? &list->entries[function][algorithm][protocol] : NULL;
}

static uint32_t smaller(uint32_t one, uint32_t other)
{
    if (one == 0 || other == 0) {
        return one + other; /* the one that says something */
    }
    return one < other ? one : other;
}

void lagom_chunk_list_add(struct lagom_chunk_list *list, uint32_t function, int algorithm, int protocol, uint32_t bytes)
{
    if (list->asked) {
        list->asked = false;
        list->generation++;
    }
    struct lagom_chunk_entry *entry = entry_of(list, function, algorithm, protocol);
    if (entry == NULL) {
        return;
    }
    entry->bytes = entry->generation == list->generation ? smaller(entry->bytes, bytes) : bytes;
    entry->generation = list->generation;
}

/* The slots of NVLS buffers lie a whole number of 16 KiB apart; a chunk in between would straddle them. */
static uint32_t fitting(int algorithm, uint32_t bytes)
{
    bool nvls = algorithm == LAGOM_NVLS || algorithm == LAGOM_NVLS_TREE;
    uint32_t whole = nvls ? bytes / LAGOM_CHUNK_FLOOR * LAGOM_CHUNK_FLOOR : bytes;
    return whole < LAGOM_CHUNK_FLOOR ? LAGOM_CHUNK_FLOOR : whole;
}

void lagom_chunk_list_apply(struct lagom_chunk_list *list, int function, int algorithm, int protocol, size_t *chunk)
{
    list->asked = true;
    const struct lagom_chunk_entry *entry = entry_of(list, function, algorithm, protocol);
    if (entry == NULL || entry->generation != list->generation || entry->bytes == 0) {
        return;
    }
    uint32_t wanted = fitting(algorithm, entry->bytes);
    if (wanted < *chunk) {
        *chunk = wanted;
    }
}
