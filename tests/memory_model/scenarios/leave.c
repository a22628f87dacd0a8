/* SPDX-License-Identifier: Apache-2.0 */
/* A process leaves while another one fills a slot that the first had before: what is the other's stays READY. */
#include "tests/memory_model/group.h"

#include "shm/region_table.c"
#include "shm/registration.c"

#define LEAVING 0u
#define STAYING 1u

const unsigned scenario_threads = 2;

/* The way to the file and its locks; not used here. */
void lagom_attachments_lock(void)
{
}
void lagom_attachments_unlock(void)
{
}
void lagom_attachments_begin(void)
{
}
void lagom_attachments_end(void)
{
}
struct lagom_attachment *lagom_attachment_of(const struct lagom_region *of)
{
    (void)of;
    return NULL;
}
bool lagom_lock_try(int fd, uint32_t byte)
{
    (void)fd;
    (void)byte;
    return false;
}
void lagom_lock_drop(int fd, uint32_t byte)
{
    (void)fd;
    (void)byte;
}
bool lagom_lock_elsewhere(int fd, uint32_t first, uint32_t count)
{
    (void)fd;
    (void)first;
    (void)count;
    return false;
}
bool lagom_wait_budget_over(void)
{
    return false;
}
bool lagom_wait_budget_lock(const int *fd, uint32_t byte, uint32_t milliseconds)
{
    (void)fd;
    (void)byte;
    (void)milliseconds;
    return false;
}

void scenario_setup(void)
{
    make_group(2);
    model_narrow(&region.slots[0], 16);
    model_narrow(&region.slots[0].device, 8); /* and call_ring */
    region.slots[0].process = LEAVING;
    region.slots[0].state = LAGOM_FREE; /* swept after its rank had finalized */
    region.slots[1].process = LEAVING;
}

void scenario_thread(unsigned thread)
{
    if (thread == 0) {
        leave_slots(&region, LEAVING);
        return;
    }
    const struct lagom_identity identity = {.rank = 0, .device = 0};
    fill_slot(&region.slots[0], STAYING, 0, COMM_ID, &identity, 1);
}

void scenario_check(void)
{
    model_require(region.slots[0].state == LAGOM_READY, "the slot of a process that stays was marked as left");
    model_require(region.slots[1].state == LAGOM_GONE, "the slot of the process that leaves was not marked");
}
