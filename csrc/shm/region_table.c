/* SPDX-License-Identifier: Apache-2.0 */
/* region_table.c - who is registered: processes and the controller, and what the dead leave behind.
 *
 * All of it changes under one byte lock (LAGOM_LOCK_REGISTER), held for microseconds. A process waits for it no longer
 * than its budget (wait_budget.h): if one was stopped while holding it, this process is not tuned.
 */
#include "shm/region_table.h"

#include <string.h>
#include <unistd.h>

#include "protocol/lagom_atomic.h"
#include "shm/file_lock.h"
#include "shm/wait_budget.h"

bool lagom_table_begin(struct lagom_attachment *attachment)
{
    return !lagom_wait_budget_over() &&
           lagom_wait_budget_lock(&attachment->fd, LAGOM_LOCK_REGISTER, LAGOM_WAIT_BUDGET_MILLISECONDS);
}

void lagom_table_end(struct lagom_attachment *attachment)
{
    lagom_lock_drop(attachment->fd, LAGOM_LOCK_REGISTER);
}

static bool process_alive(const struct lagom_attachment *attachment, uint32_t process)
{
    return process < LAGOM_MAX_PROCESSES &&
           (attachment->process == process || lagom_lock_elsewhere(attachment->fd, LAGOM_LOCK_PROCESS + process, 1));
}

/* ---- Freeing what is left behind -------------------------------------------------------------------------------- */

static bool is_drained(struct lagom_slot *slot)
{
    return lagom_load_relaxed(&slot->call_ring) == 0 ||
           lagom_load_acquire(&slot->call_head) == lagom_load_relaxed(&slot->call_tail);
}

/* force: the table is full, so what a finalized communicator recorded last is given up. */
static bool may_free_slot(const struct lagom_attachment *attachment, struct lagom_slot *slot, bool force)
{
    switch (lagom_load_acquire(&slot->state)) {
    case LAGOM_FREE: return false;
    case LAGOM_GONE: return force || is_drained(slot) || !process_alive(attachment, slot->process);
    default: return !process_alive(attachment, slot->process);
    }
}

static uint32_t free_slots(struct lagom_attachment *attachment, bool force)
{
    uint32_t freed = 0;
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        struct lagom_slot *slot = &attachment->region->slots[i];
        if (may_free_slot(attachment, slot, force)) {
            lagom_store_release(&slot->state, (uint32_t)LAGOM_FREE);
            freed++;
        }
    }
    return freed;
}

static uint32_t free_processes(struct lagom_attachment *attachment)
{
    uint32_t freed = 0;
    for (uint32_t i = 0; i < LAGOM_MAX_PROCESSES; i++) {
        uint32_t *state = &attachment->region->processes[i].state;
        if (lagom_load_acquire(state) != LAGOM_FREE && !process_alive(attachment, i)) {
            lagom_store_release(state, (uint32_t)LAGOM_FREE);
            freed++;
        }
    }
    return freed;
}

/* GONE slots count: their rings may still be read. */
static bool has_slots(const struct lagom_region *region, uint32_t communicator)
{
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        const struct lagom_slot *slot = &region->slots[i];
        if (lagom_load_acquire(&slot->state) != LAGOM_FREE && slot->communicator == communicator) {
            return true;
        }
    }
    return false;
}

static bool any_process_alive(const struct lagom_attachment *attachment)
{
    return attachment->process != UINT32_MAX ||
           lagom_lock_elsewhere(attachment->fd, LAGOM_LOCK_PROCESS, LAGOM_MAX_PROCESSES);
}

void lagom_table_clear_communicator(struct lagom_communicator *entry)
{
    lagom_store_release(&entry->state, (uint32_t)LAGOM_FREE);
    lagom_store_release(&entry->word, (uint64_t)0); /* stock again; epochs go on, they belong to the region */
    lagom_store_relaxed(&entry->capture, 0u);
    lagom_store_relaxed(&entry->publisher, (uint64_t)0);
    entry->entered = 0;
    entry->taken = 0;
    lagom_store_release(&entry->comm_id, (uint64_t)0);
}

static uint32_t free_communicators(struct lagom_attachment *attachment)
{
    uint32_t freed = 0;
    bool deserted = !any_process_alive(attachment);
    for (uint32_t i = 0; i < LAGOM_MAX_COMMUNICATORS; i++) {
        struct lagom_communicator *entry = &attachment->region->communicators[i];
        bool expected = entry->entered != entry->taken && !deserted;
        if (entry->comm_id != 0 && !expected && !has_slots(attachment->region, i)) {
            lagom_table_clear_communicator(entry);
            freed++;
        }
    }
    return freed;
}

uint32_t lagom_table_sweep(struct lagom_attachment *attachment, bool force)
{
    uint32_t freed = free_slots(attachment, force);
    freed += free_processes(attachment);
    return freed + free_communicators(attachment);
}

uint32_t lagom_region_sweep(struct lagom_mapping *mapping)
{
    uint32_t freed = 0;
    lagom_attachments_lock();
    struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    if (attachment != NULL && attachment->writable && lagom_lock_try(attachment->fd, LAGOM_LOCK_REGISTER)) {
        freed = lagom_table_sweep(attachment, false);
        lagom_table_end(attachment);
    }
    lagom_attachments_unlock();
    return freed;
}

/* ---- Processes and the controller ------------------------------------------------------------------------------- */

static void describe_process(struct lagom_attachment *attachment, uint32_t index)
{
    struct lagom_process *entry = &attachment->region->processes[index];
    memset(entry, 0, sizeof(*entry));
    entry->pid = (uint32_t)getpid();
    attachment->process = index;
    lagom_compare_exchange(&attachment->region->header.spawn_claim, (uint64_t)index + 1, 0); /* its former owner's */
    lagom_fetch_add(&attachment->region->header.processes_seen, 1);
    lagom_store_release(&entry->state, (uint32_t)LAGOM_READY);
}

/* An entry whose byte we can lock has no living owner, whatever its state says. */
static bool lock_entry(struct lagom_attachment *attachment, uint32_t index, bool only_free)
{
    bool is_free = lagom_load_acquire(&attachment->region->processes[index].state) == LAGOM_FREE;
    return (is_free || !only_free) && lagom_lock_try(attachment->fd, LAGOM_LOCK_PROCESS + index);
}

static bool take_entry(struct lagom_attachment *attachment, bool only_free)
{
    for (uint32_t i = 0; i < LAGOM_MAX_PROCESSES; i++) {
        if (lock_entry(attachment, i, only_free)) {
            free_slots(attachment, false); /* the dead owner's, before the entry looks alive again */
            describe_process(attachment, i);
            return true;
        }
    }
    return false;
}

enum lagom_region_fault lagom_table_take_process(struct lagom_attachment *attachment)
{
    if (attachment->process != UINT32_MAX) {
        return LAGOM_REGION_OK;
    }
    if (!lagom_table_begin(attachment)) {
        return LAGOM_REGION_HELD;
    }
    bool taken = take_entry(attachment, true) || take_entry(attachment, false);
    lagom_table_end(attachment);
    return taken ? LAGOM_REGION_OK : LAGOM_REGION_FULL;
}

/* READY first: a slot that another process is filling at this moment may still name us as its former owner. */
static void leave_slots(struct lagom_region *region, uint32_t process)
{
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        struct lagom_slot *slot = &region->slots[i];
        if (lagom_load_acquire(&slot->state) == LAGOM_READY && lagom_load_relaxed(&slot->process) == process) {
            lagom_store_release(&slot->state, (uint32_t)LAGOM_GONE);
        }
    }
}

void lagom_table_give_process_back(struct lagom_attachment *attachment)
{
    uint32_t process = attachment->process;
    leave_slots(attachment->region, process);
    lagom_store_release(&attachment->region->processes[process].state, (uint32_t)LAGOM_GONE);
    attachment->process = UINT32_MAX;
    lagom_lock_drop(attachment->fd, LAGOM_LOCK_PROCESS + process);
}

enum lagom_region_fault lagom_table_take_control(struct lagom_attachment *attachment)
{
    if (attachment->controller || !lagom_lock_try(attachment->fd, LAGOM_LOCK_CONTROLLER)) {
        return LAGOM_REGION_HELD;
    }
    attachment->controller = true;
    lagom_store_relaxed(&attachment->region->header.controller_pid, (uint64_t)getpid());
    lagom_fetch_add(&attachment->region->header.controller_generation, 1);
    return LAGOM_REGION_OK;
}

void lagom_table_give_control_back(struct lagom_attachment *attachment)
{
    attachment->controller = false;
    lagom_lock_drop(attachment->fd, LAGOM_LOCK_CONTROLLER);
}
