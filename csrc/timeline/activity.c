/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/activity.h"

#include <pthread.h>
#include <stdlib.h>

#include "protocol/lagom_atomic.h"
#include "timeline/clock.h"

enum slot_state { EMPTY, OUT, FULL, READING, ABANDONED };

struct buffer_slot {
    uint8_t *memory; /* kept until close */
    size_t valid;
    uint64_t number;  /* in the order in which CUPTI asked */
    uint64_t full_ns; /* since then it waits to be read */
    enum slot_state state;
};

static struct {
    pthread_mutex_t lock; /* of everything here; held for a walk over the table */
    struct buffer_slot slots[LAGOM_ACTIVITY_BUFFERS];
    uint64_t asked;
    uint64_t completed;
    uint64_t foreign;
    uint64_t read_up_to; /* number of the newest one taken */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void)
{
    pthread_mutex_lock(&table.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&table.lock);
}

/* ---- CUPTI's side ----------------------------------------------------------------------------------------------- */

static bool has_memory(struct buffer_slot *slot)
{
    if (slot->memory == NULL) {
        slot->memory = aligned_alloc(CUPTI_BUFFER_ALIGNMENT, LAGOM_ACTIVITY_BUFFER_BYTES);
    }
    return slot->memory != NULL;
}

static void requested(uint8_t **buffer, size_t *bytes, size_t *most_records)
{
    *buffer = NULL; /* none: CUPTI drops records and counts them */
    *bytes = 0;
    *most_records = 0;
    lock();
    for (uint32_t i = 0; i < LAGOM_ACTIVITY_BUFFERS && *buffer == NULL; i++) {
        struct buffer_slot *slot = &table.slots[i];
        if (slot->state == EMPTY && has_memory(slot)) {
            slot->state = OUT;
            slot->number = ++table.asked;
            *buffer = slot->memory;
            *bytes = LAGOM_ACTIVITY_BUFFER_BYTES;
        }
    }
    unlock();
}

static struct buffer_slot *slot_of(const uint8_t *buffer)
{
    for (uint32_t i = 0; buffer != NULL && i < LAGOM_ACTIVITY_BUFFERS; i++) {
        struct buffer_slot *slot = &table.slots[i];
        if (slot->memory == buffer && (slot->state == OUT || slot->state == ABANDONED)) {
            return slot;
        }
    }
    return NULL;
}

static void completed(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    (void)context;
    (void)stream;
    (void)bytes;
    lock();
    struct buffer_slot *slot = slot_of(buffer);
    if (slot == NULL) {
        table.foreign += buffer != NULL;
    } else if (valid == 0) {
        slot->state = EMPTY;
    } else {
        slot->state = FULL;
        slot->valid = valid;
        slot->full_ns = lagom_now_ns();
        table.completed++;
    }
    unlock();
}

static _Thread_local uint32_t asked_for_time; /* how often CUPTI asked our clock on this thread */

static uint64_t monotonic(void)
{
    asked_for_time++;
    return lagom_now_ns();
}

static uint64_t realtime(void)
{
    return lagom_clock_ns(CLOCK_REALTIME);
}

/* ---- Our side --------------------------------------------------------------------------------------------------- */

static bool clock_can_be_seen; /* by our thread alone */

/* CUPTI's own clock is the one that is registered; asking it makes it ask us. */
static bool is_asked(const struct lagom_cupti *cupti)
{
    uint64_t stamp;
    uint32_t before = asked_for_time;
    cupti->get_timestamp(&stamp);
    return asked_for_time != before;
}

/* The callbacks anew each time: whoever profiled in between has replaced them. */
const char *lagom_activity_enable(const struct lagom_cupti *cupti)
{
    if (cupti->register_callbacks(requested, completed) != CUPTI_RESULT_SUCCESS) {
        return "CUPTI refused Lagom's buffers";
    }
    if (cupti->register_timestamp(monotonic) != CUPTI_RESULT_SUCCESS) {
        return "CUPTI refused Lagom's clock";
    }
    if (cupti->enable(CUPTI_KIND_CONCURRENT_KERNEL) != CUPTI_RESULT_SUCCESS) {
        return "CUPTI does not record kernels here";
    }
    clock_can_be_seen = is_asked(cupti);
    cupti->enable(CUPTI_KIND_COPY); /* without it there are no records of PEER_COPY either */
    cupti->enable(CUPTI_KIND_PEER_COPY);
    cupti->enable(CUPTI_KIND_EXTERNAL_CORRELATION); /* the join does without, too */
    return NULL;
}

void lagom_activity_disable(const struct lagom_cupti *cupti)
{
    cupti->disable(CUPTI_KIND_EXTERNAL_CORRELATION);
    cupti->disable(CUPTI_KIND_PEER_COPY);
    cupti->disable(CUPTI_KIND_COPY);
    cupti->disable(CUPTI_KIND_CONCURRENT_KERNEL);
}

bool lagom_activity_clock_is_ours(const struct lagom_cupti *cupti)
{
    return !clock_can_be_seen || is_asked(cupti);
}

void lagom_activity_give_clock_back(const struct lagom_cupti *cupti)
{
    cupti->register_timestamp(realtime);
}

void lagom_activity_abandon(void)
{
    lock();
    for (uint32_t i = 0; i < LAGOM_ACTIVITY_BUFFERS; i++) {
        if (table.slots[i].state == OUT) {
            table.slots[i].state = ABANDONED;
        }
    }
    unlock();
}

static struct buffer_slot *first_in(enum slot_state state)
{
    struct buffer_slot *first = NULL;
    for (uint32_t i = 0; i < LAGOM_ACTIVITY_BUFFERS; i++) {
        struct buffer_slot *slot = &table.slots[i];
        if (slot->state == state && (first == NULL || slot->number < first->number)) {
            first = slot;
        }
    }
    return first;
}

static bool may_be_read(const struct buffer_slot *full, uint64_t now_ns)
{
    const struct buffer_slot *out = first_in(OUT);
    return out == NULL || full->number < out->number || lagom_elapsed_ns(now_ns, full->full_ns) > LAGOM_ACTIVITY_PATIENCE_NS;
}

/* Between the newest one taken and this one. */
static uint32_t passed_over_by(const struct buffer_slot *full)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < LAGOM_ACTIVITY_BUFFERS; i++) {
        const struct buffer_slot *slot = &table.slots[i];
        count += slot->state == OUT && slot->number > table.read_up_to && slot->number < full->number;
    }
    return count;
}

bool lagom_activity_take(struct lagom_activity_batch *batch, uint64_t now_ns)
{
    lock();
    struct buffer_slot *full = first_in(FULL);
    bool found = full != NULL && may_be_read(full, now_ns);
    if (found) {
        full->state = READING;
        *batch = (struct lagom_activity_batch){.records = full->memory,
                                               .valid = full->valid,
                                               .entry = (uint32_t)(full - table.slots),
                                               .passed_over = passed_over_by(full),
                                               .late = full->number < table.read_up_to};
        table.read_up_to = full->number > table.read_up_to ? full->number : table.read_up_to;
    }
    unlock();
    return found;
}

void lagom_activity_give_back(const struct lagom_activity_batch *batch)
{
    lock();
    table.slots[batch->entry].state = EMPTY;
    unlock();
}

static uint64_t count_of(const uint64_t *counter)
{
    lock();
    uint64_t count = *counter;
    unlock();
    return count;
}

uint32_t lagom_activity_out(void)
{
    uint32_t out = 0;
    lock();
    for (uint32_t i = 0; i < LAGOM_ACTIVITY_BUFFERS; i++) {
        out += table.slots[i].state == OUT;
    }
    unlock();
    return out;
}

uint64_t lagom_activity_completed(void)
{
    return count_of(&table.completed);
}

uint64_t lagom_activity_foreign(void)
{
    return count_of(&table.foreign);
}

void lagom_activity_close(void)
{
    lock();
    for (uint32_t i = 0; i < LAGOM_ACTIVITY_BUFFERS; i++) {
        struct buffer_slot *slot = &table.slots[i];
        if (slot->state == EMPTY || slot->state == FULL) {
            free(slot->memory);
            *slot = (struct buffer_slot){.memory = NULL};
        }
    }
    unlock();
}
