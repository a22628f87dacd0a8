/* SPDX-License-Identifier: Apache-2.0 */
/* A rank enters a communicator and takes a slot, both used before by others, while a publisher looks.
 *
 * The entry's former life had one rank, and the slot's former owner had made 900 calls. A publisher that takes the old
 * rank count beside the new slot prepares a plan for one of two ranks. */
#include "tests/memory_model/group.h"

#include "shm/registration.c"

#define OLD_CALLS 900u
#define LOOKS 10

const unsigned scenario_threads = 2;

/* Registration's way to the file and its locks; not used here. */
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
bool lagom_table_begin(struct lagom_attachment *attachment)
{
    (void)attachment;
    return false;
}
void lagom_table_end(struct lagom_attachment *attachment)
{
    (void)attachment;
}
bool lagom_wait_budget_over(void)
{
    return false;
}
uint32_t lagom_table_sweep(struct lagom_attachment *attachment, bool force)
{
    (void)attachment;
    (void)force;
    return 0;
}
void lagom_table_clear_communicator(struct lagom_communicator *entry) /* of region_table.c, as far as is read here */
{
    lagom_store_release(&entry->state, (uint32_t)LAGOM_FREE);
    lagom_store_release(&entry->word, (uint64_t)0);
    lagom_store_release(&entry->comm_id, (uint64_t)0);
}

static enum lagom_publish_result result;
static uint32_t slots;
static uint64_t largest;

void scenario_setup(void)
{
    make_group(1);
    model_narrow(&region.slots[0], 16);
    model_narrow(&region.slots[0].device, 8); /* and call_ring */
    model_private(&result, sizeof(result));
    model_private(&slots, sizeof(slots));
    model_private(&largest, sizeof(largest));
    shared_entry()->state = LAGOM_FREE;
    region.slots[0].state = LAGOM_FREE;
    region.slots[0].calls = OLD_CALLS;
    plan_from(0, 2 * OLD_CALLS);
}

void scenario_thread(unsigned thread)
{
    if (thread == 0) {
        const struct shape shape = {.comm_id = COMM_ID, .rank_count = 2, .node_count = 1};
        describe(shared_entry(), &shape);
        const struct lagom_identity identity = {.rank = 0, .device = 0};
        fill_slot(&region.slots[0], 0, 0, COMM_ID, &identity, 1);
        return;
    }
    uint64_t smallest;
    for (int looks = 0; looks < LOOKS && slots == 0; looks++) {
        slots = lagom_counters(&region, 0, &smallest, &largest);
    }
    result = lagom_publish(&region, 0, &plans[0]);
}

void scenario_check(void)
{
    model_require(slots == 0 || largest == 0, "a slot is ready and its counter is its former owner's");
    model_require(result != LAGOM_PUBLISH_OK && word_now() == 0, "a plan was prepared for one of two ranks");
}
