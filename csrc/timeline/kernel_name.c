/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/kernel_name.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "protocol/lagom_atomic.h"

_Static_assert((LAGOM_MAX_KERNEL_NAMES & (LAGOM_MAX_KERNEL_NAMES - 1)) == 0, "places are found by masking");

/* ---- Kinds ------------------------------------------------------------------------------------------------------ */

static uint8_t function_named(const char *name)
{
    static const struct {
        const char *word;
        uint8_t function;
    } words[] = {{"AllGather", LAGOM_ALL_GATHER}, {"ReduceScatter", LAGOM_REDUCE_SCATTER},
                 {"AllReduce", LAGOM_ALL_REDUCE}, {"Broadcast", LAGOM_BROADCAST},
                 {"Reduce", LAGOM_REDUCE}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strstr(name, words[i].word) != NULL) {
            return words[i].function;
        }
    }
    return LAGOM_NO_FUNCTION;
}

struct lagom_kernel_class lagom_kernel_classify(const char *name)
{
    struct lagom_kernel_class class = {LAGOM_SPAN_COMPUTE, LAGOM_NO_FUNCTION};
    const char *nccl = name == NULL ? NULL : strstr(name, "nccl");
    if (nccl == NULL || (strstr(nccl, "Kernel") == NULL && strncmp(nccl, "ncclSymk", 8) != 0)) {
        return class;
    }
    bool p2p = strstr(nccl, "SendRecv") != NULL || strstr(nccl, "AlltoAll") != NULL || strstr(nccl, "AllToAll") != NULL;
    class.kind = p2p ? LAGOM_SPAN_P2P : LAGOM_SPAN_COLLECTIVE;
    class.function = p2p ? LAGOM_NO_FUNCTION : function_named(nccl);
    return class;
}

/* ---- The region's table ----------------------------------------------------------------------------------------- */

static uint64_t hash_of(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char *at = name; *at != '\0'; at++) {
        hash = (hash ^ (uint8_t)*at) * 0x100000001b3u;
    }
    return hash == 0 ? 1 : hash; /* 0 = a free place */
}

/* Whoever takes the place writes the text; a reader waits for `ready`, so nobody ever sees half a name. */
static bool take(struct lagom_kernel_name *place, uint64_t hash, const char *name)
{
    if (!lagom_compare_exchange(&place->hash, 0, hash)) {
        return lagom_load_acquire(&place->hash) == hash;
    }
    size_t length = strnlen(name, LAGOM_KERNEL_NAME_BYTES - 1);
    memcpy(place->text, name, length);
    place->text[length] = '\0';
    lagom_store_release(&place->ready, 1u); /* pairs with the controller's read of the text */
    return true;
}

uint32_t lagom_kernel_name_intern(struct lagom_region *region, const char *name)
{
    if (name == NULL) {
        return 0;
    }
    uint64_t hash = hash_of(name);
    for (uint32_t i = 0; i < LAGOM_MAX_KERNEL_NAMES; i++) {
        uint32_t at = (uint32_t)(hash + i) & (LAGOM_MAX_KERNEL_NAMES - 1);
        uint64_t there = lagom_load_acquire(&region->names[at].hash);
        if (there == hash || (there == 0 && take(&region->names[at], hash, name))) {
            return at + 1;
        }
    }
    return 0;
}

/* The address alone would lie where a module was unloaded and another's names took its memory. */
static bool still_says(const struct lagom_region *region, const struct lagom_known_name *known, const char *name)
{
    return known->address == name && known->index != 0 &&
           strncmp(region->names[known->index - 1].text, name, LAGOM_KERNEL_NAME_BYTES - 1) == 0;
}

struct lagom_known_name lagom_kernel_name_look_up(struct lagom_name_cache *cache, struct lagom_region *region,
                                                  const char *name)
{
    struct lagom_known_name *known = &cache->known[((uintptr_t)name >> 4) & (LAGOM_NAME_CACHE - 1)];
    if (name == NULL || !still_says(region, known, name)) {
        *known = (struct lagom_known_name){name, lagom_kernel_name_intern(region, name), lagom_kernel_classify(name)};
    }
    return *known;
}
