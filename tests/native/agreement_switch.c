/* SPDX-License-Identifier: Apache-2.0 */
/* agreement_switch.c - one switch at a time, call by call: who sees what, when it takes effect, and how it can fail. */
#include "tests/native/group.h"

static struct group group;

static void fresh(uint32_t ranks)
{
    if (group.region != NULL) {
        free_group(&group);
    }
    group = make_group(ranks);
}

static void publish(uint64_t start, uint64_t end, uint16_t incumbent)
{
    struct lagom_plan plan = simple_plan(start, end, incumbent);
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_OK);
}

static enum lagom_outcome poll(void)
{
    return lagom_publish_poll(group.region, 0);
}

/* Both ranks' next call: `channels` on both. */
static void check_next(uint64_t call, uint16_t wanted)
{
    for (uint32_t i = 0; i < group.ranks; i++) {
        struct lagom_decision decision = decide(&group, i);
        CHECK_EQUAL(decision.call, call);
        CHECK_EQUAL(decision.choice.config.channels, wanted);
    }
}

static void stock_before_anything(void)
{
    fresh(2);
    struct lagom_decision decision = decide(&group, 0);
    CHECK(decision.epoch == 0 && same_config(decision.choice.config, STOCK) && !decision.point.in_program);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_COMMITTED);
    CHECK(lagom_agreement_decide(group.rank[0], LAGOM_BROADCAST, MIB).point.transparent);
}

static void from_the_agreed_call_on_and_not_one_earlier(void)
{
    fresh(2);
    call_all(&group, 3);
    publish(6, 0, 4);
    check_word(&group, LAGOM_PREPARED, 1);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_OPEN);
    decide(&group, 0);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_OPEN); /* one of two */
    decide(&group, 1);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_COMMITTED);
    check_next(4, 0);
    check_next(5, 0);
    for (uint64_t call = 6; call < 20; call++) {
        check_next(call, 4);
    }
    CHECK(group.region->slots[1].active_epoch == 1 && group.region->slots[1].active_start == 6);
}

static void the_lease_ends_without_anybody(void)
{
    fresh(2);
    publish(1, 5, 4);
    check_next(0, 0);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_COMMITTED);
    /* from here on the controller is dead and its memory is noise */
    memset(&group.region->plans[0], 0xa5, sizeof(struct lagom_plan));
    for (uint64_t call = 1; call < 5; call++) {
        check_next(call, 5);
    }
    for (uint64_t call = 5; call < 50; call++) {
        check_next(call, 4);
    }
}

static void a_rank_that_arrives_first_aborts_for_all(void)
{
    fresh(2);
    publish(2, 0, 4);
    for (int i = 0; i < 3; i++) { /* rank 0 runs ahead and reaches call 2 while rank 1 has not even started */
        CHECK_EQUAL(decide(&group, 0).choice.config.channels, 0);
    }
    check_word(&group, LAGOM_ABORTED, 1);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_ABORTED);
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(decide(&group, 1).choice.config.channels, 0);
    }
    CHECK(!group.rank[0]->active && !group.rank[1]->active);
}

/* It first sees the plan when it is already there. */
static void a_rank_that_comes_too_late_to_copy_aborts(void)
{
    fresh(2);
    publish(2, 0, 4);
    decide(&group, 0);
    group.rank[1]->calls = 2;
    decide(&group, 1);
    check_word(&group, LAGOM_ABORTED, 1);
    CHECK_EQUAL(group.region->slots[1].refused_epoch, 0);
}

static void a_lost_swap_takes_what_the_word_says(void)
{
    fresh(2);
    publish(2, 0, 4);
    check_next(0, 0);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_COMMITTED);
    check_next(1, 0);
    CHECK_EQUAL(lagom_publish_withdraw(group.region, 0), LAGOM_OUTCOME_COMMITTED); /* too late */
    check_next(2, 4);
}

static void a_withdrawn_plan_never_happens(void)
{
    fresh(2);
    publish(3, 0, 4);
    check_next(0, 0);
    CHECK_EQUAL(lagom_publish_withdraw(group.region, 0), LAGOM_OUTCOME_ABORTED);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_ABORTED);
    for (uint64_t call = 1; call < 6; call++) {
        check_next(call, 0);
    }
    publish(8, 0, 6); /* after ABORTED at once */
    check_next(6, 0);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_COMMITTED);
    check_next(7, 0);
    check_next(8, 6);
}

static void busy_until_all_have_passed(void)
{
    struct lagom_plan next = simple_plan(20, 0, 6);
    fresh(2);
    publish(2, 0, 4);
    CHECK_EQUAL(lagom_publish(group.region, 0, &next), LAGOM_PUBLISH_BUSY);
    check_next(0, 0);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_COMMITTED);
    check_next(1, 0);
    CHECK(!lagom_publish_ready(group.region, 0));
    CHECK_EQUAL(decide(&group, 0).choice.config.channels, 4);
    CHECK_EQUAL(lagom_publish(group.region, 0, &next), LAGOM_PUBLISH_BUSY); /* rank 1 has not passed call 2 */
    CHECK_EQUAL(decide(&group, 1).choice.config.channels, 4);
    CHECK(lagom_publish_ready(group.region, 0));
    CHECK_EQUAL(lagom_publish(group.region, 0, &next), LAGOM_PUBLISH_OK);
}

/* The old epoch's acknowledgement is worth nothing for the new one, however alike the plans are. */
static void an_old_acknowledgement_does_not_count(void)
{
    fresh(2);
    publish(4, 0, 4);
    decide(&group, 0);
    lagom_publish_withdraw(group.region, 0);
    publish(4, 0, 4);
    check_word(&group, LAGOM_PREPARED, 2);
    decide(&group, 1);
    decide(&group, 1);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_OPEN);
    CHECK_EQUAL(group.region->slots[0].ack_epoch, 1);
    decide(&group, 0);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_COMMITTED);
}

static void different_histories_abort(void)
{
    fresh(2);
    decide(&group, 0);
    lagom_agreement_decide(group.rank[1], LAGOM_ALL_REDUCE, MIB);
    publish(5, 0, 4);
    decide(&group, 0);
    decide(&group, 1);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_ABORTED);
}

/* One rank is a call ahead by mistake: the same calls, shifted. */
static void a_shifted_history_aborts(void)
{
    fresh(2);
    lagom_agreement_decide(group.rank[1], LAGOM_ALL_REDUCE, 7 * MIB);
    call_all(&group, 4);
    publish(10, 0, 4);
    call_all(&group, 3);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_ABORTED);
}

static void a_rank_before_the_history_call_waits_with_its_word(void)
{
    fresh(2);
    for (int i = 0; i < 5; i++) {
        decide(&group, 0);
    }
    publish(8, 0, 4);
    CHECK_EQUAL(group.region->plans[0].history_call, 5);
    decide(&group, 0);
    for (int i = 0; i < 5; i++) {
        decide(&group, 1);
        CHECK_EQUAL(group.region->slots[1].ack_epoch, 0);
    }
    decide(&group, 1);
    CHECK_EQUAL(group.region->slots[1].ack_epoch, 1);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_COMMITTED);
}

static void check_refused(uint32_t rank, enum lagom_plan_fault fault)
{
    decide(&group, 0);
    decide(&group, 1);
    CHECK_EQUAL(group.region->slots[rank].refused_epoch, 1);
    CHECK_EQUAL(group.region->slots[rank].refused_fault, fault);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_ABORTED);
    call_all(&group, 10);
    CHECK(!group.rank[0]->active && !group.rank[1]->active);
}

static void a_damaged_plan_is_refused(void)
{
    fresh(2);
    publish(5, 0, 4);
    group.region->plans[0].rules[0].incumbent.channels ^= 1;
    check_refused(0, LAGOM_PLAN_BAD_HASH);
}

static void a_plan_of_another_epoch_is_refused(void)
{
    fresh(2);
    publish(5, 0, 4);
    struct lagom_plan *plan = &group.region->plans[0];
    plan->epoch = 9;
    plan->hash = lagom_plan_hash(plan);
    check_refused(0, LAGOM_PLAN_BAD_HASH);
}

static void threads_are_refused_where_they_cannot_be_set(void)
{
    struct lagom_plan plan = simple_plan(5, 0, 4);
    fresh(2);
    group.rank[1]->no_threads = true;
    plan.rules[0].incumbent.threads = 128;
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_OK);
    check_refused(1, LAGOM_PLAN_NO_THREADS);
}

static void a_history_too_far_back_is_refused(void)
{
    fresh(2);
    publish(3 * LAGOM_HISTORY_DEPTH, 0, 4);
    group.rank[1]->calls = LAGOM_HISTORY_DEPTH;
    check_refused(1, LAGOM_PLAN_LATE_HISTORY);
}

static void only_a_whole_communicator_is_asked(void)
{
    struct lagom_plan plan = simple_plan(5, 0, 4);
    fresh(2);
    group.region->slots[1].state = LAGOM_CLAIMED;
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_INCOMPLETE);
    group.region->slots[1].state = LAGOM_READY;
    group.region->communicators[0].node_count = 2;
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_INCOMPLETE);
    group.region->communicators[0].node_count = 1;
    group.region->slots[2].state = LAGOM_READY; /* one too many */
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_INCOMPLETE);
    group.region->slots[2].state = LAGOM_FREE;
    CHECK_EQUAL(lagom_publish(group.region, LAGOM_MAX_COMMUNICATORS, &plan), LAGOM_PUBLISH_INCOMPLETE);
    CHECK_EQUAL(lagom_publish(group.region, 1, &plan), LAGOM_PUBLISH_INCOMPLETE);
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_OK);
}

static void tell_apart(uint32_t rank, uint32_t process, uint32_t device)
{
    struct lagom_slot *slot = &group.region->slots[1];
    slot->rank = rank;
    slot->process = process;
    slot->device = device;
}

static bool is_whole(void)
{
    CHECK_EQUAL(lagom_publish_complete(group.region, 0), !lagom_publish_has_double(group.region, 0));
    return lagom_publish_complete(group.region, 0) != 0;
}

/* Two slots are two ranks only if something says so: their ranks, or processes, or their process's GPUs. */
static void one_rank_registered_twice_is_not_two_ranks(void)
{
    struct lagom_plan plan = simple_plan(5, 0, 4);
    fresh(2);
    tell_apart(0, 1, 1);
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_INCOMPLETE);
    CHECK(!is_whole());
    tell_apart(LAGOM_UNKNOWN_RANK, 0, 0);
    CHECK(!is_whole());
    tell_apart(LAGOM_UNKNOWN_RANK, 0, LAGOM_UNKNOWN_DEVICE);
    CHECK(!is_whole());
    group.region->slots[0].rank = LAGOM_UNKNOWN_RANK;
    CHECK(!is_whole());
    tell_apart(LAGOM_UNKNOWN_RANK, 0, 1);
    CHECK(is_whole());
    tell_apart(LAGOM_UNKNOWN_RANK, 1, 0); /* two processes may share a GPU */
    CHECK(is_whole());
    tell_apart(LAGOM_UNKNOWN_RANK, 1, LAGOM_UNKNOWN_DEVICE);
    CHECK(is_whole());
    group.region->slots[0].rank = 0;
    tell_apart(1, 0, 0); /* nor does one process need two */
    CHECK(is_whole());
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_OK);
}

/* Both slots acknowledge, and yet a rank is missing. */
static void one_rank_does_not_acknowledge_for_two(void)
{
    fresh(2);
    publish(5, 0, 4);
    call_all(&group, 1);
    group.region->slots[1].rank = 0;
    CHECK_EQUAL(lagom_publish_poll(group.region, 0), LAGOM_OUTCOME_ABORTED);
    check_word(&group, LAGOM_ABORTED, 1);
}

/* Where the region has no room for a plan the word means nothing. */
static void without_a_plan_nothing_is_offered(void)
{
    struct lagom_plan plan = simple_plan(5, 0, 4);
    static struct lagom_agreement rank;
    fresh(2);
    struct lagom_communicator *entry = &group.region->communicators[LAGOM_MAX_PLANS];
    *entry = group.region->communicators[0];
    for (uint32_t i = 0; i < 2; i++) {
        group.region->slots[i].communicator = LAGOM_MAX_PLANS;
    }
    CHECK_EQUAL(lagom_publish(group.region, LAGOM_MAX_PLANS, &plan), LAGOM_PUBLISH_INCOMPLETE);
    lagom_agreement_init(&rank, group.region, LAGOM_MAX_PLANS, &group.region->slots[0], NULL);
    entry->word = LAGOM_WORD(LAGOM_PREPARED, 3);
    CHECK(same_config(lagom_agreement_decide(&rank, LAGOM_ALL_GATHER, MIB).choice.config, LAGOM_CONFIG_STOCK));
    CHECK_EQUAL(group.region->slots[0].refused_epoch, 3);
}

static void refusals_change_nothing(void)
{
    fresh(2);
    call_all(&group, 4);
    struct lagom_plan plan = simple_plan(4, 0, 4), before = plan;
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_LATE);
    CHECK(memcmp(&plan, &before, sizeof(plan)) == 0);
    plan.start_call = before.start_call = 10;
    plan.rules[0].incumbent.channels = before.rules[0].incumbent.channels = 65;
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_BAD_PLAN);
    CHECK(memcmp(&plan, &before, sizeof(plan)) == 0);
    CHECK(word_of(&group) == 0 && group.region->header.epoch_counter == 0);
    CHECK_EQUAL(group.region->plans[0].epoch, 0);
}

static void a_rank_that_leaves_aborts_and_nothing_hangs(void)
{
    fresh(3);
    publish(5, 0, 4);
    decide(&group, 0);
    decide(&group, 1);
    group.region->slots[2].state = LAGOM_GONE; /* its communicator was destroyed before it acknowledged */
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_ABORTED);
    for (int i = 0; i < 20; i++) {
        CHECK_EQUAL(decide(&group, 0).choice.config.channels, 0);
        CHECK_EQUAL(decide(&group, 1).choice.config.channels, 0);
    }
}

static void a_dead_controller_leaves_an_open_plan_to_the_ranks(void)
{
    fresh(2);
    publish(3, 0, 4);
    for (uint64_t call = 0; call < 10; call++) {
        check_next(call, 0);
    }
    check_word(&group, LAGOM_ABORTED, 1);
    publish(20, 0, 6); /* its successor goes on with a new epoch */
    check_word(&group, LAGOM_PREPARED, 2);
}

static void the_successor_may_finish_what_is_open(void)
{
    fresh(2);
    publish(3, 0, 4);
    check_next(0, 0);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_COMMITTED); /* needs nothing but the slots */
    check_next(1, 0);
    check_next(2, 0);
    check_next(3, 4);
}

/* A committed plan waits for its start whatever the word turns into: nothing the memory says later can undo it. */
static void after_the_commit_nobody_declines(void)
{
    uint64_t seed = 3;
    fresh(2);
    publish(5, 0, 4);
    check_next(0, 0);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_COMMITTED);
    check_next(1, 0);
    for (uint64_t call = 2; call < 30; call++) {
        uint64_t *noise = (uint64_t *)(void *)&group.region->plans[0];
        for (size_t i = 0; i < sizeof(struct lagom_plan) / 8; i++) {
            noise[i] = next_random(&seed);
        }
        check_next(call, call < 5 ? 0 : 4);
    }
}

static void epochs_are_one_count_for_all_communicators(void)
{
    fresh(1);
    struct lagom_communicator *second = &group.region->communicators[1];
    *second = group.region->communicators[0];
    second->comm_id = 43;
    group.region->slots[9] = (struct lagom_slot){.communicator = 1, .comm_id = 43, .state = LAGOM_READY};
    struct lagom_plan one = simple_plan(5, 0, 4), two = simple_plan(5, 0, 4);
    CHECK_EQUAL(lagom_publish(group.region, 0, &one), LAGOM_PUBLISH_OK);
    CHECK_EQUAL(lagom_publish(group.region, 1, &two), LAGOM_PUBLISH_OK);
    CHECK(one.epoch == 1 && two.epoch == 2 && one.comm_id == GROUP_COMM_ID && two.comm_id == 43);
}

static void counters_are_published_after_the_decision(void)
{
    uint64_t smallest, largest;
    fresh(2);
    decide(&group, 0);
    decide(&group, 0);
    decide(&group, 1);
    CHECK_EQUAL(lagom_counters(group.region, 0, &smallest, &largest), 2);
    CHECK(smallest == 1 && largest == 2);
    CHECK_EQUAL(lagom_counters(group.region, 7, &smallest, &largest), 0);
    CHECK(smallest == 0 && largest == 0);
    CHECK(group.region->slots[0].history_hash != group.region->slots[1].history_hash);
    decide(&group, 1);
    CHECK(group.region->slots[0].history_hash == group.region->slots[1].history_hash);
}

static void the_reserved_state_is_left_alone(void)
{
    struct lagom_plan plan = simple_plan(5, 0, 4);
    fresh(2);
    group.region->communicators[0].word = LAGOM_WORD(LAGOM_LOCKED, 7);
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_BUSY);
    CHECK_EQUAL(poll(), LAGOM_OUTCOME_OPEN);
    check_next(0, 0);
    check_word(&group, LAGOM_LOCKED, 7);
}

/* Between two looks of a controller, one communicator was destroyed and another got its entry. */
static void a_plan_for_a_communicator_that_has_gone(void)
{
    fresh(2);
    call_all(&group, 3);
    struct lagom_plan plan = simple_plan(10, 0, 4);
    plan.comm_id = GROUP_COMM_ID - 1;
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_REPLACED);
    check_word(&group, LAGOM_COMMITTED, 0);
    CHECK_EQUAL(group.region->header.epoch_counter, 0);
    plan.comm_id = GROUP_COMM_ID;
    CHECK_EQUAL(lagom_publish(group.region, 0, &plan), LAGOM_PUBLISH_OK);
}

int main(void)
{
    RUN(stock_before_anything);
    RUN(from_the_agreed_call_on_and_not_one_earlier);
    RUN(the_lease_ends_without_anybody);
    RUN(a_rank_that_arrives_first_aborts_for_all);
    RUN(a_rank_that_comes_too_late_to_copy_aborts);
    RUN(a_lost_swap_takes_what_the_word_says);
    RUN(a_withdrawn_plan_never_happens);
    RUN(busy_until_all_have_passed);
    RUN(an_old_acknowledgement_does_not_count);
    RUN(different_histories_abort);
    RUN(a_shifted_history_aborts);
    RUN(a_rank_before_the_history_call_waits_with_its_word);
    RUN(a_damaged_plan_is_refused);
    RUN(a_plan_of_another_epoch_is_refused);
    RUN(threads_are_refused_where_they_cannot_be_set);
    RUN(a_history_too_far_back_is_refused);
    RUN(only_a_whole_communicator_is_asked);
    RUN(one_rank_registered_twice_is_not_two_ranks);
    RUN(one_rank_does_not_acknowledge_for_two);
    RUN(without_a_plan_nothing_is_offered);
    RUN(refusals_change_nothing);
    RUN(a_rank_that_leaves_aborts_and_nothing_hangs);
    RUN(a_dead_controller_leaves_an_open_plan_to_the_ranks);
    RUN(the_successor_may_finish_what_is_open);
    RUN(after_the_commit_nobody_declines);
    RUN(epochs_are_one_count_for_all_communicators);
    RUN(counters_are_published_after_the_decision);
    RUN(the_reserved_state_is_left_alone);
    RUN(a_plan_for_a_communicator_that_has_gone);
    free_group(&group);
    return 0;
}
