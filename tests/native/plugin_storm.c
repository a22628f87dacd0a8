/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_storm.c - everything at once in one process: ranks of several communicators on a thread each, communicators
 * that come and go beside them (split, shrink, abort), a controller that publishes, withdraws, sweeps and drains, and
 * forks in between. Not one call on which two ranks differ, and nothing that ThreadSanitizer objects to. */
#include <pthread.h>
#include <sched.h>

#include "tests/native/plugin_harness.h"

#define COMMUNICATORS 3u
#define RANKS 3u
#define MOST_CALLS 60000u
#define MOST_AHEAD 200u
#define FIRST_ID 700u
#define PLANS_WANTED 40u /* four times what is asked for at the end */
#define NEVER UINT32_MAX

static struct plugin plugin;
static struct lagom_region *region;
static uint32_t calls_in_all;
static uint64_t progress[COMMUNICATORS][RANKS];
static uint8_t ran[COMMUNICATORS][RANKS][MOST_CALLS];
static uint32_t running; /* threads that make calls */
static uint64_t commits, withdrawn, lives;
static uint32_t looks_until_withdrawal[COMMUNICATORS]; /* of the plan on offer */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dULL;
}

/* In a sanitized build the plugin is part of this program and so is its mapping: at one address both sides' accesses can
 * be told to race. Else the plugin has a mapping of its own, and this is another. */
static struct lagom_region *region_beside_the_plugin(void)
{
    char key[LAGOM_PATH_BYTES], path[LAGOM_PATH_BYTES];
    struct lagom_mapping mapping;
    if (!sanitized()) {
        return map_region();
    }
    lagom_job_key(key, 0);
    lagom_region_path(key, path);
    return lagom_region_inspect(&mapping, path) == LAGOM_REGION_OK ? mapping.region : NULL;
}

/* Too few plans for how far the ranks are: on a busy machine the controller may hardly come to run beside them. Waiting
 * for it would be waiting for ever, since a plan needs calls to be agreed on, so the ranks only go slower. */
static bool controller_is_behind(uint64_t n)
{
    return lagom_load_acquire(&commits) * calls_in_all < PLANS_WANTED * n;
}

/* ---- Ranks ------------------------------------------------------------------------------------------------------ */

static void stay_close(uint32_t communicator, uint64_t n)
{
    for (uint32_t r = 0; r < RANKS; r++) {
        while (n > lagom_load_acquire(&progress[communicator][r]) + MOST_AHEAD) {
            sched_yield();
        }
    }
}

static void *be_a_rank(void *argument)
{
    uint32_t self = (uint32_t)(uintptr_t)argument, communicator = self / RANKS, number = self % RANKS;
    struct rank rank = make_rank(&plugin, 6, FIRST_ID + communicator, RANKS, 1);
    CHECK(rank.context != NULL);
    for (uint64_t n = 0; n < calls_in_all; n++) {
        stay_close(communicator, n);
        call(&rank, LAGOM_ALL_GATHER, (1 + n % 5) * MIB);
        ran[communicator][number][n] = (uint8_t)rank.channels;
        chunk_of(&rank, LAGOM_ALL_GATHER, LAGOM_RING, LAGOM_SIMPLE, MIB);
        lagom_store_release(&progress[communicator][number], n + 1);
        if (n % 8 == 0) {
            usleep(controller_is_behind(n) ? 3000 : 50);
        }
    }
    lagom_store_release(&progress[communicator][number], UINT64_MAX - MOST_AHEAD);
    end_rank(&rank);
    __atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* What split, shrink and abort are to a tuner: a communicator appears, makes some calls, and is finalized. */
static void *come_and_go(void *unused)
{
    (void)unused;
    uint64_t seed = 17;
    while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) > 0) {
        struct rank part = make_rank(&plugin, 6, 10000 + lives, 2 + next_random(&seed) % 3, 1);
        for (uint64_t n = next_random(&seed) % 20; n > 0 && part.context != NULL; n--) {
            call(&part, LAGOM_ALL_REDUCE, MIB);
            CHECK(untouched(&part)); /* its other ranks never come, so nothing is ever agreed there */
        }
        end_rank(&part);
        lives++;
        usleep(20); /* else it is this thread that the controller waits behind */
    }
    return NULL;
}

/* ---- The controller --------------------------------------------------------------------------------------------- */

/* Looks at a plan until it is withdrawn; three of four never are. Chosen anew at each look, withdrawal would be the fate of
 * all where the controller looks often before the ranks have answered, and of none where it hardly comes to look. */
static uint32_t fate_of_a_plan(uint64_t *seed)
{
    return next_random(seed) % 4 == 0 ? (1u << next_random(seed) % 10) - 1 : NEVER;
}

static void offer_a_plan(uint32_t index, uint64_t *seed)
{
    static struct lagom_plan plan;
    uint64_t smallest, largest;
    memset(&plan, 0, sizeof(plan));
    struct lagom_config config = leave_all();
    config.channels = (uint16_t)(1 + next_random(seed) % 20);
    add_rule(&plan, LAGOM_ANY_FUNCTION, 0, UINT64_MAX, config);
    plan.rules[0].candidate.channels++;
    lagom_counters(region, index, &smallest, &largest);
    plan.start_call = largest + 1 + next_random(seed) % 400;
    plan.end_call = plan.start_call + 1 + next_random(seed) % 300;
    plan.flags = LAGOM_PLAN_HAS_CANDIDATE;
    lagom_publish(region, index, &plan);
}

static void drain_all(void)
{
    static struct lagom_call_record records[LAGOM_CALL_RING_CAPACITY];
    for (uint32_t slot = 0; slot < LAGOM_MAX_SLOTS; slot++) {
        lagom_call_ring_drain(region, slot, records, LAGOM_CALL_RING_CAPACITY);
    }
}

static void control_one(uint32_t communicator, uint64_t *seed)
{
    uint32_t index = find_communicator_of(region, FIRST_ID + communicator);
    if (index == UINT32_MAX) {
        return;
    }
    if (lagom_publish_ready(region, index)) {
        offer_a_plan(index, seed);
        looks_until_withdrawal[communicator] = fate_of_a_plan(seed);
    } else if (looks_until_withdrawal[communicator] == 0) {
        withdrawn += lagom_publish_withdraw(region, index) == LAGOM_OUTCOME_ABORTED;
        looks_until_withdrawal[communicator] = NEVER;
    } else {
        looks_until_withdrawal[communicator] -= looks_until_withdrawal[communicator] != NEVER;
        uint64_t before = lagom_load_acquire(&region->communicators[index].word);
        enum lagom_outcome outcome = lagom_publish_poll(region, index);
        if (outcome == LAGOM_OUTCOME_COMMITTED && LAGOM_WORD_STATE(before) == LAGOM_PREPARED) {
            lagom_store_release(&commits, commits + 1);
        }
    }
    lagom_capture_set(region, index, next_random(seed) % 2 == 0 ? LAGOM_CAPTURE_CALLS : 0);
}

static void *be_the_controller(void *unused)
{
    (void)unused;
    uint64_t seed = 4711;
    while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) > 0) {
        for (uint32_t communicator = 0; communicator < COMMUNICATORS; communicator++) {
            control_one(communicator, &seed);
        }
        drain_all();
        sched_yield();
    }
    return NULL;
}

/* ---- Forks ------------------------------------------------------------------------------------------------------ */

/* A DataLoader worker made while every thread is somewhere in the plugin: it neither hangs nor writes. */
static void fork_a_worker(void)
{
    pid_t child = fork();
    if (child == 0) {
        alarm(600);
        _exit(region->header.magic != LAGOM_MAGIC || !sanitized() ? 0 : 1); /* the shared mapping is gone from it */
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void wait_for_the_region(void)
{
    while ((region = region_beside_the_plugin()) == NULL) {
        usleep(1000);
    }
}

static void compare(void)
{
    uint64_t tuned = 0;
    for (uint32_t c = 0; c < COMMUNICATORS; c++) {
        for (uint32_t n = 0; n < calls_in_all; n++) {
            CHECK_EQUAL(ran[c][1][n], ran[c][0][n]);
            CHECK_EQUAL(ran[c][2][n], ran[c][0][n]);
            tuned += ran[c][0][n] != 0;
        }
    }
    printf("     %llu plans agreed, %llu withdrawn, %llu calls tuned, %llu other communicators came and went\n",
           (unsigned long long)commits, (unsigned long long)withdrawn, (unsigned long long)tuned,
           (unsigned long long)lives);
    CHECK(commits > 10 && withdrawn > 0 && tuned > calls_in_all / 20 && lives > 10);
}

static void several_threads_and_communicators(void)
{
    pthread_t ranks[COMMUNICATORS * RANKS], others[2];
    calls_in_all = sanitized() ? MOST_CALLS / 3 : MOST_CALLS;
    running = COMMUNICATORS * RANKS;
    plugin = load_plugin();
    for (uintptr_t i = 0; i < COMMUNICATORS * RANKS; i++) {
        CHECK(pthread_create(&ranks[i], NULL, be_a_rank, (void *)i) == 0);
    }
    wait_for_the_region();
    CHECK(pthread_create(&others[0], NULL, be_the_controller, NULL) == 0);
    CHECK(pthread_create(&others[1], NULL, come_and_go, NULL) == 0);
    for (int i = 0; i < 10; i++) {
        fork_a_worker();
        usleep(20000);
    }
    for (uint32_t i = 0; i < COMMUNICATORS * RANKS; i++) {
        pthread_join(ranks[i], NULL);
    }
    pthread_join(others[0], NULL);
    pthread_join(others[1], NULL);
    compare();
}

int main(void)
{
    return RUN(several_threads_and_communicators) != 0;
}
