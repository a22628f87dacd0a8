/* SPDX-License-Identifier: Apache-2.0 */
/* shm_ring.c - the rings, from empty to a producer that is killed in the middle. */
#include <pthread.h>
#include <sys/mman.h>

#include "protocol/lagom_atomic.h"
#include "shm/ring.h"
#include "tests/native/check.h"

#define CAPACITY LAGOM_CALL_RING_CAPACITY
#define MANY (is_full() ? 1000000u : 100000u)

static struct lagom_region *region;

static void fresh(void)
{
    if (region != NULL) {
        munmap(region, sizeof(*region));
    }
    region = mmap(NULL, sizeof(*region), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(region != MAP_FAILED);
    region->slots[0].call_ring = 1;
}

/* Every field is made from the number, so that a torn record cannot pass for a whole one. */
static struct lagom_call_record record_number(uint64_t number)
{
    return (struct lagom_call_record){.call = number,
                                      .time_ns = ~number,
                                      .bytes = number * 3,
                                      .epoch = number ^ 0x5555,
                                      .position = (uint32_t)number,
                                      .iteration = (uint32_t)(number >> 3),
                                      .chosen = {.channels = (uint16_t)number}};
}

static void check_record(const struct lagom_call_record *record, uint64_t number)
{
    struct lagom_call_record wanted = record_number(number);
    CHECK(memcmp(record, &wanted, sizeof(wanted)) == 0);
}

static int push(uint64_t number)
{
    struct lagom_call_record record = record_number(number);
    return lagom_call_ring_push(region, 0, &record);
}

static void empty_gives_nothing(void)
{
    struct lagom_call_record out;
    fresh();
    CHECK_EQUAL(lagom_call_ring_drain(region, 0, &out, 1), 0);
    CHECK_EQUAL(lagom_call_ring_drain(region, LAGOM_MAX_SLOTS, &out, 1), 0);
    CHECK_EQUAL(lagom_call_ring_push(region, LAGOM_MAX_SLOTS, &out), 0);
    CHECK_EQUAL(lagom_kernel_ring_drain(region, LAGOM_MAX_PROCESSES, NULL, 1), 0);
}

static void order_is_kept(void)
{
    struct lagom_call_record out[8];
    fresh();
    for (uint64_t i = 0; i < 5; i++) {
        CHECK(push(i));
    }
    CHECK_EQUAL(lagom_call_ring_drain(region, 0, out, 8), 5);
    for (uint64_t i = 0; i < 5; i++) {
        check_record(&out[i], i);
    }
}

static void room_limits_a_drain(void)
{
    struct lagom_call_record out[3];
    fresh();
    for (uint64_t i = 0; i < 5; i++) {
        push(i);
    }
    CHECK_EQUAL(lagom_call_ring_drain(region, 0, out, 3), 3);
    CHECK_EQUAL(lagom_call_ring_drain(region, 0, out, 3), 2);
    check_record(&out[1], 4);
}

static void full_drops_the_new_and_counts(void)
{
    static struct lagom_call_record out[CAPACITY];
    fresh();
    for (uint64_t i = 0; i < CAPACITY; i++) {
        CHECK(push(i));
    }
    for (uint64_t i = 0; i < 7; i++) {
        CHECK(!push(1000 + i));
    }
    CHECK_EQUAL(region->slots[0].call_drops, 7);
    CHECK_EQUAL(lagom_call_ring_drain(region, 0, out, CAPACITY), CAPACITY);
    check_record(&out[CAPACITY - 1], CAPACITY - 1);
    CHECK(push(CAPACITY));
}

static void wraps_around(void)
{
    struct lagom_call_record out[3];
    fresh();
    for (uint64_t i = 0; i < 10 * CAPACITY; i += 3) {
        CHECK(push(i) && push(i + 1) && push(i + 2));
        CHECK_EQUAL(lagom_call_ring_drain(region, 0, out, 3), 3);
        check_record(&out[0], i);
        check_record(&out[2], i + 2);
    }
    CHECK_EQUAL(region->slots[0].call_drops, 0);
}

static void interleaved_at_random(void)
{
    static struct lagom_call_record out[CAPACITY];
    uint64_t seed = 1, pushed = 0, taken = 0;
    fresh();
    for (int round = 0; round < (is_full() ? 20000 : 4000); round++) {
        for (uint64_t left = next_random(&seed) % 100; left > 0; left--) {
            pushed += (uint64_t)push(pushed);
        }
        uint32_t got = lagom_call_ring_drain(region, 0, out, (uint32_t)(next_random(&seed) % CAPACITY));
        for (uint32_t i = 0; i < got; i++) {
            check_record(&out[i], taken++);
        }
    }
    CHECK(taken > 100000 && pushed - taken <= CAPACITY);
}

/* An index that lies costs records, never more: both sides stay inside the ring and find together again. */
static void garbage_indices_are_survived(void)
{
    static struct lagom_call_record out[CAPACITY];
    uint64_t seed = 7;
    fresh();
    for (int round = 0; round < 2000; round++) {
        *(round % 2 ? &region->slots[0].call_head : &region->slots[0].call_tail) = next_random(&seed);
        push(1);
        CHECK(lagom_call_ring_drain(region, 0, out, CAPACITY) <= CAPACITY);
        CHECK_EQUAL(lagom_call_ring_drain(region, 0, out, CAPACITY), 0);
        CHECK(push(2));
        CHECK_EQUAL(lagom_call_ring_drain(region, 0, out, CAPACITY), 1);
        check_record(&out[0], 2);
    }
}

static void kernel_spans_travel_too(void)
{
    struct lagom_kernel_span span = {.start_ns = 5, .end_ns = 9, .call = 3, .channels = 24}, out;
    fresh();
    for (uint64_t i = 0; i < LAGOM_KERNEL_RING_CAPACITY; i++) {
        CHECK(lagom_kernel_ring_push(region, 15, &span));
    }
    CHECK(!lagom_kernel_ring_push(region, 15, &span));
    CHECK_EQUAL(region->processes[15].kernel_drops, 1);
    CHECK_EQUAL(lagom_kernel_ring_drain(region, 15, &out, 1), 1);
    CHECK(memcmp(&out, &span, sizeof(span)) == 0);
}

static void *produce_many(void *unused)
{
    (void)unused;
    uint64_t many = MANY;
    for (uint64_t i = 0; i < many;) {
        i += (uint64_t)push(i);
    }
    return NULL;
}

static void many_over_two_threads(void)
{
    static struct lagom_call_record out[CAPACITY];
    pthread_t producer;
    uint64_t taken = 0, many = MANY;
    fresh();
    CHECK(pthread_create(&producer, NULL, produce_many, NULL) == 0);
    while (taken < many) {
        uint32_t got = lagom_call_ring_drain(region, 0, out, CAPACITY);
        for (uint32_t i = 0; i < got; i++) {
            check_record(&out[i], taken++);
        }
    }
    pthread_join(producer, NULL);
    CHECK_EQUAL(lagom_call_ring_drain(region, 0, out, CAPACITY), 0);
}

static void produce_for_ever(void)
{
    for (uint64_t i = 0;;) {
        i += (uint64_t)push(i);
    }
}

/* Whatever the moment of death, what is between the indices is whole and in order. */
static void a_producer_killed_midway(void)
{
    static struct lagom_call_record out[CAPACITY];
    uint64_t seed = 3;
    for (int round = 0; round < 25; round++) {
        uint64_t taken = 0;
        fresh();
        pid_t child = fork();
        if (child == 0) {
            produce_for_ever();
        }
        uint64_t enough = next_random(&seed) % 3000;
        bool killed = false;
        for (uint32_t got = 1; !killed || got > 0;) {
            got = lagom_call_ring_drain(region, 0, out, CAPACITY);
            for (uint32_t i = 0; i < got; i++) {
                check_record(&out[i], taken++);
            }
            if (!killed && taken >= enough) {
                kill_child(child);
                killed = true;
                got = 1;
            }
        }
    }
}

int main(void)
{
    RUN(empty_gives_nothing);
    RUN(order_is_kept);
    RUN(room_limits_a_drain);
    RUN(full_drops_the_new_and_counts);
    RUN(wraps_around);
    RUN(interleaved_at_random);
    RUN(garbage_indices_are_survived);
    RUN(kernel_spans_travel_too);
    RUN(many_over_two_threads);
    RUN(a_producer_killed_midway);
    return 0;
}
