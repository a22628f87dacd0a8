/* SPDX-License-Identifier: Apache-2.0 */
/* steady_rank.c - one virtual rank of a training job: the same calls every iteration, a loss logged now and then, a little
 * time in between. What the real controller can learn and tune.
 *
 *     steady_rank PLUGIN CONTROL RANK MICROSECONDS
 *
 * Every call goes to the referee. Nobody may wait in a call: the voluntary context switches of this thread are counted
 * around the calls of every iteration, and so is the processor time that the dearest call took.
 */
#include <sys/resource.h>
#include <time.h>

#include "referee.h"

#define RUN_AHEAD 3u /* iterations a rank may be ahead of the slowest: collectives hold it back */
#define LOGGING_EVERY 10u

static const struct tuner_v6 *tuner;
static void *contexts[STORM_MAX_COMMUNICATORS];
static struct storm_control *control;
static uint32_t rank;

static uint64_t processor_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Both are zero for a thread that only computes: times it gave its processor away, and pages it touched first. */
static void count_waits(uint64_t *waits, uint64_t *faults)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    *waits = (uint64_t)usage.ru_nvcsw;
    *faults = (uint64_t)(usage.ru_minflt + usage.ru_majflt);
}

static void make_call(uint32_t communicator, uint32_t function, uint64_t bytes)
{
    struct storm_progress *mine = &control->progress[communicator][rank];
    struct task task = {.function = function, .bytes = bytes};
    uint64_t began = processor_ns();
    ask_tuner(tuner, contexts[communicator], &task, 0);
    cut_chunks(tuner, contexts[communicator], &task);
    uint64_t took = processor_ns() - began;
    mine->worst_ns = took > mine->worst_ns ? took : mine->worst_ns;
    mine->total_ns += took;
    mine->changed += task.changed;
    referee(control, rank, communicator, mine->calls, word_of(&task, mine->calls));
    __atomic_store_n(&mine->calls, mine->calls + 1, __ATOMIC_RELEASE);
}

static void iterate(uint32_t communicator, uint64_t iteration)
{
    struct storm_progress *mine = &control->progress[communicator][rank];
    uint64_t waits[2], faults[2];
    count_waits(&waits[0], &faults[0]);
    if (iteration % LOGGING_EVERY == LOGGING_EVERY - 1) {
        make_call(communicator, 4, 8);
    }
    for (uint32_t position = 0; position < storm_period(communicator); position++) {
        uint32_t site = storm_site_at(communicator, position);
        make_call(communicator, 2 + site % 3, storm_site_bytes(communicator, site));
    }
    count_waits(&waits[1], &faults[1]);
    mine->waits += waits[1] - waits[0];
    mine->faults += faults[1] - faults[0];
}

static uint64_t slowest_calls(void)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < control->ranks; r++) {
        uint64_t calls = __atomic_load_n(&control->progress[0][r].calls, __ATOMIC_ACQUIRE);
        least = calls < least ? calls : least;
    }
    return least;
}

static bool is_ahead(void)
{
    return control->progress[0][rank].calls > slowest_calls() + RUN_AHEAD * (uint64_t)storm_period(0);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        return 2;
    }
    rank = (uint32_t)atoi(argv[3]);
    useconds_t pause = (useconds_t)atoi(argv[4]);
    control = storm_attach(argv[2]);
    tuner = load_tuner(argv[1]);
    for (uint32_t c = 0; c < control->communicators; c++) {
        contexts[c] = init_tuner(tuner, storm_comm_id(c), (uint32_t)control->ranks);
    }
    for (uint64_t iteration = 0; !__atomic_load_n(&control->stop, __ATOMIC_ACQUIRE); iteration++) {
        for (uint32_t c = 0; c < control->communicators; c++) {
            iterate(c, iteration);
        }
        do {
            usleep(pause);
        } while (is_ahead() && !__atomic_load_n(&control->stop, __ATOMIC_ACQUIRE));
    }
    for (uint32_t c = 0; c < control->communicators; c++) {
        tuner->finalize(contexts[c]);
    }
    return 0;
}
