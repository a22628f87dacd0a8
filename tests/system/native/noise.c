/* SPDX-License-Identifier: Apache-2.0 */
/* noise.c - random bytes in shared memory, seed after seed: no rank may crash, disagree, or do what nobody agreed to.
 *
 *     noise PLUGIN FIRST_SEED SEEDS SECONDS
 *
 * Each seed forks three ranks with the real plugin. The parent is their controller: it publishes plans that pin NC and,
 * in between, writes random bytes over rings, header and plans. The switch word, acknowledgements and the counters that
 * stand for them are left alone: nothing survives those turning to noise.
 *
 * Checked for every call of every rank: NC is the one of the last plan that was committed and had started, else NCCL's;
 * before the first commit the cost table, nChannels and the chunk are what NCCL had. Prints one line of totals.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agreement/publisher.h"
#include "imitation.h"
#include "protocol/lagom_atomic.h"
#include "shm/job_key.h"
#include "shm/region.h"

#define RANKS 3
#define CALLS 3000
#define HEAD_START 400
#define MAX_PLANS 64
#define COMM_ID 0xabcdefu
#define GIVE_UP_SPINS 200000

struct committed {
    uint64_t start_call;
    int channels;
};

struct board { /* shared by parent and ranks; never noise */
    uint64_t done[RANKS];
    uint8_t channels[RANKS][CALLS];
    uint8_t changed[RANKS][CALLS];
};

static struct board *board;
static struct lagom_mapping mapping;
static uint64_t random_state;
static struct committed plans[MAX_PLANS];
static uint32_t plan_count;
static uint64_t total_committed, total_aborted, total_writes;

static uint64_t dice(uint64_t sides)
{
    uint64_t z = (random_state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return (z ^ (z >> 31)) % sides;
}

/* ---- a rank ----------------------------------------------------------------------------------------------------- */

static uint64_t slowest_rank(void)
{
    uint64_t slowest = CALLS;
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        uint64_t done = __atomic_load_n(&board->done[rank], __ATOMIC_ACQUIRE);
        slowest = done < slowest ? done : slowest;
    }
    return slowest;
}

/* As collectives do: no rank runs far ahead of the others. It also lets plans be agreed on a busy machine. */
static void stay_near(uint64_t call)
{
    while (call > slowest_rank() + HEAD_START) {
        sched_yield();
    }
}

static void play_rank(const char *plugin, uint32_t rank)
{
    const struct tuner_v6 *tuner = load_tuner(plugin);
    void *context = init_tuner(tuner, COMM_ID, RANKS);
    for (uint64_t call = 0; call < CALLS; call++) {
        struct task task = {.function = 2 + (uint32_t)(call % 3), .bytes = (1u << 20) + 4096 * (call % 5)};
        ask_tuner(tuner, context, &task, 0);
        cut_chunks(tuner, context, &task);
        board->channels[rank][call] = (uint8_t)task.channels;
        board->changed[rank][call] = task.changed;
        __atomic_store_n(&board->done[rank], call + 1, __ATOMIC_RELEASE);
        if (call % 4 == rank) {
            sched_yield();
        }
        stay_near(call);
    }
    tuner->finalize(context);
    _exit(0);
}

/* ---- noise ------------------------------------------------------------------------------------------------------ */

static void scribble(void *at, size_t bytes)
{
    size_t offset = dice(bytes), length = dice(8) == 0 ? bytes - offset : 1 + dice(64);
    if (offset + length > bytes) {
        length = bytes - offset;
    }
    unsigned char *byte = (unsigned char *)at + offset;
    for (size_t i = 0; i < length; i++) {
        byte[i] = (unsigned char)dice(256);
    }
    total_writes++;
}

static void scribble_ring_ends(void)
{
    struct lagom_slot *slot = &mapping.region->slots[dice(LAGOM_MAX_SLOTS)];
    struct lagom_process *process = &mapping.region->processes[dice(LAGOM_MAX_PROCESSES)];
    uint64_t *ends[] = {&slot->call_head, &slot->call_tail, &process->kernel_head, &process->kernel_tail};
    scribble(ends[dice(4)], sizeof(uint64_t));
}

/* Mostly the epoch counter is put back: with garbage in it no plan is ever agreed again, and little would be tested. */
static void scribble_header(void)
{
    struct lagom_header *header = &mapping.region->header;
    uint64_t counter = header->epoch_counter;
    scribble(header, sizeof(*header));
    if (dice(20) != 0) {
        header->epoch_counter = counter;
    }
}

static void make_noise(void)
{
    struct lagom_region *region = mapping.region;
    switch (dice(5)) {
    case 0: scribble_header(); break;
    case 1: scribble(&region->plans[dice(2)], sizeof(struct lagom_plan)); break;
    case 2: scribble(region->calls[dice(4)], sizeof(region->calls[0])); break;
    case 3: scribble(region->kernels[dice(4)], sizeof(region->kernels[0])); break;
    default: scribble_ring_ends(); break;
    }
}

/* ---- the controller --------------------------------------------------------------------------------------------- */

static uint32_t find_communicator(void)
{
    for (uint32_t i = 0; i < LAGOM_MAX_COMMUNICATORS; i++) {
        if (lagom_load_acquire(&mapping.region->communicators[i].comm_id) == (uint64_t)COMM_ID) {
            return i;
        }
    }
    return UINT32_MAX;
}

static bool publish_channels(uint32_t communicator, struct committed *wanted)
{
    static struct lagom_plan plan;
    uint64_t smallest, largest;
    memset(&plan, 0, sizeof(plan));
    lagom_counters(mapping.region, communicator, &smallest, &largest);
    wanted->start_call = largest + 50 + dice(200);
    wanted->channels = 1 + (int)dice(24);
    plan.start_call = wanted->start_call;
    plan.rule_count = 1;
    plan.rules[0] = (struct lagom_rule){.bytes_max = UINT64_MAX, .function = LAGOM_ANY_FUNCTION};
    plan.rules[0].incumbent = (struct lagom_config){.algorithm = LAGOM_LEAVE, .protocol = LAGOM_LEAVE};
    plan.rules[0].incumbent.channels = (uint16_t)wanted->channels;
    plan.rules[0].candidate = plan.rules[0].incumbent;
    return lagom_publish(mapping.region, communicator, &plan) == LAGOM_PUBLISH_OK;
}

/* A plan torn just after it was offered, where it matters: some ranks may have copied it, others not yet. */
static void tear(struct lagom_plan *plan)
{
    size_t fixed = offsetof(struct lagom_plan, positions);
    if (dice(2) == 0) {
        scribble(plan, fixed);
    } else {
        scribble(&plan->rules[0], sizeof(plan->rules[0]));
    }
}

static void settle(uint32_t communicator, const struct committed *wanted, bool noisy)
{
    enum lagom_outcome outcome = LAGOM_OUTCOME_OPEN;
    if (noisy && dice(3) == 0) {
        tear(&mapping.region->plans[communicator]);
    }
    for (int spin = 0; spin < GIVE_UP_SPINS && outcome == LAGOM_OUTCOME_OPEN; spin++) {
        outcome = lagom_publish_poll(mapping.region, communicator);
        if (noisy && dice(20) == 0) {
            make_noise();
        }
        sched_yield();
    }
    if (outcome == LAGOM_OUTCOME_OPEN) {
        outcome = lagom_publish_withdraw(mapping.region, communicator);
    }
    if (outcome == LAGOM_OUTCOME_COMMITTED) {
        plans[plan_count++] = *wanted;
        total_committed++;
    } else {
        total_aborted++;
    }
}

static bool all_done(void)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        if (__atomic_load_n(&board->done[rank], __ATOMIC_ACQUIRE) < CALLS) {
            return false;
        }
    }
    return true;
}

static bool someone_died(pid_t *children)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        int status = 0;
        if (children[rank] > 0 && waitpid(children[rank], &status, WNOHANG) == children[rank]) {
            children[rank] = 0;
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                return true;
            }
        }
    }
    return false;
}

/* A seed's style: noise only, plans first and then noise too, or both from the start. */
static bool conduct(pid_t *children)
{
    uint64_t style = dice(3), quiet_until = style == 1 ? 200 + dice(400) : 0;
    while (!all_done()) {
        bool noisy = __atomic_load_n(&board->done[0], __ATOMIC_ACQUIRE) >= quiet_until;
        uint32_t communicator = find_communicator();
        struct committed wanted;
        if (noisy) {
            make_noise();
        }
        if (style != 0 && communicator != UINT32_MAX && plan_count < MAX_PLANS &&
            publish_channels(communicator, &wanted)) {
            settle(communicator, &wanted, noisy);
        }
        if (someone_died(children)) {
            return false;
        }
        sched_yield();
    }
    return true;
}

/* ---- the verdict ------------------------------------------------------------------------------------------------ */

static int expected_channels(uint64_t call)
{
    int channels = 0;
    for (uint32_t i = 0; i < plan_count; i++) {
        if (plans[i].start_call <= call) {
            channels = plans[i].channels;
        }
    }
    return channels;
}

static bool judge(uint64_t seed)
{
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        for (uint64_t call = 0; call < CALLS; call++) {
            int expected = expected_channels(call);
            int channels = board->channels[rank][call];
            bool changed = board->changed[rank][call];
            if (channels != (expected == 0 ? BUILT_CHANNELS : expected) || changed != (expected != 0)) {
                fprintf(stderr, "seed %llu: rank %u, call %llu ran %d channels%s; agreed were %d (0 = stock)\n",
                        (unsigned long long)seed, rank, (unsigned long long)call, channels, changed ? ", changed" : "",
                        expected);
                return false;
            }
        }
    }
    return true;
}

static bool open_region(uint64_t seed, char key[LAGOM_PATH_BYTES])
{
    char job[64];
    snprintf(job, sizeof(job), "noise-%d-%llu", (int)getppid(), (unsigned long long)seed);
    setenv("LAGOM_JOB_ID", job, 1);
    lagom_job_key(key, 0);
    return lagom_region_control(&mapping, key, true, LAGOM_CLOCK_MONOTONIC) == LAGOM_REGION_OK;
}

/* One in four seeds is noisy before the first rank comes: then the region may be refused, and all stay stock. */
static bool run_seed(const char *plugin, uint64_t seed)
{
    char key[LAGOM_PATH_BYTES];
    pid_t children[RANKS];
    random_state = seed;
    plan_count = 0;
    memset(board, 0, sizeof(*board));
    if (!open_region(seed, key)) {
        fprintf(stderr, "seed %llu: no region\n", (unsigned long long)seed);
        return false;
    }
    for (uint64_t i = dice(4) == 0 ? dice(20) : 0; i > 0; i--) {
        make_noise();
    }
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        children[rank] = fork();
        if (children[rank] == 0) {
            play_rank(plugin, rank);
        }
    }
    bool alive = conduct(children);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        int status = 0;
        if (children[rank] > 0 && !alive) {
            kill(children[rank], SIGKILL);
        }
        if (children[rank] > 0 && waitpid(children[rank], &status, 0) > 0) {
            alive = alive && WIFEXITED(status) && WEXITSTATUS(status) == 0;
        }
    }
    lagom_region_leave(&mapping, true);
    if (!alive) {
        fprintf(stderr, "seed %llu: a rank died\n", (unsigned long long)seed);
    }
    return alive && judge(seed);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        return 2;
    }
    uint64_t first = strtoull(argv[2], NULL, 10), count = strtoull(argv[3], NULL, 10), done = 0;
    time_t end = time(NULL) + (time_t)strtoull(argv[4], NULL, 10); /* a busy machine runs fewer seeds */
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        return 1;
    }
    /* Noise is looked at through what was agreed on: seeds whose ranks came too far apart to agree need others. */
    for (; (done < count || total_committed <= count) && time(NULL) < end; done++) {
        if (!run_seed(argv[1], first + done)) {
            return 1;
        }
    }
    printf("%llu seeds, %llu writes of noise, %llu plans committed, %llu not\n", (unsigned long long)done,
           (unsigned long long)total_writes, (unsigned long long)total_committed, (unsigned long long)total_aborted);
    return 0;
}
