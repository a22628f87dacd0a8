/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/event_mask.h"

#include <stdbool.h>
#include <stddef.h>

#include "protocol/lagom_atomic.h"
#include "tuner_plugin/nccl_abi.h"

#define MEASURED (NCCL_EVENT_COLL | NCCL_EVENT_KERNEL_CH)

static struct lagom_event_mask masks[4];

static int always_for(uint32_t profiler_api)
{
    if (profiler_api < 5) {
        return NCCL_EVENT_P2P; /* no API events yet */
    }
    int host = NCCL_EVENT_COLL_API | NCCL_EVENT_P2P_API;
    return profiler_api < 6 ? host : host | NCCL_EVENT_CE_COLL;
}

/* Brackets around launches, where NCCL reports them: the kernel timeline joins by them. */
static int measured_for(uint32_t profiler_api)
{
    return profiler_api < 5 ? MEASURED : MEASURED | NCCL_EVENT_KERNEL_LAUNCH;
}

struct lagom_event_mask *lagom_event_mask_of(int *mask, uint32_t profiler_api)
{
    for (size_t i = 0; mask != NULL && i < sizeof(masks) / sizeof(masks[0]); i++) {
        int *free_place = NULL;
        bool claimed =
            __atomic_compare_exchange_n(&masks[i].nccl, &free_place, mask, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
        if (claimed || free_place == mask) {
            lagom_store_relaxed(&masks[i].always, always_for(profiler_api));
            lagom_store_relaxed(&masks[i].while_measured, measured_for(profiler_api));
            return &masks[i];
        }
    }
    return NULL;
}

static int wanted(const struct lagom_event_mask *mask)
{
    if (lagom_load_acquire(&mask->tuned) == 0) { /* acquire: see the other threads' counts */
        return 0;
    }
    return lagom_load_relaxed(&mask->always) | (lagom_load_acquire(&mask->measured) > 0 ? lagom_load_relaxed(&mask->while_measured) : 0);
}

/* Another thread may have counted between our look and our store: look again until what is stored is what is wanted. */
static void store(struct lagom_event_mask *mask)
{
    int *nccl = lagom_load_acquire(&mask->nccl); /* pairs with the claim */
    int value = wanted(mask);
    for (int look = 0; look < 8; look++) {
        lagom_store_release(nccl, value);
        lagom_publish_fence(); /* mine is written, now I look at the others' */
        int now = wanted(mask);
        if (now == value) {
            return;
        }
        value = now;
    }
}

static void count(struct lagom_event_mask *mask, uint32_t *counter, int change)
{
    lagom_fetch_add(counter, (uint32_t)change); /* wraps for -1, as intended */
    store(mask);
}

void lagom_event_mask_tuned(struct lagom_event_mask *mask, int change)
{
    if (mask != NULL) {
        count(mask, &mask->tuned, change);
    }
}

void lagom_event_mask_measured(struct lagom_event_mask *mask, int change)
{
    if (mask != NULL) {
        count(mask, &mask->measured, change);
    }
}
