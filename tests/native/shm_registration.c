/* SPDX-License-Identifier: Apache-2.0 */
/* shm_registration.c - communicators and slots: shared, several a process, freed, reused, never mixed up. */
#include <pthread.h>

#include "protocol/lagom_atomic.h"
#include "shm/ring.h"
#include "tests/native/check.h"

static struct lagom_mapping mapping;
static struct lagom_region *region;

static void fresh(void)
{
    if (mapping.region != NULL) {
        lagom_region_leave(&mapping, true);
    }
    mapping = join_or_die("registration");
    region = mapping.region;
}

static uint32_t enter(uint64_t comm_id, uint32_t ranks)
{
    return lagom_communicator_enter(region, comm_id, ranks, 1, 0, "");
}

static void one_id_is_one_entry(void)
{
    fresh();
    uint32_t first = lagom_communicator_enter(region, 42, 2, 1, 3, "fsdp"), second = enter(42, 2), other = enter(43, 2);
    CHECK(first == second && first != other);
    const struct lagom_communicator *entry = &region->communicators[first];
    CHECK(entry->comm_id == 42 && entry->rank_count == 2 && entry->ordinal == 3 && strcmp(entry->name, "fsdp") == 0);
    CHECK(entry->state == LAGOM_READY && entry->word == 0 && entry->entered == 2 && entry->taken == 0);
}

static void one_id_and_two_shapes_is_refused(void)
{
    fresh();
    CHECK(enter(42, 2) != UINT32_MAX && enter(42, 4) == UINT32_MAX);
    CHECK_EQUAL(lagom_communicator_enter(region, 42, 2, 2, 0, ""), UINT32_MAX);
}

static void id_zero_is_an_id(void)
{
    fresh();
    uint32_t entry = enter(0, 2);
    CHECK(entry != UINT32_MAX && enter(0, 2) == entry && enter(1, 2) == entry);
}

static void a_long_name_is_cut(void)
{
    char name[300];
    fresh();
    memset(name, 'n', sizeof(name));
    name[299] = '\0';
    uint32_t entry = lagom_communicator_enter(region, 1, 2, 1, 0, name);
    CHECK_EQUAL(strlen(region->communicators[entry].name), LAGOM_NAME_BYTES - 1);
    CHECK(lagom_communicator_enter(region, 2, 2, 1, 0, NULL) != UINT32_MAX);
}

static void two_ranks_of_one_process(void)
{
    fresh();
    uint32_t entry = enter(42, 2);
    CHECK_EQUAL(enter(42, 2), entry);
    uint32_t first = take_slot(&mapping, entry, 0), second = take_slot(&mapping, entry, LAGOM_UNKNOWN_RANK);
    CHECK(first != second && region->slots[first].rank == 0 && region->slots[second].rank == LAGOM_UNKNOWN_RANK);
    CHECK(region->slots[second].comm_id == 42 && region->slots[second].process == mapping.process);
    CHECK_EQUAL(region->communicators[entry].taken, 2);
}

static void nonsense_is_refused(void)
{
    struct lagom_mapping nothing = {.fd = -1, .process = UINT32_MAX};
    fresh();
    CHECK_EQUAL(take_slot(&mapping, UINT32_MAX, 0), UINT32_MAX);
    CHECK_EQUAL(take_slot(&nothing, 0, 0), UINT32_MAX);
    CHECK_EQUAL(lagom_communicator_enter(NULL, 1, 2, 1, 0, ""), UINT32_MAX);
    lagom_slot_release(&mapping, UINT32_MAX);
    lagom_slot_release(&nothing, 0);
}

static void a_released_slot_waits_for_its_reader(void)
{
    struct lagom_call_record record = {.call = 7}, out;
    fresh();
    uint32_t entry = enter(42, 1), slot = take_slot(&mapping, entry, 0);
    lagom_call_ring_push(region, slot, &record);
    lagom_slot_release(&mapping, slot);
    CHECK_EQUAL(region->slots[slot].state, LAGOM_GONE);
    CHECK_EQUAL(lagom_region_sweep(&mapping), 0);
    CHECK_EQUAL(lagom_call_ring_drain(region, slot, &out, 1), 1);
    CHECK_EQUAL(lagom_region_sweep(&mapping), 2); /* the slot and its communicator */
    CHECK(region->slots[slot].state == LAGOM_FREE && region->communicators[entry].comm_id == 0);
}

/* A slot that is being filled may still name its former owner, or 0, since it is cleared first. */
static void who_leaves_does_not_touch_what_another_fills(void)
{
    struct lagom_mapping controller;
    fresh();
    CHECK_EQUAL(lagom_region_control(&controller, "registration", false, LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_OK);
    uint32_t mine = take_slot(&mapping, enter(42, 2), 0);
    struct lagom_slot *filled = &region->slots[mine + 1];
    filled->process = mapping.process;
    filled->state = LAGOM_CLAIMED;
    lagom_region_leave(&mapping, false);
    CHECK_EQUAL(controller.region->slots[mine].state, LAGOM_GONE);
    CHECK_EQUAL(filled->state, LAGOM_CLAIMED);
    lagom_region_leave(&controller, true);
}

/* Between enter and take the entry is spoken for, however empty it looks. */
static void an_entered_communicator_is_kept(void)
{
    fresh();
    uint32_t entry = enter(42, 2);
    CHECK_EQUAL(enter(42, 2), entry);
    uint32_t slot = take_slot(&mapping, entry, 0);
    lagom_slot_release(&mapping, slot);
    lagom_region_sweep(&mapping);
    CHECK_EQUAL(region->communicators[entry].comm_id, 42);
    slot = take_slot(&mapping, entry, 1);
    CHECK_EQUAL(region->slots[slot].comm_id, 42);
    lagom_slot_release(&mapping, slot);
    lagom_region_sweep(&mapping);
    CHECK_EQUAL(region->communicators[entry].comm_id, 0);
}

static void a_reused_entry_starts_as_stock(void)
{
    fresh();
    uint32_t entry = enter(42, 1), slot = take_slot(&mapping, entry, 0);
    region->communicators[entry].word = LAGOM_WORD(LAGOM_COMMITTED, 9);
    region->communicators[entry].publisher = 3;
    region->communicators[entry].capture = 1;
    region->slots[slot].calls = 100;
    region->slots[slot].ack_epoch = 9;
    lagom_slot_release(&mapping, slot);
    lagom_region_sweep(&mapping);
    CHECK_EQUAL(enter(43, 1), entry);
    CHECK_EQUAL(take_slot(&mapping, entry, 0), slot);
    const struct lagom_communicator *again = &region->communicators[entry];
    CHECK(again->word == 0 && again->publisher == 0 && again->capture == 0);
    CHECK(region->slots[slot].calls == 0 && region->slots[slot].ack_epoch == 0);
    CHECK_EQUAL(region->slots[slot].history_hash, LAGOM_HISTORY_SEED);
}

/* Without a controller nobody drains or sweeps; a full table helps itself. */
static void ten_thousand_without_a_controller(void)
{
    struct lagom_call_record record = {0};
    fresh();
    for (uint64_t id = 1; id <= 10000; id++) {
        uint32_t entry = enter(id, 1), slot = take_slot(&mapping, entry, 0);
        CHECK(entry != UINT32_MAX && slot != UINT32_MAX);
        CHECK_EQUAL(region->slots[slot].comm_id, id);
        lagom_call_ring_push(region, slot, &record);
        lagom_slot_release(&mapping, slot);
    }
}

static void full_tables_say_so(void)
{
    uint32_t slots = 0;
    fresh();
    for (uint64_t id = 1; id <= LAGOM_MAX_COMMUNICATORS; id++) {
        uint32_t entry = enter(id, 2);
        CHECK(entry != UINT32_MAX);
        slots += take_slot(&mapping, entry, 0) != UINT32_MAX;
    }
    CHECK_EQUAL(slots, LAGOM_MAX_COMMUNICATORS);
    CHECK_EQUAL(enter(1000, 2), UINT32_MAX);
    for (uint64_t id = 1; slots < LAGOM_MAX_SLOTS; id++, slots++) {
        CHECK(take_slot(&mapping, enter(id, 2), 1) != UINT32_MAX);
    }
    uint64_t refused = region->header.places_refused;
    uint32_t entry = enter(LAGOM_MAX_COMMUNICATORS, 2);
    CHECK_EQUAL(take_slot(&mapping, entry, 1), UINT32_MAX);
    CHECK_EQUAL(region->communicators[entry].entered, region->communicators[entry].taken);
    CHECK_EQUAL(region->header.places_refused, refused + 1);
}

/* Communicators that span nodes are never tuned, whatever their number and however early they come. */
static void spanning_nodes_leaves_room(void)
{
    uint32_t taken = 0;
    fresh();
    for (uint32_t i = 0; i < 2 * LAGOM_MAX_COMMUNICATORS; i++) {
        uint32_t entry = lagom_communicator_enter(region, 1 + i / 2, 1024, 128, 0, "");
        taken += entry != UINT32_MAX && take_slot(&mapping, entry, i % 2) != UINT32_MAX;
    }
    CHECK_EQUAL(taken, LAGOM_MAX_SLOTS - LAGOM_ONE_NODE_SLOTS);
    uint64_t refused = region->header.places_refused;
    CHECK_EQUAL(refused, 2 * LAGOM_MAX_COMMUNICATORS - taken);
    for (uint32_t i = 0; i < LAGOM_ONE_NODE_SLOTS; i++) {
        uint32_t entry = enter(1000 + i % LAGOM_ONE_NODE_COMMUNICATORS, 8);
        uint32_t slot = take_slot(&mapping, entry, i / LAGOM_ONE_NODE_COMMUNICATORS);
        CHECK(entry < LAGOM_MAX_PLANS && slot != UINT32_MAX && region->slots[slot].call_ring != 0);
    }
    CHECK_EQUAL(region->header.places_refused, refused);
    bool used[LAGOM_MAX_CALL_RINGS + 1] = {false};
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        uint32_t ring = region->slots[i].call_ring;
        CHECK(ring == 0 || !used[ring]); /* nobody shares one */
        used[ring] = true;
    }
    CHECK_EQUAL(memchr(used + 1, false, LAGOM_MAX_CALL_RINGS) == NULL, true); /* and the others keep what is left */
}

/* Nor do they take a plan as long as there are places without one. */
static void spanning_nodes_leaves_the_plans(void)
{
    fresh();
    for (uint64_t id = 1; id <= LAGOM_MAX_COMMUNICATORS - LAGOM_MAX_PLANS; id++) {
        CHECK(lagom_communicator_enter(region, id, 1024, 128, 0, "") >= LAGOM_MAX_PLANS);
    }
    CHECK_EQUAL(lagom_communicator_enter(region, 1000, 1024, 128, 0, ""), LAGOM_ONE_NODE_COMMUNICATORS);
}

/* More communicators of one node than can be tuned: each has a place, those without a plan or a ring are counted. */
static void what_cannot_be_tuned_is_counted(void)
{
    struct lagom_call_record record = {0};
    fresh();
    for (uint64_t id = 1; id <= LAGOM_MAX_PLANS; id++) {
        CHECK_EQUAL(enter(id, 8), id - 1);
    }
    CHECK_EQUAL(region->header.places_refused, 0);
    CHECK_EQUAL(enter(1000, 8), LAGOM_MAX_PLANS);
    CHECK_EQUAL(region->header.places_refused, 1);
    for (uint32_t i = 0; i < LAGOM_MAX_CALL_RINGS; i++) {
        CHECK_EQUAL(take_slot(&mapping, 0, i), i);
    }
    CHECK_EQUAL(region->header.places_refused, 1);
    uint32_t without = take_slot(&mapping, 0, LAGOM_MAX_CALL_RINGS);
    CHECK(without != UINT32_MAX && region->slots[without].call_ring == 0);
    CHECK_EQUAL(region->header.places_refused, 2);
    CHECK_EQUAL(lagom_call_ring_push(region, without, &record), 0);
}

/* There are more slots than rings: what a finalized communicator has left unread gives way to one that can be tuned. */
static void full_rings_are_swept(void)
{
    struct lagom_call_record record = {0};
    fresh();
    uint32_t former = enter(1, 8);
    for (uint32_t i = 0; i < LAGOM_MAX_CALL_RINGS; i++) {
        CHECK(lagom_call_ring_push(region, take_slot(&mapping, former, i), &record));
    }
    for (uint32_t i = 0; i < LAGOM_MAX_CALL_RINGS; i++) {
        lagom_slot_release(&mapping, i);
    }
    uint32_t slot = take_slot(&mapping, enter(2, 8), 0);
    CHECK(slot != UINT32_MAX && region->slots[slot].call_ring != 0);
    CHECK_EQUAL(region->header.places_refused, 0);
}

/* Before one is taken from a communicator that spans nodes. */
static void a_ring_is_swept_before_one_is_taken_over(void)
{
    struct lagom_call_record record = {0};
    fresh();
    uint32_t spanning = take_slot(&mapping, lagom_communicator_enter(region, 1, 1024, 128, 0, ""), 0);
    uint32_t ring = region->slots[spanning].call_ring, last = UINT32_MAX;
    CHECK(ring != 0);
    for (uint32_t i = 1; i < LAGOM_MAX_CALL_RINGS; i++) {
        last = take_slot(&mapping, enter(2, 8), i);
    }
    CHECK(lagom_call_ring_push(region, last, &record));
    uint32_t freed = region->slots[last].call_ring;
    lagom_slot_release(&mapping, last);
    CHECK_EQUAL(region->slots[take_slot(&mapping, enter(3, 8), 0)].call_ring, freed);
    CHECK_EQUAL(region->slots[spanning].call_ring, ring);
}

static void join_and_take(void)
{
    struct lagom_mapping mine = join_or_die("registration");
    uint32_t entry = lagom_communicator_enter(mine.region, 77, 2, 1, 0, "");
    CHECK(take_slot(&mine, entry, 1) != UINT32_MAX);
}

static void the_dead_are_swept(void)
{
    fresh();
    pid_t child = child_that_stays(join_and_take);
    uint32_t entry = enter(77, 2), slot = take_slot(&mapping, entry, 0);
    CHECK_EQUAL(lagom_region_sweep(&mapping), 0);
    kill_child(child);
    CHECK_EQUAL(lagom_region_sweep(&mapping), 2); /* its process and its slot; the communicator is still ours */
    CHECK(region->communicators[entry].comm_id == 77 && region->slots[slot].state == LAGOM_READY);
    CHECK_EQUAL(region->processes[1].state, LAGOM_FREE);
}

static void enter_only(void)
{
    struct lagom_mapping mine = join_or_die("registration");
    CHECK(lagom_communicator_enter(mine.region, 78, 2, 1, 0, "") != UINT32_MAX);
}

static void one_that_died_before_its_slot_is_no_leak_for_ever(void)
{
    fresh();
    kill_child(child_that_stays(enter_only));
    struct lagom_mapping controller;
    CHECK_EQUAL(lagom_region_control(&controller, "registration", false, LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_OK);
    lagom_region_leave(&mapping, false);
    lagom_region_sweep(&controller); /* no rank is left at all */
    CHECK_EQUAL(controller.region->communicators[0].comm_id, 0);
    lagom_region_leave(&controller, true);
}

/* A dead process's entry is taken over with nothing of its former owner's left alive. */
static void a_dead_entry_is_taken_over(void)
{
    pid_t children[LAGOM_MAX_PROCESSES];
    struct lagom_mapping controller;
    CHECK_EQUAL(lagom_region_control(&controller, "registration", true, LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_OK);
    for (uint32_t i = 0; i < LAGOM_MAX_PROCESSES; i++) {
        children[i] = child_that_stays(join_and_take);
    }
    struct lagom_mapping late;
    CHECK_EQUAL(lagom_region_join(&late, "registration", LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_FULL);
    kill_child(children[3]);
    late = join_or_die("registration");
    CHECK_EQUAL(late.process, 3);
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        CHECK(late.region->slots[i].state == LAGOM_FREE || late.region->slots[i].process != 3);
    }
    lagom_region_leave(&late, false);
    for (uint32_t i = 0; i < LAGOM_MAX_PROCESSES; i++) {
        if (i != 3) {
            kill_child(children[i]);
        }
    }
    lagom_region_leave(&controller, true);
}

static void *take_and_release(void *unused)
{
    (void)unused;
    for (int i = 0; i < 500; i++) {
        uint32_t entry = enter(500, 4), slot = take_slot(&mapping, entry, 0);
        CHECK(slot != UINT32_MAX && region->slots[slot].comm_id == 500);
        lagom_slot_release(&mapping, slot);
        if (i % 16 == 0) {
            lagom_region_sweep(&mapping);
        }
    }
    return NULL;
}

static void several_threads(void)
{
    pthread_t threads[4];
    fresh();
    for (int i = 0; i < 4; i++) {
        CHECK(pthread_create(&threads[i], NULL, take_and_release, NULL) == 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
}

int main(void)
{
    if (getenv("LAGOM_SHM_DIR") == NULL) {
        printf("LAGOM_SHM_DIR must name a folder for this test\n");
        return 77;
    }
    RUN(one_id_is_one_entry);
    RUN(one_id_and_two_shapes_is_refused);
    RUN(id_zero_is_an_id);
    RUN(a_long_name_is_cut);
    RUN(two_ranks_of_one_process);
    RUN(nonsense_is_refused);
    RUN(a_released_slot_waits_for_its_reader);
    RUN(who_leaves_does_not_touch_what_another_fills);
    RUN(an_entered_communicator_is_kept);
    RUN(a_reused_entry_starts_as_stock);
    RUN(ten_thousand_without_a_controller);
    RUN(full_tables_say_so);
    RUN(spanning_nodes_leaves_room);
    RUN(spanning_nodes_leaves_the_plans);
    RUN(what_cannot_be_tuned_is_counted);
    RUN(full_rings_are_swept);
    RUN(a_ring_is_swept_before_one_is_taken_over);
    RUN(the_dead_are_swept);
    RUN(one_that_died_before_its_slot_is_no_leak_for_ever);
    RUN(a_dead_entry_is_taken_over);
    RUN(several_threads);
    if (mapping.region != NULL) {
        lagom_region_leave(&mapping, true);
    }
    return 0;
}
