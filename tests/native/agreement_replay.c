/* SPDX-License-Identifier: Apache-2.0 */
/* agreement_replay.c - a saved config takes effect without a controller: all or none, and none who waits. */
#include <pthread.h>
#include <sched.h>

#include "tests/native/group.h"

#define RANKS 4u
#define CALLS 20000u

static struct group group;

/* Two AllGathers, then a ReduceScatter. */
static struct lagom_plan config(uint16_t incumbent)
{
    struct lagom_plan plan = {0};
    add_site(&plan, LAGOM_ALL_GATHER, MIB, incumbent);
    add_site(&plan, LAGOM_REDUCE_SCATTER, MIB, (uint16_t)(incumbent + 4));
    add_position(&plan, 0);
    add_position(&plan, 0);
    add_position(&plan, 1);
    return plan;
}

static struct lagom_plan shared_config, other_config;

static void fresh(uint32_t ranks)
{
    if (group.region != NULL) {
        free_group(&group);
    }
    group = make_group(ranks);
    shared_config = config(4);
    other_config = config(5);
    for (uint32_t i = 0; i < ranks; i++) {
        CHECK(lagom_replay_start(&group.replay[i], group.rank[i], group.region, &shared_config));
    }
}

static struct lagom_decision nth(uint32_t rank, uint64_t n)
{
    return lagom_agreement_decide(group.rank[rank], n % 3 == 2 ? LAGOM_REDUCE_SCATTER : LAGOM_ALL_GATHER, MIB);
}

static void check_nth(uint64_t n, bool tuned)
{
    for (uint32_t i = 0; i < group.ranks; i++) {
        struct lagom_decision decision = nth(i, n);
        CHECK_EQUAL(decision.choice.config.channels, tuned ? (n % 3 == 2 ? 8 : 4) : 0);
    }
}

static void from_the_first_whole_period_after_the_start(void)
{
    fresh(2);
    uint64_t n = 0;
    while (!group.rank[0]->active && n < 1000) {
        check_nth(n++, false);
    }
    CHECK(n < 200);
    uint64_t start = group.region->slots[0].active_start;
    CHECK_EQUAL(n, start + 1);
    uint64_t first = (start + 2) / 3 * 3 + 3; /* one whole period is looked at before the program is armed */
    for (; n < first; n++) {
        check_nth(n, false);
    }
    for (; n < first + 30; n++) {
        check_nth(n, true);
    }
    CHECK(group.replay[0].state == LAGOM_REPLAY_AGREED || group.replay[1].state == LAGOM_REPLAY_AGREED);
    CHECK(group.replay[0].state == LAGOM_REPLAY_FOLLOWING || group.replay[1].state == LAGOM_REPLAY_FOLLOWING);
}

/* There is no candidate to alternate with, whatever stands in the saved config. */
static void a_config_is_published_without_end_and_alternation(void)
{
    fresh(2);
    shared_config.end_call = 77;
    shared_config.alternate_iterations = 3;
    for (uint64_t n = 0; n < 200; n++) {
        nth(0, n);
        nth(1, n);
    }
    CHECK(group.rank[0]->active && group.rank[1]->active);
    CHECK_EQUAL(group.region->plans[0].end_call, 0);
    CHECK_EQUAL(group.region->plans[0].alternate_iterations, 0);
}

static void one_rank_with_another_config_keeps_all_on_stock(void)
{
    fresh(3);
    lagom_replay_start(&group.replay[2], group.rank[2], group.region, &other_config);
    for (uint64_t n = 0; n < 5000; n++) {
        check_nth(n, false);
    }
    uint32_t refused = 0;
    for (uint32_t i = 0; i < 3; i++) {
        refused +=
            group.replay[i].state == LAGOM_REPLAY_REFUSED && group.replay[i].refused_fault == LAGOM_PLAN_NOT_MINE;
    }
    CHECK_EQUAL(refused, 1);
}

static void a_rank_without_a_config_keeps_all_on_stock(void)
{
    fresh(2);
    group.region->slots[1].state = LAGOM_FREE; /* it never registered */
    for (uint64_t n = 0; n < 3000; n++) {
        CHECK_EQUAL(nth(0, n).choice.config.channels, 0);
    }
    CHECK_EQUAL(group.replay[0].state, LAGOM_REPLAY_WAITING);
    CHECK_EQUAL(word_of(&group), 0);
}

static void a_rank_that_comes_late_is_waited_for_and_not_by_waiting(void)
{
    fresh(2);
    group.region->slots[1].state = LAGOM_CLAIMED;
    for (uint64_t n = 0; n < 100; n++) {
        nth(0, n);
    }
    group.region->slots[1].state = LAGOM_READY;
    for (uint64_t n = 0; n < 100; n++) {
        nth(1, n);
    }
    for (uint64_t n = 100; n < 2000; n++) {
        nth(0, n);
        nth(1, n);
    }
    CHECK(group.rank[0]->active && group.rank[1]->active);
}

/* Rank 0 is always 100 calls ahead: the first margins are too short, a doubled one is not. */
static void the_margin_doubles_until_it_fits(void)
{
    fresh(2);
    for (uint64_t n = 0; n < 3000; n++) {
        nth(0, n);
        if (n >= 100) {
            nth(1, n - 100);
        }
    }
    for (uint64_t n = 2900; n < 3000; n++) {
        nth(1, n);
    }
    CHECK(group.rank[0]->active && group.rank[1]->active);
    CHECK(group.replay[0].tries + group.replay[1].tries > 1);
}

/* Rank 1 made more calls than a history holds before it saw the plan, as it may where the publisher is stopped between
 * reading the counters and publishing: that is late, and the next try finds it in time. */
static void a_rank_that_was_late_for_the_history_is_asked_again(void)
{
    fresh(2);
    group.replay[0].margin = 2 * LAGOM_HISTORY_DEPTH;
    nth(0, 0);
    CHECK_EQUAL(group.replay[0].state, LAGOM_REPLAY_OPEN);
    group.rank[1]->calls += LAGOM_HISTORY_DEPTH;
    nth(1, 0);
    group.rank[1]->calls -= LAGOM_HISTORY_DEPTH;
    CHECK_EQUAL(group.region->slots[1].refused_epoch, group.replay[0].published_epoch);
    CHECK_EQUAL(group.region->slots[1].refused_fault, LAGOM_PLAN_LATE_HISTORY);
    for (uint64_t n = 1; n < 6 * LAGOM_HISTORY_DEPTH; n++) {
        nth(1, n);
        nth(0, n);
    }
    CHECK_EQUAL(group.replay[0].state, LAGOM_REPLAY_AGREED);
    CHECK_EQUAL(group.replay[0].tries, 2);
    CHECK(group.rank[0]->active && group.rank[1]->active);
}

/* Rank 1 never gets anywhere near: after eight tries the publisher gives up, and nobody has changed anything. */
static void the_tries_end(void)
{
    fresh(2);
    for (uint64_t n = 0; n < 100000; n++) {
        CHECK_EQUAL(nth(0, n).choice.config.channels, 0);
    }
    CHECK_EQUAL(group.replay[0].state, LAGOM_REPLAY_REFUSED);
    CHECK_EQUAL(group.replay[0].tries, LAGOM_REPLAY_TRIES);
    CHECK_EQUAL(group.rank[0]->wake_call, UINT64_MAX); /* and the fast path is itself again */
}

static void a_controllers_plan_is_not_accepted(void)
{
    struct lagom_plan plan = simple_plan(50, 0, 9);
    fresh(2);
    group.replay[0].state = group.replay[1].state = LAGOM_REPLAY_FOLLOWING;
    group.rank[0]->wake_call = group.rank[1]->wake_call = UINT64_MAX;
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_OK);
    for (uint64_t n = 0; n < 100; n++) {
        check_nth(n, false);
    }
    CHECK_EQUAL(group.region->slots[0].refused_fault, LAGOM_PLAN_NOT_MINE);
}

static void a_controllers_plan_is_accepted_where_it_may_tune(void)
{
    struct lagom_plan plan = simple_plan(50, 0, 9);
    fresh(2);
    uint64_t n = 0;
    while (!group.rank[0]->active || !group.rank[1]->active) {
        check_nth(n++, false);
    }
    CHECK(lagom_publish_claim(group.region, 0)); /* what the ranks replay is in force */
    group.rank[0]->follows_controller = group.rank[1]->follows_controller = true;
    plan.start_call = n + 50;
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_OK);
    for (; n < plan.start_call + 10; n++) {
        nth(0, n);
        nth(1, n);
        lagom_publish_poll(group.region, 0);
    }
    CHECK_EQUAL(group.rank[0]->plans[group.rank[0]->current].plan.epoch, plan.epoch);
    CHECK_EQUAL(group.rank[1]->plans[group.rank[1]->current].plan.epoch, plan.epoch);
}

/* Two that publish would write into one plan. */
static void either_a_rank_or_a_controller_publishes(void)
{
    fresh(2);
    CHECK(lagom_publish_claim(group.region, 0));
    for (uint64_t n = 0; n < 300; n++) {
        check_nth(n, false);
    }
    CHECK_EQUAL(group.replay[0].published_epoch + group.replay[1].published_epoch, 0);
    fresh(2);
    for (uint64_t n = 0; group.replay[0].state != LAGOM_REPLAY_OPEN; n++) {
        nth(0, n);
    }
    CHECK(!lagom_publish_claim(group.region, 0));
}

static void a_rank_leaves_the_word_to_a_controller_that_has_published(void)
{
    fresh(2);
    for (uint64_t n = 0; !group.rank[0]->active || !group.rank[1]->active; n++) {
        nth(0, n);
        nth(1, n);
    }
    uint32_t one = group.replay[0].published_epoch != 0 ? 0 : 1;
    group.replay[one].state = LAGOM_REPLAY_OPEN; /* it has not looked since */
    group.replay[one].next_look = 0;
    group.replay[one].published_epoch--;
    CHECK_EQUAL(lagom_replay_poll_switch(&group.replay[one]), UINT64_MAX);
    CHECK_EQUAL(group.replay[one].state, LAGOM_REPLAY_FOLLOWING);
}

static void a_bad_config_is_not_started(void)
{
    struct lagom_replay replay;
    fresh(2);
    other_config.positions[0] = 99;
    CHECK(!lagom_replay_start(&replay, group.rank[0], group.region, &other_config));
    group.region->communicators[0].node_count = 2;
    CHECK(!lagom_replay_start(&replay, group.rank[0], group.region, &shared_config));
    CHECK_EQUAL(replay.state, LAGOM_REPLAY_OFF);
}

static uint16_t chosen[RANKS][CALLS];

static void *be_a_rank(void *argument)
{
    uint32_t rank = (uint32_t)(uintptr_t)argument;
    for (uint64_t n = 0; n < CALLS; n++) {
        chosen[rank][n] = nth(rank, n).choice.config.channels;
        if (n % 37 == rank) {
            sched_yield();
        }
    }
    return NULL;
}

static void threads_agree_or_stay(void)
{
    uint32_t agreed = 0;
    for (int round = 0; round < 20; round++) {
        pthread_t threads[RANKS];
        fresh(RANKS);
        for (uintptr_t i = 0; i < RANKS; i++) {
            CHECK(pthread_create(&threads[i], NULL, be_a_rank, (void *)i) == 0);
        }
        for (uint32_t i = 0; i < RANKS; i++) {
            pthread_join(threads[i], NULL);
        }
        for (uint64_t n = 0; n < CALLS; n++) {
            for (uint32_t rank = 1; rank < RANKS; rank++) {
                CHECK_EQUAL(chosen[rank][n], chosen[0][n]);
            }
        }
        agreed += chosen[0][CALLS - 1] != 0;
    }
    printf("  %u of 20 rounds agreed\n", agreed);
}

int main(void)
{
    RUN(from_the_first_whole_period_after_the_start);
    RUN(a_config_is_published_without_end_and_alternation);
    RUN(one_rank_with_another_config_keeps_all_on_stock);
    RUN(a_rank_without_a_config_keeps_all_on_stock);
    RUN(a_rank_that_comes_late_is_waited_for_and_not_by_waiting);
    RUN(the_margin_doubles_until_it_fits);
    RUN(a_rank_that_was_late_for_the_history_is_asked_again);
    RUN(the_tries_end);
    RUN(a_controllers_plan_is_not_accepted);
    RUN(a_controllers_plan_is_accepted_where_it_may_tune);
    RUN(either_a_rank_or_a_controller_publishes);
    RUN(a_rank_leaves_the_word_to_a_controller_that_has_published);
    RUN(a_bad_config_is_not_started);
    RUN(threads_agree_or_stay);
    free_group(&group);
    return 0;
}
