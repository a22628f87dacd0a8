/* SPDX-License-Identifier: Apache-2.0 */
/* storm_rank.c - one virtual rank that makes calls as fast as it can, on all communicators in an order of its own.
 *
 *     storm_rank PLUGIN CONTROL RANK
 *
 * Plays NCCL 2.30 (tuner v6): flat cost table, getCollInfo for a group of one to three collectives, then getChunkSize
 * for each part of each. Ends at control.stop; exit 0, or 1 with a sentence where NCCL would have failed the job.
 */
#include "referee.h"

#define LARGEST_GROUP 3

static const struct tuner_v6 *tuner;
static void *contexts[STORM_MAX_COMMUNICATORS];
static uint64_t next_call[STORM_MAX_COMMUNICATORS];
static struct storm_control *control;
static uint32_t rank;
static uint64_t random_state;

static uint64_t slowest(uint32_t communicator)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t r = 0; r < control->ranks; r++) {
        uint64_t calls = __atomic_load_n(&control->progress[communicator][r].calls, __ATOMIC_ACQUIRE);
        least = calls < least ? calls : least;
    }
    return least;
}

/* regBuff differs from rank to rank and must not matter. */
static void run_group(uint32_t communicator, uint32_t count)
{
    struct task tasks[LARGEST_GROUP];
    struct storm_progress *mine = &control->progress[communicator][rank];
    for (uint32_t i = 0; i < count; i++) {
        struct storm_call call = storm_call_at(communicator, next_call[communicator] + i);
        tasks[i] = (struct task){.function = call.function, .bytes = call.bytes};
        int registered = communicator == 0 ? 0 : (int)(storm_random(&random_state) & 1);
        ask_tuner(tuner, contexts[communicator], &tasks[i], registered);
    }
    for (uint32_t i = 0; i < count; i++) {
        uint64_t call = next_call[communicator] + i;
        cut_chunks(tuner, contexts[communicator], &tasks[i]);
        referee(control, rank, communicator, call, word_of(&tasks[i], call));
        mine->changed += tasks[i].changed;
    }
    next_call[communicator] += count;
    __atomic_store_n(&mine->calls, next_call[communicator], __ATOMIC_RELEASE);
}

/* Groups are cut by call number, so that every rank aggregates alike, as NCCL's do. */
static uint32_t group_size(uint32_t communicator)
{
    uint64_t number = next_call[communicator];
    uint64_t noise = number * 7 + communicator;
    return storm_random(&noise) % 8 == 0 ? 1 + (uint32_t)(number % LARGEST_GROUP) : 1;
}

static bool burst(uint32_t communicator)
{
    uint64_t limit = slowest(communicator) + control->window;
    uint64_t length = 1 + storm_random(&random_state) % 64;
    uint64_t made = 0;
    while (made < length && next_call[communicator] + LARGEST_GROUP < limit) {
        uint32_t count = group_size(communicator);
        run_group(communicator, count);
        made += count;
    }
    return made > 0;
}

static void dawdle(void)
{
    uint64_t dice = storm_random(&random_state) % 1000;
    if (dice == 0) {
        usleep(500);
    } else if (dice < 200) {
        sched_yield();
    }
}

/* The others need the processor more than we do. Returns 0, the new count of bursts in a row that got nowhere. */
static uint64_t wait_for_the_slowest(void)
{
    usleep(20);
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t stuck = 0;
    if (argc != 4) {
        return 2;
    }
    rank = (uint32_t)atoi(argv[3]);
    control = storm_attach(argv[2]);
    random_state = control->seed * 1000 + rank;
    tuner = load_tuner(argv[1]);
    for (uint32_t c = 0; c < control->communicators; c++) {
        contexts[c] = init_tuner(tuner, storm_comm_id(c), (uint32_t)control->ranks);
    }
    while (!__atomic_load_n(&control->stop, __ATOMIC_ACQUIRE)) {
        if (!burst((uint32_t)(storm_random(&random_state) % control->communicators))) {
            stuck = stuck < 2 * control->communicators ? stuck + 1 : wait_for_the_slowest();
        } else {
            stuck = 0;
        }
        dawdle();
    }
    for (uint32_t c = 0; c < control->communicators; c++) {
        tuner->finalize(contexts[c]);
    }
    return 0;
}
