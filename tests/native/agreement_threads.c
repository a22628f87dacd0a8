/* SPDX-License-Identifier: Apache-2.0 */
/* agreement_threads.c - ranks as threads at full speed, a publisher that publishes, withdraws and dies as it likes: not
 * one call on which two ranks differ. The same under ThreadSanitizer. */
#include <pthread.h>
#include <sched.h>
#include <time.h>

#include "tests/native/group.h"

#define RANKS 4u
#define CALLS 400000u
#define PERIOD 6u
#define MOST_AHEAD 200u /* collectives keep ranks about this close; without it, threads on few cores run one by one */

static struct group group;
static uint16_t chosen[RANKS][CALLS];
static uint64_t epochs[RANKS][CALLS];
static uint32_t ranks_left;

/* The job's calls: a period of six, with noise and evaluations in between. The same on every rank. */
static void nth_call(uint64_t n, uint32_t *function, uint64_t *bytes)
{
    uint64_t seed = (n / 97 + 1) * 0x9e3779b97f4a7c15ULL;
    bool irregular = next_random(&seed) % 7 == 0;
    seed = (n + 1) * 0xd6e8feb86659fd93ULL;
    uint64_t at = irregular ? next_random(&seed) % 9 : n % PERIOD;
    *function = at < 4 ? LAGOM_ALL_GATHER : LAGOM_REDUCE_SCATTER;
    *bytes = at == 8 ? 1024 : (at % 4 + 1) * MIB;
}

static struct lagom_plan program_plan(uint64_t *seed)
{
    struct lagom_plan plan = {.flags = LAGOM_PLAN_HAS_CANDIDATE, .alternate_iterations = 1 + next_random(seed) % 3};
    uint16_t base = (uint16_t)(1 + next_random(seed) % 50);
    for (uint64_t n = 0; n < 4; n++) {
        add_site(&plan, LAGOM_ALL_GATHER, (n + 1) * MIB, (uint16_t)(base + n));
    }
    add_site(&plan, LAGOM_REDUCE_SCATTER, MIB, (uint16_t)(base + 5));
    add_site(&plan, LAGOM_REDUCE_SCATTER, 2 * MIB, (uint16_t)(base + 7));
    for (uint16_t i = 0; i < PERIOD; i++) {
        add_position(&plan, i);
    }
    add_rule(&plan, LAGOM_ANY_FUNCTION, MIB, UINT64_MAX, base);
    return plan;
}

static void nap(uint64_t *seed, uint64_t most_ns)
{
    struct timespec pause = {.tv_nsec = (long)(next_random(seed) % most_ns)};
    nanosleep(&pause, NULL);
}

static void stay_close(uint64_t n)
{
    uint64_t smallest = 0, largest;
    while (lagom_counters(group.region, 0, &smallest, &largest) == RANKS && n > smallest + MOST_AHEAD) {
        sched_yield();
    }
}

static void *be_a_rank(void *argument)
{
    uint32_t rank = (uint32_t)(uintptr_t)argument;
    uint64_t seed = 100 + rank;
    for (uint64_t n = 0; n < CALLS; n++) {
        uint32_t function;
        uint64_t bytes;
        nth_call(n, &function, &bytes);
        struct lagom_decision decision = lagom_agreement_decide(group.rank[rank], function, bytes);
        CHECK_EQUAL(decision.call, n);
        chosen[rank][n] = decision.choice.config.channels;
        epochs[rank][n] = decision.epoch;
        if (n % 16 == 0) {
            stay_close(n);
        }
        if (next_random(&seed) % 600 == 0) {
            nap(&seed, 300000);
        }
    }
    __atomic_sub_fetch(&ranks_left, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* Polls a few times, then withdraws or simply forgets about it, as a killed controller would. */
static bool see_it_through(uint64_t *seed)
{
    for (uint64_t looks = next_random(seed) % 3000; looks > 0; looks--) {
        enum lagom_outcome outcome = lagom_publish_poll(group.region, 0);
        if (outcome != LAGOM_OUTCOME_OPEN) {
            return outcome == LAGOM_OUTCOME_COMMITTED;
        }
        sched_yield();
    }
    return next_random(seed) % 2 == 0 && lagom_publish_withdraw(group.region, 0) == LAGOM_OUTCOME_COMMITTED;
}

static uint32_t publish_until_all_are_gone(void)
{
    uint64_t seed = 4711, smallest, largest;
    uint32_t commits = 0;
    while (__atomic_load_n(&ranks_left, __ATOMIC_ACQUIRE) > 0) {
        struct lagom_plan plan = program_plan(&seed);
        lagom_counters(group.region, 0, &smallest, &largest);
        plan.start_call = largest + 1 + next_random(&seed) % 400;
        plan.end_call = plan.start_call + 1 + next_random(&seed) % 500;
        if (lagom_publish(group.region, 0, &plan) == LAGOM_PUBLISH_OK) {
            commits += see_it_through(&seed);
        } else {
            lagom_publish_poll(group.region, 0); /* what a predecessor left open */
            sched_yield();
        }
    }
    return commits;
}

static void compare(void)
{
    uint32_t tuned = 0;
    for (uint64_t n = 0; n < CALLS; n++) {
        for (uint32_t rank = 1; rank < RANKS; rank++) {
            CHECK_EQUAL(chosen[rank][n], chosen[0][n]);
            CHECK_EQUAL(epochs[rank][n], epochs[0][n]);
        }
        tuned += chosen[0][n] != 0;
    }
    printf("  %u of %u calls tuned\n", tuned, CALLS);
    CHECK(tuned > CALLS / 100);
}

static void all_ranks_decide_alike(void)
{
    pthread_t threads[RANKS];
    group = make_group(RANKS);
    ranks_left = RANKS;
    for (uintptr_t i = 0; i < RANKS; i++) {
        CHECK(pthread_create(&threads[i], NULL, be_a_rank, (void *)i) == 0);
    }
    uint32_t commits = publish_until_all_are_gone();
    for (uint32_t i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
    }
    printf("  %u plans committed, last epoch %llu\n", commits, (unsigned long long)group.region->header.epoch_counter);
    CHECK(commits > 5);
    compare();
    free_group(&group);
}

int main(void)
{
    RUN(all_ranks_decide_alike);
    return 0;
}
