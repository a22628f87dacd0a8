/* SPDX-License-Identifier: Apache-2.0 */
/* agreement_epochs.c - no epoch is used twice for one communicator, whatever has become of the region's counter: the
 * acknowledgements of its first plan would count for the second. */
#include "tests/native/group.h"

static uint64_t publish_at(struct group *group, uint64_t start)
{
    struct lagom_plan plan = simple_plan(start, 0, 4);
    CHECK_EQUAL(lagom_publish(group->region, 0, &plan), LAGOM_PUBLISH_OK);
    return plan.epoch;
}

static uint64_t agree_on_one(struct group *group, uint64_t start)
{
    uint64_t epoch = publish_at(group, start);
    call_all(group, 1);
    CHECK_EQUAL(lagom_publish_poll(group->region, 0), LAGOM_OUTCOME_COMMITTED);
    call_all(group, 4);
    return epoch;
}

static void with_counter(uint64_t counter)
{
    struct group group = make_group(2);
    call_all(&group, 1);
    uint64_t first = agree_on_one(&group, 4), second = agree_on_one(&group, 9);
    CHECK(second > first);
    lagom_store_release(&group.region->header.epoch_counter, counter);
    uint64_t third = publish_at(&group, 20);
    CHECK(third > second);
    CHECK_EQUAL(LAGOM_WORD_EPOCH(group.region->communicators[0].word), third); /* 62 bits hold it */
    CHECK(lagom_load_relaxed(&group.region->header.epoch_counter) >= third);   /* other communicators go on above it */
    free_group(&group);
}

static void a_counter_that_was_set_back_is_passed(void)
{
    with_counter(0);
    with_counter(1);
}

static void a_counter_beyond_what_a_word_holds_is_not_used(void)
{
    with_counter(UINT64_MAX - 1);
    with_counter(LAGOM_WORD_EPOCH(UINT64_MAX));
}

int main(void)
{
    RUN(a_counter_that_was_set_back_is_passed);
    RUN(a_counter_beyond_what_a_word_holds_is_not_used);
    return 0;
}
