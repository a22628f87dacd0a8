/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/measured.h"

#include <stddef.h>
#include <string.h>

#include "protocol/lagom_atomic.h"

#define TRIES 16u                              /* entries looked at before giving up */
#define GIVEN_UP (4u * LAGOM_MEASURED_ENTRIES) /* counted since: then nobody waits for this one any more */

/* A handle: what it names | entry | generation. Never NULL. */
enum handle_kind { COLLECTIVE = 1, CHANNEL = 2 };
#define ENTRY_BITS 10u
_Static_assert(LAGOM_MEASURED_ENTRIES == 1u << ENTRY_BITS, "a handle holds an entry");
_Static_assert(sizeof(void *) == sizeof(uint64_t), "a handle holds a generation");
#define WORDS (sizeof(struct lagom_measured) / sizeof(uint64_t))

struct measured_entry {
    uint64_t state; /* generation | busy (bit 0) */
    uint64_t begun; /* the count when this one did */
    uint64_t start_ns;
    uint64_t stop_ns;
    uint32_t stopped;
    uint32_t channels;
    uint32_t slot;
    uint64_t of[WORDS]; /* by words: an entry that was given up may be refilled while a late event reads it */
};

static struct measured_entry entries[LAGOM_MEASURED_ENTRIES];
static uint64_t begun_count; /* and entries that were passed over */

static void *handle_of(enum handle_kind kind, uint64_t entry, uint64_t state)
{
    return (void *)(uintptr_t)((state >> 1) << (ENTRY_BITS + 2) | entry << 2 | (uint64_t)kind);
}

/* The entry a handle names, if it still is that collective's. */
static struct measured_entry *entry_of(const void *handle, enum handle_kind kind)
{
    uint64_t bits = (uintptr_t)handle;
    struct measured_entry *entry = &entries[bits >> 2 & (LAGOM_MEASURED_ENTRIES - 1)];
    uint64_t busy = lagom_load_acquire(&entry->state); /* pairs with begin's release of the filled entry */
    bool same = (bits & 3u) == kind && (busy & 1u) != 0 && handle_of(kind, (uint64_t)(entry - entries), busy) == handle;
    return same ? entry : NULL;
}

static void write_of(struct measured_entry *entry, const struct lagom_measured *of)
{
    uint64_t words[WORDS];
    memcpy(words, of, sizeof(words));
    for (size_t i = 0; i < WORDS; i++) {
        lagom_store_relaxed(&entry->of[i], words[i]);
    }
}

static void read_of(const struct measured_entry *entry, struct lagom_measured *of)
{
    uint64_t words[WORDS];
    for (size_t i = 0; i < WORDS; i++) {
        words[i] = lagom_load_relaxed(&entry->of[i]);
    }
    memcpy(of, words, sizeof(words));
}

/* The entry's new state, 0 = it is somebody else's. Signed: whoever has it may have begun after us. */
static uint64_t claim(struct measured_entry *entry, uint64_t now)
{
    uint64_t state = lagom_load_acquire(&entry->state);
    int64_t since = (int64_t)(now - lagom_load_relaxed(&entry->begun));
    if ((state & 1u) != 0 && since < (int64_t)GIVEN_UP) {
        return 0;
    }
    /* Odd to odd or even to odd: always another generation, so the old one's handles are void at once. */
    uint64_t busy = ((state >> 1) + 1) << 1 | 1u;
    return lagom_compare_exchange(&entry->state, state, busy) ? busy : 0;
}

void *lagom_measured_begin(const struct lagom_measured *of)
{
    uint64_t now = lagom_fetch_add(&begun_count, 1);
    for (uint64_t i = 0; i < TRIES; i++) {
        uint64_t at = (now + i) & (LAGOM_MEASURED_ENTRIES - 1);
        struct measured_entry *entry = &entries[at];
        uint64_t state = claim(entry, now);
        if (state != 0) {
            if (i > 0) { /* the next one looks behind it: one that never ends must not push all others on for ever */
                lagom_fetch_add(&begun_count, i);
            }
            lagom_store_relaxed(&entry->begun, now);
            lagom_store_relaxed(&entry->start_ns, UINT64_MAX);
            lagom_store_relaxed(&entry->stop_ns, 0);
            lagom_store_relaxed(&entry->stopped, 0u);
            lagom_store_relaxed(&entry->channels, (uint32_t)of->span.channels);
            lagom_store_relaxed(&entry->slot, of->span.slot);
            write_of(entry, of);
            /* The same again: whoever reads it sees the filled entry. Unless it was taken for given up meanwhile. */
            return lagom_compare_exchange(&entry->state, state, state) ? handle_of(COLLECTIVE, at, state) : NULL;
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
    struct measured_entry *entry = entry_of(collective, COLLECTIVE);
    if (entry == NULL) {
        return NULL;
    }
    lower_to(&entry->start_ns, gpu_ns);
    return (void *)(((uintptr_t)collective & ~(uintptr_t)3u) | CHANNEL);
}

/* false = it was given up and is somebody else's by now: what was read is worth nothing. */
static bool give_back(struct measured_entry *entry, const void *channel)
{
    uint64_t busy = lagom_load_relaxed(&entry->state); /* nothing is read behind it: the exchange decides */
    bool same = (busy & 1u) != 0 && handle_of(CHANNEL, (uint64_t)(entry - entries), busy) == channel;
    return same && lagom_compare_exchange(&entry->state, busy, busy & ~(uint64_t)1u); /* pairs with claim */
}

bool lagom_measured_channel_stopped(void *channel, uint64_t gpu_ns, struct lagom_measured *of)
{
    struct measured_entry *entry = entry_of(channel, CHANNEL);
    if (entry == NULL) {
        return false;
    }
    raise_to(&entry->stop_ns, gpu_ns);
    uint32_t channels = lagom_load_relaxed(&entry->channels);
    if (lagom_fetch_add(&entry->stopped, 1u) + 1 != channels) { /* acquire: every channel's times */
        return false;
    }
    read_of(entry, of);
    of->span.start_ns = lagom_load_relaxed(&entry->start_ns);
    of->span.end_ns = lagom_load_relaxed(&entry->stop_ns);
    return give_back(entry, channel);
}

uint32_t lagom_measured_slot(const void *handle)
{
    const struct measured_entry *entry = entry_of(handle, (enum handle_kind)((uintptr_t)handle & 3u));
    return entry == NULL ? UINT32_MAX : lagom_load_relaxed(&entry->slot);
}
