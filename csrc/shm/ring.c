/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/ring.h"

#include "protocol/lagom_atomic.h"

/* One side of a ring, whichever of the two it is: 64-byte records behind two counters. */
struct ring {
    char *records;
    uint64_t capacity; /* a power of two */
    uint64_t *head;
    uint64_t *tail;
    uint64_t *drops;
};
#define RECORD_BYTES 64u

/* LAGOM_MAX_CALL_RINGS or more: none. */
static uint32_t call_ring_of(const struct lagom_region *region, uint32_t slot)
{
    return slot < LAGOM_MAX_SLOTS ? lagom_load_relaxed(&region->slots[slot].call_ring) - 1 : UINT32_MAX;
}

static struct ring call_ring(struct lagom_region *region, uint32_t slot, uint32_t ring)
{
    struct lagom_slot *owner = &region->slots[slot];
    return (struct ring){(char *)region->calls[ring], LAGOM_CALL_RING_CAPACITY, &owner->call_head, &owner->call_tail,
                         &owner->call_drops};
}

static struct ring kernel_ring(struct lagom_region *region, uint32_t process)
{
    struct lagom_process *owner = &region->processes[process];
    return (struct ring){(char *)region->kernels[process], LAGOM_KERNEL_RING_CAPACITY, &owner->kernel_head,
                         &owner->kernel_tail, &owner->kernel_drops};
}

static inline int push(struct ring ring, const void *record)
{
    uint64_t head = lagom_load_relaxed(ring.head);
    uint64_t tail = lagom_load_acquire(ring.tail); /* pairs with the consumer's release: the slot is read out */
    if (head - tail >= ring.capacity) {
        lagom_fetch_add(ring.drops, 1); /* not the producer's alone: a thread without its turn counts there too */
        return 0;
    }
    __builtin_memcpy(ring.records + (head & (ring.capacity - 1)) * RECORD_BYTES, record, RECORD_BYTES);
    lagom_store_release(ring.head, head + 1); /* pairs with the consumer's acquire */
    return 1;
}

static uint32_t drain(struct ring ring, char *out, uint32_t room)
{
    uint64_t head = lagom_load_acquire(ring.head);
    uint64_t tail = lagom_load_relaxed(ring.tail);
    uint64_t waiting = head - tail;
    if (waiting > ring.capacity) { /* one of the two lies: nothing between them is valid */
        lagom_store_release(ring.tail, head);
        return 0;
    }
    uint32_t taken = waiting < room ? (uint32_t)waiting : room;
    for (uint32_t i = 0; i < taken; i++) {
        const char *from = ring.records + ((tail + i) & (ring.capacity - 1)) * RECORD_BYTES;
        __builtin_memcpy(out + (size_t)i * RECORD_BYTES, from, RECORD_BYTES);
    }
    lagom_store_release(ring.tail, tail + taken);
    return taken;
}

int lagom_call_ring_push(struct lagom_region *region, uint32_t slot, const struct lagom_call_record *record)
{
    uint32_t ring = call_ring_of(region, slot);
    return ring < LAGOM_MAX_CALL_RINGS && push(call_ring(region, slot, ring), record);
}

int lagom_kernel_ring_push(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span)
{
    return process < LAGOM_MAX_PROCESSES && push(kernel_ring(region, process), span);
}

uint32_t lagom_call_ring_drain(struct lagom_region *region, uint32_t slot, struct lagom_call_record *out, uint32_t room)
{
    uint32_t ring = call_ring_of(region, slot);
    return ring < LAGOM_MAX_CALL_RINGS ? drain(call_ring(region, slot, ring), (char *)out, room) : 0;
}

uint32_t lagom_kernel_ring_drain(struct lagom_region *region, uint32_t process, struct lagom_kernel_span *out,
                                 uint32_t room)
{
    return process < LAGOM_MAX_PROCESSES ? drain(kernel_ring(region, process), (char *)out, room) : 0;
}
