/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_threads.c - NT inside a communicator whose build is known: exact bytes, the defaults back afterwards, and not one
 * byte wherever a guard is broken. */
#include "tests/native/known_build_harness.h"

/* AllGather: NT=128 with NC=4; ReduceScatter: NT=256 alone; AllReduce: LL128 with NT=320. */
static bool pin(struct rank pair[2])
{
    static struct lagom_plan plan;
    struct lagom_config ll128 = threads_and_channels(320, 2);
    ll128.protocol = LAGOM_LL128;
    add_rule(&plan, LAGOM_ALL_GATHER, MIB, UINT64_MAX, threads_and_channels(128, 4));
    add_rule(&plan, LAGOM_REDUCE_SCATTER, MIB, UINT64_MAX, threads_and_channels(256, 0));
    add_rule(&plan, LAGOM_ALL_REDUCE, MIB, UINT64_MAX, ll128);
    return put_in_force(region, find_communicator_of(region, COMM), &plan, pair, 2);
}

static int ring(int protocol)
{
    return LAGOM_RING * PROTOCOLS + protocol;
}

/* Everything but the one entry is as NCCL left it. */
static void only_these_differ(int entry, int32_t threads, bool exact)
{
    CHECK_EQUAL(threads_of(structs[0])[entry], threads);
    CHECK_EQUAL(thresholds_of(structs[0])[entry], exact ? 0 : 64 + entry);
    int32_t written = threads_of(structs[0])[entry];
    int64_t threshold = thresholds_of(structs[0])[entry];
    threads_of(structs[0])[entry] = threads_of(copies[0])[entry];
    thresholds_of(structs[0])[entry] = thresholds_of(copies[0])[entry];
    CHECK(struct_untouched(0));
    threads_of(structs[0])[entry] = written;
    thresholds_of(structs[0])[entry] = threshold;
}

static void known_builds_are_written_and_restored(void)
{
    struct rank pair[2];
    start(pair, "1");
    CHECK(region->processes[0].knobs & LAGOM_KNOB_THREADS);
    CHECK(pin(pair));
    CHECK(struct_untouched(0));
    call(&pair[0], LAGOM_ALL_GATHER, 8 * MIB);
    only_these_differ(ring(LAGOM_SIMPLE), 128, true);
    call(&pair[0], LAGOM_REDUCE_SCATTER, 8 * MIB); /* without NC: NCCL's own limit on channels must stand */
    only_these_differ(ring(LAGOM_SIMPLE), 256, false);
    call(&pair[0], LAGOM_ALL_REDUCE, 8 * MIB);
    only_these_differ(ring(LAGOM_LL128), 320, true);
    CHECK_EQUAL(pair[0].channels, 2);
    call(&pair[0], LAGOM_ALL_GATHER, 1024); /* left to NCCL */
    CHECK(struct_untouched(0));
    call(&pair[0], LAGOM_ALL_GATHER, 8 * MIB);
    offer(&pair[0]);
    for (int i = 0; i < ALGORITHMS * PROTOCOLS; i++) {
        (&pair[0].table[0][0])[i] = -1;
    }
    ask(&pair[0], LAGOM_ALL_GATHER, 8 * MIB); /* not even a call, but the defaults are back */
    CHECK(struct_untouched(0));
    CHECK(struct_untouched(1));
}

static void every_known_build(void)
{
    const char *wanted = getenv("TEST_BUILD");
    use_build(&lagom_nccl_builds[atoi(wanted)]);
    known_builds_are_written_and_restored();
}

static void other_algorithms_are_never_written(void)
{
    struct rank pair[2];
    use_build(build_of(22809));
    start(pair, "1");
    CHECK(pin(pair));
    for (int algorithm = 0; algorithm < ALGORITHMS; algorithm++) {
        if (algorithm != LAGOM_RING) {
            offer(&pair[0]);
            pair[0].table[algorithm][LAGOM_SIMPLE] = 1;
            ask(&pair[0], LAGOM_ALL_GATHER, 8 * MIB);
            CHECK(struct_untouched(0));
        }
    }
}

static void out_of_range_is_left(void)
{
    struct rank pair[2];
    use_build(build_of(22809));
    start(pair, "1");
    static struct lagom_plan plan;
    add_rule(&plan, LAGOM_ALL_GATHER, 0, UINT64_MAX, threads_and_channels(640, 2)); /* SIMPLE ends at 512 */
    CHECK(put_in_force(region, find_communicator_of(region, COMM), &plan, pair, 2));
    call(&pair[0], LAGOM_ALL_GATHER, 8 * MIB);
    CHECK(struct_untouched(0));
    CHECK_EQUAL(pair[0].channels, 2);
}

/* A rank that cannot set threads refuses the plan: so no rank sets them (they bear on NCCL's own channel count). */
static void refused_with_a_reason(struct rank pair[2], const char *reason)
{
    CHECK(!pin(pair));
    call(&pair[0], LAGOM_ALL_GATHER, 8 * MIB);
    CHECK(untouched(&pair[0]));
    CHECK(struct_untouched(0) && struct_untouched(1));
    CHECK(!(region->processes[0].knobs & LAGOM_KNOB_THREADS));
    CHECK(strstr(region->processes[0].remark, reason) != NULL);
}

static void not_asked_for_is_not_done(void)
{
    struct rank pair[2];
    use_build(build_of(22809));
    start(pair, "0");
    refused_with_a_reason(pair, "");
    CHECK_EQUAL(region->processes[0].remark[0], 0);
}

static void unknown_version(void)
{
    struct rank pair[2];
    use_build(build_of(22809));
    version = 22808;
    start(pair, "1");
    refused_with_a_reason(pair, "not known");
}

/* The right version, built by somebody else: its members may lie anywhere. */
static void unknown_build(void)
{
    struct rank pair[2];
    use_build(build_of(22809));
    wear_build_id("0123456789abcdef0123456789abcdef01234567");
    start(pair, "1");
    refused_with_a_reason(pair, "not known");
}

static void build_of_another_version(void)
{
    struct rank pair[2];
    use_build(build_of(22809));
    wear_build_id(build_of(22907)->build_id);
    start(pair, "1");
    refused_with_a_reason(pair, "not known");
}

static void broken_magic(void)
{
    struct rank pair[2];
    use_build(build_of(22809));
    structs[0][CONTEXT_AT + layout->end_magic] ^= 1;
    start(pair, "1");
    CHECK(!pin(pair));
    call(&pair[0], LAGOM_ALL_GATHER, 8 * MIB);
    CHECK(struct_untouched(0) && struct_untouched(1));
    CHECK(strstr(region->processes[0].remark, "another layout") != NULL);
}

static void broken_rank_count(void)
{
    struct rank pair[2];
    use_build(build_of(22809));
    structs[0][CONTEXT_AT + layout->ranks] = 3;
    structs[1][CONTEXT_AT + layout->ranks] = 3;
    start(pair, "1");
    refused_with_a_reason(pair, "another layout");
}

static void broken_hash(void)
{
    struct rank pair[2];
    use_build(build_of(22809));
    structs[0][CONTEXT_AT + layout->comm_hash] ^= 1;
    structs[1][CONTEXT_AT + layout->comm_hash] ^= 1;
    start(pair, "1");
    refused_with_a_reason(pair, "another layout");
}

static void broken_pattern(void)
{
    struct rank pair[2];
    use_build(build_of(22809));
    start(pair, "1");
    for (int i = 0; i < 2; i++) { /* as NCCL_NTHREADS=256 would; it is only there at the first call */
        threads_of(structs[i])[ring(LAGOM_LL)] = 256;
        memcpy(copies[i], structs[i], STRUCT_BYTES);
    }
    refused_with_a_reason(pair, "NCCL_NTHREADS");
}

static void every_build_is_recognised_by_its_id(void)
{
    for (size_t i = 0; i < sizeof(lagom_nccl_builds) / sizeof(lagom_nccl_builds[0]); i++) {
        struct lagom_caller caller = {.version = lagom_nccl_builds[i].version};
        memcpy(caller.build_id, lagom_nccl_builds[i].build_id, LAGOM_BUILD_ID_TEXT);
        const struct lagom_nccl_build *found = lagom_build_of(&caller);
        CHECK(found != NULL && memcmp(found, &lagom_nccl_builds[i], sizeof(*found)) == 0);
        caller.version++;
        CHECK(lagom_build_of(&caller) == NULL);
    }
    CHECK(lagom_build_of(&(struct lagom_caller){.version = 0}) == NULL);
}

/* The context place is some pointer of a caller that is no libnccl, at the edge of its memory. */
static void memory_that_is_not_there(void)
{
    use_build(build_of(22809));
    setenv("LAGOM_NT", "1", 1);
    plugin = load_plugin();
    char *page = mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(page, 4096) == 0 && munmap(page + 8192, 4096) == 0);
    void **place = (void **)(void *)(page + 4096);
    CHECK(plugin.v6->init(place, COMM, 2, 1, log_nothing, NULL, NULL) == 0);
    CHECK(*place != NULL);
    hold(NULL, *place);
    CHECK(strstr(map_region()->processes[0].remark, "not a communicator") != NULL);
}

static bool same_layout(const struct lagom_nccl_build *one, const struct lagom_nccl_build *other)
{
    return one->version == other->version && one->end_magic == other->end_magic &&
           one->max_threads == other->max_threads;
}

/* One of each layout; the builds that share one differ in nothing but their names. */
static int run_every_build(void)
{
    int failures = 0;
    for (size_t i = 0; i < sizeof(lagom_nccl_builds) / sizeof(lagom_nccl_builds[0]); i++) {
        if (i > 0 && same_layout(&lagom_nccl_builds[i], &lagom_nccl_builds[i - 1])) {
            continue;
        }
        char number[16], name[32];
        snprintf(number, sizeof(number), "%zu", i);
        snprintf(name, sizeof(name), "%d %.8s", lagom_nccl_builds[i].version, lagom_nccl_builds[i].build_id);
        setenv("TEST_BUILD", number, 1);
        failures += run_case(every_known_build, name);
    }
    return failures;
}

int main(void)
{
    int failures = run_every_build();
    failures += RUN(every_build_is_recognised_by_its_id);
    failures += RUN(other_algorithms_are_never_written);
    failures += RUN(out_of_range_is_left);
    failures += RUN(not_asked_for_is_not_done);
    failures += RUN(unknown_version);
    failures += RUN(unknown_build);
    failures += RUN(build_of_another_version);
    failures += RUN(broken_magic);
    failures += RUN(broken_rank_count);
    failures += RUN(broken_hash);
    failures += RUN(broken_pattern);
    failures += RUN(memory_that_is_not_there);
    return failures != 0;
}
