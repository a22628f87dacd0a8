#include "tuner_plugin/measured.h"

#include <stddef.h>
#include <string.h>

#include "protocol/lagom_atomic.h"

#define TRIES 16u                             /* places looked at before giving up */
#define GIVEN_UP (4u * LAGOM_MEASURED_PLACES) /* counted since: then nobody waits for this one any more */

/* A handle: what it names | place | generation. Never NULL. */
enum handle_kind { COLLECTIVE = 1, CHANNEL = 2 };
#define PLACE_BITS 10u
_Static_assert(LAGOM_MEASURED_PLACES == 1u << PLACE_BITS, "a handle holds a place");
_Static_assert(sizeof(void *) == sizeof(uint64_t), "a handle holds a generation");
#define WORDS (sizeof(struct lagom_measured) / sizeof(uint64_t))

struct place {
    uint64_t state; /* generation | busy (bit 0) */
    uint64_t begun; /* the count when this one did */
    uint64_t start_ns;
    uint64_t stop_ns;
    uint32_t stopped;
    uint32_t channels;
    uint32_t slot;
    uint64_t of[WORDS]; /* by words: a place given up may be filled anew under a late event's eyes */
};

static struct place places[LAGOM_MEASURED_PLACES];
static uint64_t begun_count; /* and places that were passed over */

static void *handle_of(enum handle_kind kind, uint64_t place, uint64_t state)
{
    return (void *)(uintptr_t)((state >> 1) << (PLACE_BITS + 2) | place << 2 | (uint64_t)kind);
}

/* The place a handle names, if it still is that collective's. */
static struct place *place_of(const void *handle, enum handle_kind kind)
{
    uint64_t bits = (uintptr_t)handle;
    struct place *place = &places[bits >> 2 & (LAGOM_MEASURED_PLACES - 1)];
    uint64_t busy = lagom_load_acquire(&place->state); /* pairs with begin's release of the filled place */
    bool same = (bits & 3u) == kind && (busy & 1u) != 0 && handle_of(kind, (uint64_t)(place - places), busy) == handle;
    return same ? place : NULL;
}

static void write_of(struct place *place, const struct lagom_measured *of)
{
    uint64_t words[WORDS];
    memcpy(words, of, sizeof(words));
    for (size_t i = 0; i < WORDS; i++) {
        lagom_store_relaxed(&place->of[i], words[i]);
    }
}

static void read_of(const struct place *place, struct lagom_measured *of)
{
    uint64_t words[WORDS];
    for (size_t i = 0; i < WORDS; i++) {
        words[i] = lagom_load_relaxed(&place->of[i]);
    }
    memcpy(of, words, sizeof(words));
}

/* The place's new state, 0 = it is somebody else's. Signed: whoever has it may have begun after us. */
static uint64_t claim(struct place *place, uint64_t now)
{
    uint64_t state = lagom_load_acquire(&place->state);
    int64_t since = (int64_t)(now - lagom_load_relaxed(&place->begun));
    if ((state & 1u) != 0 && since < (int64_t)GIVEN_UP) {
        return 0;
    }
    /* Odd to odd or even to odd: always another generation, so the old one's handles are void at once. */
    uint64_t busy = ((state >> 1) + 1) << 1 | 1u;
    return lagom_compare_exchange(&place->state, state, busy) ? busy : 0;
}

void *lagom_measured_begin(const struct lagom_measured *of)
{
    uint64_t now = lagom_fetch_add(&begun_count, 1);
    for (uint64_t i = 0; i < TRIES; i++) {
        uint64_t at = (now + i) & (LAGOM_MEASURED_PLACES - 1);
        struct place *place = &places[at];
        uint64_t state = claim(place, now);
        if (state != 0) {
            if (i > 0) { /* the next one looks behind it: one that never ends must not push all others on for ever */
                lagom_fetch_add(&begun_count, i);
            }
            lagom_store_relaxed(&place->begun, now);
            lagom_store_relaxed(&place->start_ns, UINT64_MAX);
            lagom_store_relaxed(&place->stop_ns, 0);
            lagom_store_relaxed(&place->stopped, 0u);
            lagom_store_relaxed(&place->channels, (uint32_t)of->span.channels);
            lagom_store_relaxed(&place->slot, of->span.slot);
            write_of(place, of);
            /* The same again: whoever reads it sees the filled place. Unless it was taken for given up meanwhile. */
            return lagom_compare_exchange(&place->state, state, state) ? handle_of(COLLECTIVE, at, state) : NULL;
        }
    }
    return NULL;
}

static void lower_to(uint64_t *smallest, uint64_t value)
{
    uint64_t seen = lagom_load_relaxed(smallest);
    while (value < seen &&
           !__atomic_compare_exchange_n(smallest, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static void raise_to(uint64_t *largest, uint64_t value)
{
    uint64_t seen = lagom_load_relaxed(largest);
    while (value > seen &&
           !__atomic_compare_exchange_n(largest, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

void *lagom_measured_channel_started(void *collective, uint64_t gpu_ns)
{
    struct place *place = place_of(collective, COLLECTIVE);
    if (place == NULL) {
        return NULL;
    }
    lower_to(&place->start_ns, gpu_ns);
    return (void *)(((uintptr_t)collective & ~(uintptr_t)3u) | CHANNEL);
}

/* false = it was given up and is somebody else's by now: what was read is worth nothing. */
static bool give_back(struct place *place, const void *channel)
{
    uint64_t busy = lagom_load_relaxed(&place->state); /* nothing is read behind it: the exchange decides */
    bool same = (busy & 1u) != 0 && handle_of(CHANNEL, (uint64_t)(place - places), busy) == channel;
    return same && lagom_compare_exchange(&place->state, busy, busy & ~(uint64_t)1u); /* pairs with claim */
}

bool lagom_measured_channel_stopped(void *channel, uint64_t gpu_ns, struct lagom_measured *of)
{
    struct place *place = place_of(channel, CHANNEL);
    if (place == NULL) {
        return false;
    }
    raise_to(&place->stop_ns, gpu_ns);
    uint32_t channels = lagom_load_relaxed(&place->channels);
    if (lagom_fetch_add(&place->stopped, 1u) + 1 != channels) { /* acquire: every channel's times */
        return false;
    }
    read_of(place, of);
    of->span.start_ns = lagom_load_relaxed(&place->start_ns);
    of->span.end_ns = lagom_load_relaxed(&place->stop_ns);
    return give_back(place, channel);
}

uint32_t lagom_measured_slot(const void *handle)
{
    const struct place *place = place_of(handle, (enum handle_kind)((uintptr_t)handle & 3u));
    return place == NULL ? UINT32_MAX : lagom_load_relaxed(&place->slot);
}
