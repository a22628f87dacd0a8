#include "timeline/timing.h"

#define APART_NS 100000  /* of clocks that are read together */
#define DRIFT 10000      /* one part in so many: two clocks, one of them led by NTP */
#define FACTOR 3         /* more than so much of what is allowed, and it is no imprecision any more */
#define COARSE_NS 2000000
#define LENGTH_PARTS 100 /* lengths are alike within one part in so many, and APART_NS */

static int64_t absolute(int64_t value)
{
    return value < 0 ? -value : value;
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

static void begin(struct lagom_timing *timing, uint64_t start_ns, uint32_t slot, int64_t apart)
{
    timing->slot = slot;
    timing->least = timing->most = apart;
    timing->first_ns = timing->last_ns = start_ns;
}

void lagom_timing_add(struct lagom_timing *timing, uint64_t start_ns, uint64_t end_ns, uint32_t slot,
                      const struct lagom_ran *ran)
{
    if (timing->pairs > 0 && timing->slot != slot) {
        return;
    }
    int64_t apart = difference(start_ns, ran->start_ns);
    int64_t lengths = lengths_apart(start_ns, end_ns, ran);
    if (timing->pairs++ == 0) {
        begin(timing, start_ns, slot, apart);
    }
    timing->lengths_apart = lengths > timing->lengths_apart ? lengths : timing->lengths_apart;
    timing->least = apart < timing->least ? apart : timing->least;
    timing->most = apart > timing->most ? apart : timing->most;
    timing->first_ns = start_ns < timing->first_ns ? start_ns : timing->first_ns;
    timing->last_ns = start_ns > timing->last_ns ? start_ns : timing->last_ns;
}

enum lagom_timing_verdict lagom_timing_verdict(const struct lagom_timing *timing, uint64_t tick_ns)
{
    if (tick_ns > COARSE_NS) {
        return LAGOM_TIMING_UNKNOWN;
    }
    int64_t allowed = allowed_with(tick_ns);
    int64_t drift = difference(timing->last_ns, timing->first_ns) / DRIFT;
    int64_t spread = timing->most - timing->least - drift;
    int64_t apart = spread > timing->lengths_apart ? spread : timing->lengths_apart;
    if (apart > FACTOR * allowed) {
        return LAGOM_TIMING_UNLIKE;
    }
    return timing->pairs >= LAGOM_TIMING_PAIRS && apart <= allowed ? LAGOM_TIMING_ALIKE : LAGOM_TIMING_UNKNOWN;
}

bool lagom_timing_may_be(const struct lagom_apart *apart, uint64_t start_ns, uint64_t end_ns, const struct lagom_ran *ran,
                         uint64_t tick_ns)
{
    if (apart->at_ns == 0 || tick_ns > COARSE_NS) {
        return false;
    }
    int64_t drift = absolute(difference(start_ns, apart->at_ns)) / DRIFT;
    int64_t off = absolute(difference(start_ns, ran->start_ns) - apart->apart_ns) - drift;
    return off <= allowed_with(tick_ns) && lengths_apart(start_ns, end_ns, ran) <= allowed_with(tick_ns);
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
