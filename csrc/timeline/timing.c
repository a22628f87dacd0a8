/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/timing.h"

#include <stddef.h>

#define APART_NS 100000  /* of clocks that are read together */
#define DRIFT 2000       /* one part in so many: the most that a clock led by NTP is slewed by */
#define FACTOR 3         /* more than so much of what is allowed, and it is no imprecision any more */
#define COARSE_NS 2000000
#define LENGTH_PARTS 100 /* lengths are alike within one part in so many, and APART_NS */

static int64_t absolute(int64_t value)
{
    return value < 0 ? -value : value;
}

static int64_t larger(int64_t one, int64_t other)
{
    return one > other ? one : other;
}

static int64_t difference(uint64_t later, uint64_t earlier)
{
    return (int64_t)(later - earlier);
}

/* Beyond one part in LENGTH_PARTS. */
static int64_t lengths_apart(uint64_t start_ns, uint64_t end_ns, const struct lagom_ran *ran)
{
    int64_t length = difference(end_ns, start_ns);
    return absolute(length - difference(ran->end_ns, ran->start_ns)) - length / LENGTH_PARTS;
}

static int64_t allowed_with(uint64_t tick_ns)
{
    return APART_NS + 2 * (int64_t)tick_ns; /* a start and an end, each a tick off */
}

/* ---- Pairs ------------------------------------------------------------------------------------------------------ */

static struct lagom_slot_timing *of_slot(struct lagom_timing *timing, uint32_t slot)
{
    for (uint32_t i = 0; i < LAGOM_TIMED_SLOTS; i++) {
        if (timing->of[i].pairs == 0 || timing->of[i].slot == slot) {
            return &timing->of[i];
        }
    }
    return NULL;
}

void lagom_timing_add(struct lagom_timing *timing, uint64_t start_ns, uint64_t end_ns, uint32_t slot,
                      const struct lagom_ran *ran)
{
    struct lagom_slot_timing *one = of_slot(timing, slot);
    if (one == NULL) {
        return;
    }
    int64_t apart = difference(start_ns, ran->start_ns);
    if (one->pairs == 0) {
        *one = (struct lagom_slot_timing){.slot = slot, .least = apart, .most = apart, .last = apart,
                                          .first_ns = start_ns, .last_ns = start_ns};
    }
    one->pairs++;
    int64_t drift = absolute(difference(start_ns, one->last_ns)) / DRIFT;
    one->steps_apart = larger(one->steps_apart, absolute(apart - one->last) - drift);
    one->lengths_apart = larger(one->lengths_apart, lengths_apart(start_ns, end_ns, ran));
    one->least = apart < one->least ? apart : one->least;
    one->most = larger(one->most, apart);
    one->last = apart;
    one->first_ns = start_ns < one->first_ns ? start_ns : one->first_ns;
    one->last_ns = start_ns > one->last_ns ? start_ns : one->last_ns;
}

static enum lagom_timing_verdict verdict_of(const struct lagom_slot_timing *one, uint64_t tick_ns)
{
    int64_t spread = one->most - one->least - difference(one->last_ns, one->first_ns) / DRIFT;
    int64_t apart = larger(larger(spread, one->steps_apart), one->lengths_apart);
    if (apart > FACTOR * allowed_with(tick_ns)) {
        return LAGOM_TIMING_UNLIKE;
    }
    bool enough = one->pairs >= LAGOM_TIMING_PAIRS && apart <= allowed_with(tick_ns);
    return enough ? LAGOM_TIMING_ALIKE : LAGOM_TIMING_UNKNOWN;
}

enum lagom_timing_verdict lagom_timing_verdict(const struct lagom_timing *timing, uint64_t tick_ns)
{
    enum lagom_timing_verdict all = LAGOM_TIMING_UNKNOWN;
    for (uint32_t i = 0; tick_ns <= COARSE_NS && i < LAGOM_TIMED_SLOTS; i++) {
        enum lagom_timing_verdict one = verdict_of(&timing->of[i], tick_ns);
        all = one > all ? one : all;
    }
    return all;
}

uint32_t lagom_timing_pairs(const struct lagom_timing *timing)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < LAGOM_TIMED_SLOTS; i++) {
        most = timing->of[i].pairs > most ? timing->of[i].pairs : most;
    }
    return most;
}

/* ---- Clocks ----------------------------------------------------------------------------------------------------- */

/* Its own place, or a free one; where there is none, that of the one seen longest ago. */
static struct lagom_apart *place_for(struct lagom_clocks *clocks, uint32_t slot)
{
    struct lagom_apart *place = &clocks->of[0];
    for (uint32_t i = 0; i < LAGOM_TIMED_SLOTS; i++) {
        struct lagom_apart *clock = &clocks->of[i];
        if (clock->at_ns != 0 && clock->slot == slot) {
            return clock;
        }
        place = clock->at_ns < place->at_ns ? clock : place;
    }
    return place;
}

void lagom_clocks_learn(struct lagom_clocks *clocks, const struct lagom_timing *timing, uint32_t slot,
                        uint64_t tick_ns)
{
    for (uint32_t i = 0; tick_ns <= COARSE_NS && i < LAGOM_TIMED_SLOTS; i++) {
        const struct lagom_slot_timing *one = &timing->of[i];
        if (one->slot == slot && verdict_of(one, tick_ns) == LAGOM_TIMING_ALIKE) {
            *place_for(clocks, slot) = (struct lagom_apart){.apart_ns = one->last, .at_ns = one->last_ns, .slot = slot};
        }
    }
}

bool lagom_clocks_allow(const struct lagom_clocks *clocks, uint32_t slot, uint64_t start_ns, uint64_t end_ns,
                        const struct lagom_ran *ran, uint64_t tick_ns)
{
    for (uint32_t i = 0; i < LAGOM_TIMED_SLOTS; i++) {
        const struct lagom_apart *clock = &clocks->of[i];
        if (clock->at_ns != 0 && clock->slot == slot) {
            int64_t drift = absolute(difference(start_ns, clock->at_ns)) / DRIFT;
            int64_t off = absolute(difference(start_ns, ran->start_ns) - clock->apart_ns) - drift;
            return larger(off, lengths_apart(start_ns, end_ns, ran)) <= allowed_with(tick_ns);
        }
    }
    return false;
}

/* The greatest common divisor: a few dozen times, and it is the tick. */
uint64_t lagom_timing_tick(uint64_t tick_ns, uint64_t shown_ns)
{
    while (shown_ns != 0) {
        uint64_t rest = tick_ns % shown_ns;
        tick_ns = shown_ns;
        shown_ns = rest;
    }
    return tick_ns;
}
