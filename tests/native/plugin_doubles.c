/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_doubles.c - a process that registers one communicator more often than it has ranks in it: "all are here" must
 * mean all ranks, not as many registrations. */
#include "tests/native/plugin_harness.h"

#define COMM 0xd0b1eu

static struct plugin plugin;

static struct lagom_plan tuned(void)
{
    struct lagom_plan plan = {0};
    struct lagom_config config = leave_all();
    config.channels = 7;
    add_rule(&plan, LAGOM_ANY_FUNCTION, 0, UINT64_MAX, config);
    return plan;
}

static bool is_tuned(struct rank *pair)
{
    struct lagom_region *region = map_region();
    struct lagom_plan plan = tuned();
    bool tuned_now = put_in_force(region, find_communicator_of(region, COMM), &plan, pair, 2);
    call(&pair[0], LAGOM_ALL_REDUCE, MIB);
    return tuned_now && pair[0].channels == 7;
}

static void make_pair(struct rank pair[2])
{
    plugin = load_plugin();
    for (int i = 0; i < 2; i++) {
        pair[i] = make_rank(&plugin, 6, COMM, 2, 1);
        CHECK(pair[i].context != NULL);
    }
}

static void with_profiler(struct rank pair[2], int second_rank)
{
    static int mask;
    void *profiled;
    plugin = load_plugin();
    for (int i = 0; i < 2; i++) {
        CHECK(plugin.profiler_v6->init(&profiled, COMM, &mask, "pg", 1, 2, i == 0 ? 0 : second_rank, NULL) == 0);
        pair[i] = make_rank(&plugin, 6, COMM, 2, 1);
        CHECK(pair[i].context != NULL);
    }
}

static bool is_remarked(void)
{
    return strstr(map_region()->processes[0].remark, "registered twice") != NULL;
}

static void one_gpu_registered_twice(void)
{
    struct rank pair[2];
    same_device = 3;
    make_pair(pair);
    CHECK(!is_tuned(pair) && untouched(&pair[0]));
    CHECK(is_remarked());
    end_rank(&pair[1]);
}

static void two_gpus_of_one_process(void)
{
    struct rank pair[2];
    make_pair(pair);
    CHECK(is_tuned(pair));
    CHECK(!is_remarked());
}

static void one_rank_registered_twice(void)
{
    struct rank pair[2];
    with_profiler(pair, 0); /* whatever GPUs it had */
    CHECK(!is_tuned(pair) && untouched(&pair[0]));
    CHECK(is_remarked());
}

static void two_ranks_on_one_gpu(void)
{
    struct rank pair[2];
    same_device = 3;
    with_profiler(pair, 1);
    CHECK(is_tuned(pair));
    CHECK(!is_remarked());
}

int main(void)
{
    int failures = 0;
    failures += RUN(one_gpu_registered_twice);
    failures += RUN(two_gpus_of_one_process);
    failures += RUN(one_rank_registered_twice);
    failures += RUN(two_ranks_on_one_gpu);
    return failures != 0;
}
