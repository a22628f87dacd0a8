/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of what launching threads say: each note once and in its thread's order, or counted as lost; nobody waits. */
#include <pthread.h>
#include <sched.h>

#include "check.h"
#include "protocol/lagom_atomic.h"
#include "timeline/launches.h"

#define WRITERS 4u
#define NOTES 60000u
#define MORE_THAN_FIT 40000u

static struct lagom_note note_of(uint64_t serial)
{
    return (struct lagom_note){.kind = LAGOM_NOTE_LAUNCH, .serial = serial};
}

static uint64_t drain(void)
{
    struct lagom_note note;
    uint64_t taken = 0;
    while (lagom_note_take(&note)) {
        taken++;
    }
    return taken;
}

static void nobody_wants_them_at_first(void)
{
    CHECK(!lagom_notes_wanted());
    lagom_notes_want(true);
    CHECK(lagom_notes_wanted());
    lagom_notes_want(false);
    CHECK(!lagom_notes_wanted());
}

/* While nobody reads, the oldest stay and the newest are lost: what was taken before is in order, then there is a gap. */
static void what_finds_no_room_is_counted(void)
{
    struct lagom_note note;
    uint64_t lost = lagom_notes_lost(), written = lagom_notes_written();
    for (uint64_t i = 1; i <= MORE_THAN_FIT; i++) {
        note = note_of(i);
        lagom_note_add(&note);
    }
    lost = lagom_notes_lost() - lost;
    written = lagom_notes_written() - written;
    CHECK(lost > 0 && written > 0);
    CHECK_EQUAL(lost + written, MORE_THAN_FIT);
    for (uint64_t i = 1; i <= written; i++) {
        CHECK(lagom_note_take(&note));
        CHECK_EQUAL(note.serial, i);
    }
    CHECK(!lagom_note_take(&note));
    note = note_of(7);
    lagom_note_add(&note);
    CHECK(lagom_note_take(&note));
    CHECK_EQUAL(note.serial, 7);
}

static uint32_t started, ended;

static void *write_all(void *argument)
{
    uint64_t writer = (uint64_t)(uintptr_t)argument;
    lagom_fetch_add(&started, 1u);
    while (lagom_load_acquire(&started) < WRITERS) {
        sched_yield();
    }
    for (uint64_t i = 1; i <= NOTES; i++) {
        struct lagom_note note = note_of(writer * NOTES + i);
        lagom_note_add(&note);
    }
    lagom_fetch_add(&ended, 1u);
    return NULL;
}

static void several_threads_and_one_reader(void)
{
    pthread_t threads[WRITERS];
    uint64_t newest[WRITERS] = {0}, taken = 0, lost = lagom_notes_lost();
    uint32_t number[WRITERS] = {0};
    for (uintptr_t i = 0; i < WRITERS; i++) {
        CHECK(pthread_create(&threads[i], NULL, write_all, (void *)i) == 0);
    }
    for (bool last = false; !last;) {
        last = lagom_load_acquire(&ended) == WRITERS;
        for (struct lagom_note note; lagom_note_take(&note); taken++) {
            uint64_t writer = (note.serial - 1) / NOTES;
            CHECK(writer < WRITERS);
            CHECK(note.serial > newest[writer]); /* in the thread's order */
            CHECK(number[writer] == 0 || number[writer] == note.thread);
            newest[writer] = note.serial;
            number[writer] = note.thread;
        }
    }
    for (uint32_t i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        for (uint32_t j = 0; j < i; j++) {
            CHECK(number[i] != number[j] || number[i] == 0);
        }
    }
    CHECK_EQUAL(taken + drain() + lagom_notes_lost() - lost, WRITERS * NOTES);
}

int main(void)
{
    RUN(nobody_wants_them_at_first);
    RUN(what_finds_no_room_is_counted);
    RUN(several_threads_and_one_reader);
    return 0;
}
