/* SPDX-License-Identifier: Apache-2.0 */
/* registration.c - a rank enters a communicator and takes a slot in it. */
#include "protocol/lagom_atomic.h"
#include "shm/region_table.h"
#include "shm/wait_budget.h"

#include <stdio.h>
#include <string.h>

#include "plan/plan.h"

struct shape {
    uint64_t comm_id;
    uint32_t rank_count;
    uint32_t node_count;
    uint32_t ordinal;
    const char *name;
};

static bool has_id(const struct lagom_communicator *entry, uint64_t comm_id)
{
    return lagom_load_relaxed(&entry->comm_id) == comm_id;
}

static uint32_t find_communicator(const struct lagom_region *region, uint64_t comm_id, uint32_t first)
{
    for (uint32_t i = first; i < LAGOM_MAX_COMMUNICATORS; i++) {
        if (has_id(&region->communicators[i], comm_id)) {
            return i;
        }
    }
    return UINT32_MAX;
}

static void describe(struct lagom_communicator *entry, const struct shape *shape)
{
    lagom_table_clear_communicator(entry);
    lagom_store_relaxed(&entry->rank_count, shape->rank_count); /* a publisher may still be looking at its former life */
    lagom_store_relaxed(&entry->node_count, shape->node_count);
    entry->ordinal = shape->ordinal;
    snprintf(entry->name, sizeof(entry->name), "%s", shape->name != NULL ? shape->name : "");
    lagom_store_release(&entry->comm_id, shape->comm_id);
    lagom_store_release(&entry->state, (uint32_t)LAGOM_READY);
}

/* Shown as the reason why a communicator is not tuned. */
static void count_refusal(struct lagom_region *region, bool refused)
{
    if (refused) {
        lagom_fetch_add(&region->header.places_refused, 1);
    }
}

/* A free entry. Within the node the first is the best: plans belong to the first LAGOM_MAX_PLANS. A communicator that
 * spans nodes leaves those to them as long as there are others, and never gets one of the first
 * LAGOM_ONE_NODE_COMMUNICATORS. */
static uint32_t make_communicator(struct lagom_attachment *attachment, const struct shape *shape)
{
    struct lagom_region *region = attachment->region;
    bool one_node = shape->node_count == 1;
    uint32_t first = one_node ? 0 : LAGOM_MAX_PLANS;
    uint32_t index = find_communicator(region, 0, first);
    if (index >= (one_node ? LAGOM_MAX_PLANS : LAGOM_MAX_COMMUNICATORS) && lagom_table_sweep(attachment, true) > 0) {
        index = find_communicator(region, 0, first);
    }
    if (index == UINT32_MAX && !one_node) {
        index = find_communicator(region, 0, LAGOM_ONE_NODE_COMMUNICATORS);
    }
    if (index != UINT32_MAX) {
        describe(&region->communicators[index], shape);
    }
    count_refusal(region, index == UINT32_MAX || (one_node && index >= LAGOM_MAX_PLANS));
    return index;
}

/* One id and two shapes is a collision of ids: the second is not tuned. */
static bool has_shape(const struct lagom_communicator *entry, const struct shape *shape)
{
    return lagom_load_acquire(&entry->state) == LAGOM_READY && entry->rank_count == shape->rank_count &&
           entry->node_count == shape->node_count;
}

static uint32_t enter(struct lagom_attachment *attachment, const struct shape *shape)
{
    struct lagom_communicator *entries = attachment->region->communicators;
    uint32_t index = find_communicator(attachment->region, shape->comm_id, 0);
    if (index == UINT32_MAX) {
        index = make_communicator(attachment, shape);
    } else if (!has_shape(&entries[index], shape)) {
        return UINT32_MAX;
    }
    if (index != UINT32_MAX) {
        entries[index].entered++;
    }
    return index;
}

uint32_t lagom_communicator_enter(struct lagom_region *region, uint64_t comm_id, uint32_t rank_count,
                                  uint32_t node_count, uint32_t ordinal, const char *name)
{
    const struct shape shape = {comm_id != 0 ? comm_id : 1, rank_count, node_count, ordinal, name};
    uint32_t index = UINT32_MAX;
    lagom_attachments_begin();
    struct lagom_attachment *attachment = lagom_attachment_of(region);
    if (attachment != NULL && attachment->writable && lagom_table_begin(attachment)) {
        index = enter(attachment, &shape);
        lagom_table_end(attachment);
    }
    lagom_attachments_end();
    return index;
}

static uint32_t find_free_slot(struct lagom_region *region, uint32_t first)
{
    for (uint32_t i = first; i < LAGOM_MAX_SLOTS; i++) {
        if (lagom_load_acquire(&region->slots[i].state) == LAGOM_FREE) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* Index + 1; 0 = all are in use. */
static uint32_t find_free_ring(const struct lagom_region *region)
{
    bool used[LAGOM_MAX_CALL_RINGS + 1] = {true};
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        const struct lagom_slot *slot = &region->slots[i];
        uint32_t ring = lagom_load_relaxed(&slot->call_ring);
        if (lagom_load_acquire(&slot->state) != LAGOM_FREE && ring <= LAGOM_MAX_CALL_RINGS) {
            used[ring] = true;
        }
    }
    const bool *unused = memchr(used, false, sizeof(used));
    return unused != NULL ? (uint32_t)(unused - used) : 0;
}

static bool spans_nodes(const struct lagom_region *region, const struct lagom_slot *slot)
{
    uint32_t communicator = lagom_load_relaxed(&slot->communicator);
    return communicator < LAGOM_MAX_COMMUNICATORS && region->communicators[communicator].node_count != 1;
}

/* From a communicator that spans nodes, the last one first. Its rank may be writing a record at this very moment: that one
 * is never read, because the new owner writes over it. Were the rank stopped there until after that, one record of the new
 * owner would be garbage, as anything in the region may be. */
static uint32_t take_ring_over(struct lagom_region *region)
{
    for (uint32_t i = LAGOM_MAX_SLOTS; i-- > LAGOM_ONE_NODE_SLOTS;) {
        struct lagom_slot *slot = &region->slots[i];
        uint32_t ring = lagom_load_relaxed(&slot->call_ring);
        bool has_one = lagom_load_acquire(&slot->state) == LAGOM_READY && ring - 1 < LAGOM_MAX_CALL_RINGS;
        if (has_one && spans_nodes(region, slot)) {
            lagom_store_relaxed(&slot->call_ring, 0u);
            return ring;
        }
    }
    return 0;
}

/* Relaxed stores: a publisher that saw the slot's former life may still be reading it. */
static void clear_slot(struct lagom_slot *slot)
{
    uint64_t *word = (uint64_t *)(void *)slot;
    for (size_t i = 1; i < sizeof(*slot) / sizeof(*word); i++) {
        lagom_store_relaxed(&word[i], (uint64_t)0);
    }
}

static void fill_slot(struct lagom_slot *slot, uint32_t process, uint32_t communicator, uint64_t comm_id,
                      const struct lagom_identity *identity, uint32_t ring)
{
    lagom_store_release(&slot->state, (uint32_t)LAGOM_CLAIMED);
    clear_slot(slot);
    lagom_store_relaxed(&slot->process, process);
    lagom_store_relaxed(&slot->communicator, communicator);
    lagom_store_relaxed(&slot->rank, identity->rank);
    lagom_store_relaxed(&slot->device, identity->device);
    lagom_store_relaxed(&slot->call_ring, ring);
    lagom_store_relaxed(&slot->comm_id, comm_id);
    lagom_store_relaxed(&slot->history_hash, (uint64_t)LAGOM_HISTORY_SEED);
    lagom_store_release(&slot->state, (uint32_t)LAGOM_READY);
}

static uint32_t take(struct lagom_attachment *attachment, uint32_t communicator, const struct lagom_identity *identity)
{
    struct lagom_region *region = attachment->region;
    bool one_node = region->communicators[communicator].node_count == 1;
    uint32_t first = one_node ? 0 : LAGOM_ONE_NODE_SLOTS;
    uint32_t index = find_free_slot(region, first), ring = find_free_ring(region);
    bool wanting = index == UINT32_MAX || (one_node && ring == 0);
    if (wanting && lagom_table_sweep(attachment, true) > 0) {
        index = find_free_slot(region, first);
        ring = find_free_ring(region);
    }
    if (index != UINT32_MAX) {
        ring = ring == 0 && one_node ? take_ring_over(region) : ring;
        fill_slot(&region->slots[index], attachment->process, communicator, region->communicators[communicator].comm_id,
                  identity, ring);
    }
    region->communicators[communicator].taken++;
    count_refusal(region, index == UINT32_MAX || (one_node && ring == 0));
    return index;
}

uint32_t lagom_slot_take(struct lagom_mapping *mapping, uint32_t communicator, struct lagom_identity identity)
{
    uint32_t index = UINT32_MAX;
    lagom_attachments_begin();
    struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    bool possible = attachment != NULL && attachment->process != UINT32_MAX && communicator < LAGOM_MAX_COMMUNICATORS;
    if (possible && lagom_table_begin(attachment)) {
        index = take(attachment, communicator, &identity);
        lagom_table_end(attachment);
    }
    lagom_attachments_end();
    return index;
}

void lagom_slot_release(struct lagom_mapping *mapping, uint32_t slot)
{
    lagom_attachments_lock();
    struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    if (attachment != NULL && slot < LAGOM_MAX_SLOTS &&
        attachment->region->slots[slot].process == attachment->process) {
        lagom_store_release(&attachment->region->slots[slot].state, (uint32_t)LAGOM_GONE);
    }
    lagom_attachments_unlock();
}

bool lagom_region_is_lost(const struct lagom_mapping *mapping)
{
    lagom_attachments_lock();
    const struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    bool lost = attachment != NULL && attachment->fd < 0;
    lagom_attachments_unlock();
    return lost;
}

bool lagom_region_gave_up(void)
{
    return lagom_wait_budget_over();
}
