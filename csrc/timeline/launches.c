/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/launches.h"

#include "protocol/lagom_atomic.h"

#define CAPACITY 16384u /* switching CUPTI on takes half a second, in which nobody reads: 30,000 a second */

/* A place is free for the writer of number n when its turn is n, and filled for the reader when it is n + 1. */
static struct place {
    uint64_t turn;
    struct lagom_note note;
} places[CAPACITY];
static uint64_t written; /* next number for a writer */
static uint64_t taken;   /* next number for the reader, its own */
static uint64_t lost;
static uint32_t wanted;
static uint32_t threads;

static uint32_t this_thread(void)
{
    static _Thread_local uint32_t number;
    if (number == 0) {
        number = lagom_fetch_add(&threads, 1u) + 1;
    }
    return number;
}

/* The turn of round k at place i is k * CAPACITY + i: zeroed memory must read as round 0, so turns are kept less i. */
static uint64_t turn_of(uint64_t number)
{
    return number - (number & (CAPACITY - 1));
}

void lagom_notes_want(bool want)
{
    lagom_store_release(&wanted, (uint32_t)want);
}

bool lagom_notes_wanted(void)
{
    return lagom_load_relaxed(&wanted) != 0;
}

void lagom_note_add(const struct lagom_note *note)
{
    uint64_t number = lagom_load_relaxed(&written);
    for (;;) {
        struct place *place = &places[number & (CAPACITY - 1)];
        uint64_t turn = lagom_load_acquire(&place->turn); /* pairs with the reader's release */
        if (turn < turn_of(number)) {
            lagom_fetch_add(&lost, 1); /* a whole round behind: the reader sleeps or is gone */
            return;
        }
        if (turn == turn_of(number) && lagom_compare_exchange(&written, number, number + 1)) {
            place->note = *note;
            place->note.thread = this_thread();
            lagom_store_release(&place->turn, turn_of(number) + 1);
            return;
        }
        number = lagom_load_relaxed(&written);
    }
}

bool lagom_note_take(struct lagom_note *note)
{
    struct place *place = &places[taken & (CAPACITY - 1)];
    if (lagom_load_acquire(&place->turn) != turn_of(taken) + 1) { /* pairs with the writer's release */
        return false;
    }
    *note = place->note;
    lagom_store_release(&place->turn, turn_of(taken) + CAPACITY);
    taken++;
    return true;
}

uint64_t lagom_notes_lost(void)
{
    return lagom_load_relaxed(&lost);
}

uint64_t lagom_notes_written(void)
{
    return lagom_load_relaxed(&written);
}
