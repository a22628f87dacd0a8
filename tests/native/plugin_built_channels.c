/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_built_channels.c - channels where NCCL takes them unchecked (built_channels.h): no more than are built. */
#include "tests/native/known_build_harness.h"

/* Rules of 8 channels for AllGather and ReduceScatter; 3 are built. */
static bool pin_many(struct rank pair[2])
{
    static struct lagom_plan plan;
    add_rule(&plan, LAGOM_ALL_GATHER, 0, UINT64_MAX, threads_and_channels(0, 8));
    add_rule(&plan, LAGOM_REDUCE_SCATTER, 0, UINT64_MAX, threads_and_channels(0, 8));
    return put_in_force(region, find_communicator_of(region, COMM), &plan, pair, 2);
}

static int all_gather_channels(struct rank *rank)
{
    call(rank, LAGOM_ALL_GATHER, 8 * MIB);
    return rank->channels;
}

static void all_gather_gets_what_is_built(int wanted, int channels)
{
    struct rank pair[2];
    use_build(build_of(wanted));
    start(pair, "0"); /* reading needs no LAGOM_NT */
    CHECK(pin_many(pair));
    CHECK_EQUAL(all_gather_channels(&pair[0]), channels);
    call(&pair[0], LAGOM_REDUCE_SCATTER, 8 * MIB); /* NCCL bounds that one itself */
    CHECK_EQUAL(pair[0].channels, 8);
    CHECK(struct_untouched(0));
}

static void grouped_broadcasts_are_bounded(void)
{
    all_gather_gets_what_is_built(23007, 3);
}

static void before_them_nothing_is_bounded(void)
{
    all_gather_gets_what_is_built(22809, 8);
}

static void after_them_nccl_bounds(void)
{
    all_gather_gets_what_is_built(23102, 8);
}

static void switched_off_they_are_no_matter(void)
{
    setenv("NCCL_ALLGATHERV_ENABLE", "0", 1);
    all_gather_gets_what_is_built(23007, 8);
}

/* The rank has never seen more than so many run: a plan that says more is nobody's. */
static void show_channels(void *contexts[2], int channels)
{
    struct nccl_event_v5 event = {.type = NCCL_EVENT_COLL};
    void *handle;
    event.body.coll = (struct nccl_event_coll){.function = "AllGather", .count = 4, .type = "ncclInt8",
                                               .channels = (uint8_t)channels, .algorithm = "RING",
                                               .protocol = "SIMPLE"};
    for (int i = 0; i < 2; i++) {
        CHECK(plugin.profiler_v5->start_event(contexts[i], &handle, &event) == 0);
        CHECK(plugin.profiler_v5->stop_event(handle) == 0);
    }
}

static void an_unknown_build_goes_by_what_ran(void)
{
    static int mask;
    struct rank pair[2];
    void *contexts[2];
    use_build(build_of(23007));
    wear_build_id("0123456789abcdef0123456789abcdef01234567");
    plugin = load_plugin();
    for (int i = 0; i < 2; i++) {
        CHECK(plugin.profiler_v5->init(&contexts[i], COMM, &mask, "pg", 1, 2, i, log_nothing) == 0);
        pair[i] = rank_in(i);
    }
    region = map_region();
    CHECK(!pin_many(pair));
    CHECK_EQUAL(region->slots[0].refused_fault, LAGOM_PLAN_MANY_CHANNELS);
    show_channels(contexts, 6);
    CHECK(!pin_many(pair));
    show_channels(contexts, 8);
    CHECK(pin_many(pair));
    CHECK_EQUAL(all_gather_channels(&pair[0]), 8);
}

int main(void)
{
    int failures = RUN(grouped_broadcasts_are_bounded);
    failures += RUN(before_them_nothing_is_bounded);
    failures += RUN(after_them_nccl_bounds);
    failures += RUN(switched_off_they_are_no_matter);
    failures += RUN(an_unknown_build_goes_by_what_ran);
    return failures != 0;
}
