/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/gpu_times.h"

#include "protocol/lagom_atomic.h"
#include "protocol/lagom_protocol.h"

#define RECENT_NS 250000000u /* the least delay of up to three of these: clocks led by NTP drift apart by 0.4 ms at most */
#define TOLERANCE_NS 1500000 /* that, and a GPU's clock that counts by a millisecond */
#define NONE INT64_MAX
#define LONG_AGO_NS 60000000000u
#define TOO_OFTEN 3u /* impossible kernels, each within LONG_AGO_NS of the one before: no slip of a slot's. A count that is
                        off shows once a step at least, be a step of ten kernels or of a thousand */

/* Written by the one thread that delivers a communicator's events; atomic, since its slot may be another one's next. */
struct times {
    uint64_t since;   /* when `current` began */
    int64_t current;  /* least delay (host - GPU) since then; NONE = no event */
    int64_t previous; /* and in the span before */
    uint64_t latest;  /* event */
    uint64_t doubted; /* when the latest kernel was impossible */
    uint32_t doubts;
};

static struct times of_slot[LAGOM_MAX_SLOTS];

static struct times *times_of(uint32_t slot)
{
    return slot < LAGOM_MAX_SLOTS ? &of_slot[slot] : NULL;
}

void lagom_gpu_times_forget(uint32_t slot)
{
    struct times *times = times_of(slot);
    if (times != NULL) {
        lagom_store_relaxed(&times->since, (uint64_t)0);
        lagom_store_relaxed(&times->current, (int64_t)NONE);
        lagom_store_relaxed(&times->previous, (int64_t)NONE);
        lagom_store_relaxed(&times->doubts, 0u);
    }
}

static void begin_anew_if_old(struct times *times, uint64_t now_ns)
{
    uint64_t age = now_ns - lagom_load_relaxed(&times->since);
    if (age >= RECENT_NS) {
        int64_t current = lagom_load_relaxed(&times->current);
        lagom_store_relaxed(&times->previous, age < 2 * RECENT_NS ? current : (int64_t)NONE);
        lagom_store_relaxed(&times->current, (int64_t)NONE);
        lagom_store_relaxed(&times->since, now_ns);
    }
}

void lagom_gpu_times_arrived(uint32_t slot, uint64_t gpu_ns, uint64_t now_ns)
{
    struct times *times = times_of(slot);
    if (times == NULL) {
        return;
    }
    begin_anew_if_old(times, now_ns);
    lagom_store_relaxed(&times->latest, now_ns);
    int64_t delay = (int64_t)(now_ns - gpu_ns);
    if (delay < lagom_load_relaxed(&times->current)) {
        lagom_store_relaxed(&times->current, delay);
    }
}

static bool is_possible(struct times *times, uint64_t start_ns, uint64_t called_ns)
{
    int64_t current = lagom_load_relaxed(&times->current);
    int64_t previous = lagom_load_relaxed(&times->previous);
    int64_t least = current < previous ? current : previous;
    if (least == NONE || called_ns == 0) {
        return true;
    }
    return (int64_t)(start_ns + (uint64_t)least - called_ns) >= -TOLERANCE_NS;
}

static void doubt(struct times *times)
{
    uint64_t now = lagom_load_relaxed(&times->latest);
    bool anew = now - lagom_load_relaxed(&times->doubted) > LONG_AGO_NS;
    lagom_store_relaxed(&times->doubted, now);
    lagom_store_relaxed(&times->doubts, anew ? 1u : lagom_load_relaxed(&times->doubts) + 1u);
}

bool lagom_gpu_times_hold(uint32_t slot, uint64_t start_ns, uint64_t called_ns)
{
    struct times *times = times_of(slot);
    if (times == NULL || lagom_gpu_times_refuted(slot)) {
        return false;
    }
    bool possible = is_possible(times, start_ns, called_ns);
    if (!possible) {
        doubt(times);
    }
    return possible;
}

bool lagom_gpu_times_refuted(uint32_t slot)
{
    struct times *times = times_of(slot);
    return times != NULL && lagom_load_relaxed(&times->doubts) >= TOO_OFTEN;
}
