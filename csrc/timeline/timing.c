#include "timeline/timing.h"

#define APART_NS 100000  /* of clocks that are read together */
#define DRIFT 10000      /* one part in so many: two clocks, one of them led by NTP */
#define FACTOR 3         /* more than so much of what is allowed, and it is no imprecision any more */
#define LENGTH_PARTS 100 /* lengths are alike within one part in so many, and APART_NS */
#define TICK_NS 2500000  /* the start and the end of the longest tick known, and some */

static int64_t absolute(int64_t value)
{
    return value < 0 ? -value : value;
}

void lagom_timing_add(struct lagom_timing *timing, const struct lagom_kernel_span *kernel, const struct lagom_ran *ran)
{
    int64_t apart = (int64_t)(kernel->start_ns - ran->start_ns);
    int64_t length = (int64_t)(kernel->end_ns - kernel->start_ns);
    int64_t lengths_apart = absolute(length - (int64_t)(ran->end_ns - ran->start_ns)) - length / LENGTH_PARTS;
    timing->lengths_apart = lengths_apart > timing->lengths_apart ? lengths_apart : timing->lengths_apart;
    if (timing->pairs++ == 0) {
        timing->least = timing->most = apart;
        timing->first_ns = timing->last_ns = kernel->start_ns;
        return;
    }
    timing->least = apart < timing->least ? apart : timing->least;
    timing->most = apart > timing->most ? apart : timing->most;
    timing->first_ns = kernel->start_ns < timing->first_ns ? kernel->start_ns : timing->first_ns;
    timing->last_ns = kernel->start_ns > timing->last_ns ? kernel->start_ns : timing->last_ns;
}

enum lagom_timing_verdict lagom_timing_verdict(const struct lagom_timing *timing)
{
    int64_t drift = (int64_t)(timing->last_ns - timing->first_ns) / DRIFT;
    int64_t spread = timing->most - timing->least - drift;
    int64_t apart = spread > timing->lengths_apart ? spread : timing->lengths_apart;
    if (apart > FACTOR * APART_NS) {
        return apart > TICK_NS ? LAGOM_TIMING_IMPOSSIBLE : LAGOM_TIMING_UNLIKE;
    }
    return timing->pairs >= LAGOM_TIMING_PAIRS && apart <= APART_NS ? LAGOM_TIMING_ALIKE : LAGOM_TIMING_UNKNOWN;
}
