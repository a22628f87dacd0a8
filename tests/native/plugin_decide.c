/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_decide.c - what reaches NCCL: nothing on a miss; A, P, NC where plan and table have them; records. */
#include "tests/native/plugin_harness.h"

#define COMM 0x1234u
#define BYTES (8u * MIB)

static struct plugin plugin;
static struct lagom_region *region;
static uint32_t communicator;

/* Two ranks in one process: the smallest communicator there is to agree on something. */
static void two_ranks(struct rank pair[2], int api, size_t nodes)
{
    plugin = load_plugin();
    if (api == 4) {
        static int mask;              /* NCCL's lives as long as the process */
        for (int i = 0; i < 2; i++) { /* 2.27 with both variables: the id comes through the profiler plugin */
            void *context;
            plugin.profiler_v4->init(&context, &mask, "default_pg", COMM, (int)nodes, 2, i, NULL);
            pair[i] = make_rank(&plugin, api, COMM, 2, nodes);
        }
    } else {
        pair[0] = make_rank(&plugin, api, COMM, 2, nodes);
        pair[1] = make_rank(&plugin, api, COMM, 2, nodes);
    }
    region = map_region();
    CHECK(region != NULL && pair[0].context != NULL && pair[1].context != NULL);
    communicator = find_communicator_of(region, COMM);
    CHECK(communicator != UINT32_MAX);
}

static void pin(struct rank pair[2], int api, struct lagom_config config)
{
    static struct lagom_plan plan;
    two_ranks(pair, api, 1);
    add_rule(&plan, LAGOM_ALL_GATHER, MIB, UINT64_MAX, config);
    CHECK(put_in_force(region, communicator, &plan, pair, 2));
}

static void stock_is_untouched_in_every_version(void)
{
    for (int api = 4; api <= 6; api++) {
        struct rank pair[2];
        two_ranks(pair, api, 1);
        for (int i = 0; i < 100; i++) {
            call(&pair[i % 2], i % LAGOM_FUNCTIONS, (size_t)i << 18);
            CHECK(untouched(&pair[i % 2]));
        }
        end_rank(&pair[0]);
        end_rank(&pair[1]);
    }
}

static void channels_are_set_from_the_agreed_call_on(int api)
{
    struct rank pair[2];
    struct lagom_config config = leave_all();
    config.channels = 3;
    pin(pair, api, config);
    call(&pair[0], LAGOM_ALL_GATHER, BYTES);
    CHECK_EQUAL(pair[0].channels, 3);
    pair[0].channels = 0;
    CHECK(untouched(&pair[0])); /* the table is not needed for that */
    call(&pair[0], LAGOM_ALL_GATHER, MIB - 1);
    CHECK(untouched(&pair[0]));
    call(&pair[0], LAGOM_REDUCE_SCATTER, BYTES);
    CHECK(untouched(&pair[0]));
}

static void channels_by_v4(void)
{
    channels_are_set_from_the_agreed_call_on(4);
}

static void channels_by_v5(void)
{
    channels_are_set_from_the_agreed_call_on(5);
}

static void channels_by_v6(void)
{
    channels_are_set_from_the_agreed_call_on(6);
}

static void algorithm_and_protocol_win(void)
{
    struct rank pair[2];
    struct lagom_config config = leave_all();
    config.algorithm = LAGOM_TREE;
    config.protocol = LAGOM_LL128;
    pin(pair, 5, config);
    call(&pair[0], LAGOM_ALL_GATHER, BYTES);
    CHECK_EQUAL(stock_pick(&pair[0]), LAGOM_TREE * PROTOCOLS + LAGOM_LL128);
    CHECK(pair[0].table[LAGOM_TREE][LAGOM_LL128] == 0.0f);
    pair[0].table[LAGOM_TREE][LAGOM_LL128] = 250;
    CHECK(untouched(&pair[0])); /* no other entry was written */
}

static void one_half_of_the_pair_takes_the_best_of_the_rest(void)
{
    struct rank pair[2];
    struct lagom_config config = leave_all();
    config.protocol = LAGOM_LL;
    pin(pair, 5, config);
    call(&pair[0], LAGOM_ALL_GATHER, BYTES);
    CHECK_EQUAL(stock_pick(&pair[0]), LAGOM_RING * PROTOCOLS + LAGOM_LL);
}

static void what_is_not_offered_is_left_alone(void)
{
    struct rank pair[2];
    struct lagom_config config = leave_all();
    config.algorithm = LAGOM_COLLNET_DIRECT;
    config.channels = 2;
    pin(pair, 5, config);
    lagom_capture_set(region, communicator, LAGOM_CAPTURE_CALLS);
    call(&pair[0], LAGOM_ALL_GATHER, BYTES);
    CHECK(untouched(&pair[0])); /* not even the channels: the config is one thing */
    struct lagom_call_record record;
    CHECK_EQUAL(lagom_call_ring_drain(region, 0, &record, 1), 1);
    CHECK(record.flags & LAGOM_CALL_UNAVAILABLE);
    CHECK(!(record.flags & LAGOM_CALL_APPLIED));
}

/* A user's NCCL_ALGO or NCCL_PROTO shows as -1; NCCL >= 2.31 would take an entry that somebody sets to -1. */
static void minus_one_is_neither_touched_nor_written(void)
{
    struct rank pair[2];
    struct lagom_config config = leave_all();
    config.algorithm = LAGOM_TREE;
    pin(pair, 5, config);
    offer(&pair[0]);
    pair[0].table[LAGOM_TREE][LAGOM_SIMPLE] = -1;
    pair[0].table[LAGOM_TREE][LAGOM_LL128] = -1;
    ask(&pair[0], LAGOM_ALL_GATHER, BYTES);
    CHECK(pair[0].table[LAGOM_TREE][LAGOM_LL] == 0.0f);
    CHECK(pair[0].table[LAGOM_TREE][LAGOM_SIMPLE] == -1 && pair[0].table[LAGOM_TREE][LAGOM_LL128] == -1);
    for (int i = 0; i < ALGORITHMS * PROTOCOLS; i++) {
        float cost = (&pair[0].table[0][0])[i];
        CHECK(cost == -1 || cost >= 0);
    }
}

/* Ties go to the lowest index up to 2.30 and to the highest from 2.31 on: there must be none. */
static void another_zero_does_not_tie_with_the_winner(void)
{
    struct rank pair[2];
    struct lagom_config config = leave_all();
    config.algorithm = LAGOM_RING;
    config.protocol = LAGOM_LL;
    pin(pair, 5, config);
    offer(&pair[0]);
    pair[0].table[LAGOM_TREE][LAGOM_LL] = 0;
    pair[0].table[LAGOM_NVLS][LAGOM_SIMPLE] = 0;
    ask(&pair[0], LAGOM_ALL_GATHER, BYTES);
    int zeros = 0;
    for (int i = 0; i < ALGORITHMS * PROTOCOLS; i++) {
        zeros += (&pair[0].table[0][0])[i] == 0;
    }
    CHECK_EQUAL(zeros, 1);
    CHECK(pair[0].table[LAGOM_RING][LAGOM_LL] == 0);
}

static void a_pick_that_is_already_nccls_writes_nothing(void)
{
    struct rank pair[2];
    struct lagom_config config = leave_all();
    config.algorithm = LAGOM_RING;
    config.protocol = LAGOM_SIMPLE;
    pin(pair, 5, config);
    call(&pair[0], LAGOM_ALL_GATHER, BYTES);
    CHECK(untouched(&pair[0]));
}

/* CollNet takes our number without a bound; NVLS over several nodes too. */
static void unbounded_channels_are_never_set(void)
{
    struct rank pair[2];
    struct lagom_config config = leave_all();
    config.channels = 8;
    pin(pair, 5, config);
    offer(&pair[0]);
    pair[0].table[LAGOM_COLLNET_CHAIN][LAGOM_SIMPLE] = 1; /* now NCCL's own pick */
    ask(&pair[0], LAGOM_ALL_GATHER, BYTES);
    CHECK_EQUAL(pair[0].channels, 0);
    offer(&pair[0]);
    pair[0].table[LAGOM_NVLS][LAGOM_SIMPLE] = 1;
    ask(&pair[0], LAGOM_ALL_GATHER, BYTES);
    CHECK_EQUAL(pair[0].channels, 8); /* one node: bounded by NCCL */
}

static void odd_tables_and_functions_are_survived(void)
{
    struct rank pair[2];
    struct lagom_config config = leave_all();
    config.algorithm = LAGOM_PAT; /* row 6: not in a table of 5 or 6 */
    config.channels = 3;
    pin(pair, 6, config);
    const struct nccl_tuner_v6 *v6 = plugin.v6;
    void *context = pair[0].context;
    uint64_t counted = region->slots[0].calls;
    for (int rows = 5; rows <= 9; rows++) {
        for (int columns = 1; columns <= 4; columns++) {
            float costs[9 * 4], before[9 * 4];
            for (int i = 0; i < 36; i++) {
                costs[i] = before[i] = (float)(100 + i);
            }
            int channels = 0;
            CHECK(v6->get_coll_info(context, LAGOM_ALL_GATHER, BYTES, 1, (float **)(void *)costs, rows, columns, 0,
                                    &channels) == 0);
            CHECK_EQUAL(channels, rows == 5 || rows == 6 ? 0 : 3);
            for (int i = 0; i < 36; i++) { /* nothing outside the row, nothing beyond the table */
                CHECK(costs[i] == before[i] || (i >= 6 * columns && i < 7 * columns && rows >= 7));
            }
            counted++;
        }
    }
    CHECK_EQUAL(region->slots[0].calls, counted);
    float all[ALGORITHMS][PROTOCOLS];
    int channels = 0;
    for (int i = 0; i < ALGORITHMS * PROTOCOLS; i++) {
        (&all[0][0])[i] = -1;
    }
    float **flat = (float **)(void *)all;
    uint64_t uncounted = region->slots[0].uncounted;
    CHECK(v6->get_coll_info(context, LAGOM_ALL_GATHER, BYTES, 1, flat, ALGORITHMS, PROTOCOLS, 0, &channels) == 0);
    CHECK(v6->get_coll_info(context, LAGOM_ALL_GATHER, BYTES, 1, NULL, ALGORITHMS, PROTOCOLS, 0, &channels) == 0);
    CHECK(v6->get_coll_info(context, LAGOM_ALL_GATHER, BYTES, 1, flat, ALGORITHMS, PROTOCOLS, 0, NULL) == 0);
    CHECK(v6->get_coll_info(context, LAGOM_ALL_GATHER, BYTES, 1, flat, 0, 0, 0, &channels) == 0);
    CHECK(v6->get_coll_info(context, LAGOM_ALL_GATHER, BYTES, 1, flat, 1 << 30, 1 << 30, 0, &channels) == 0);
    CHECK(v6->get_coll_info(context, LAGOM_ALL_GATHER, BYTES, 1, flat, -7, -3, 0, &channels) == 0);
    all[1][2] = 5;
    for (int function = LAGOM_FUNCTIONS; function < 40; function++) {
        CHECK(v6->get_coll_info(context, function, BYTES, 1, flat, ALGORITHMS, PROTOCOLS, 0, &channels) == 0);
    }
    CHECK(v6->get_coll_info(context, -1, BYTES, 1, flat, ALGORITHMS, PROTOCOLS, 0, &channels) == 0);
    CHECK(channels == 0 && all[1][2] == 5);
    CHECK_EQUAL(region->slots[0].calls, counted); /* not one of these is a call */
    CHECK_EQUAL(region->slots[0].uncounted - uncounted, 6 + 35 + 1);
}

static void a_record_says_what_nccl_wanted_and_what_we_did(void)
{
    struct rank pair[2];
    struct lagom_config config = leave_all();
    config.channels = 5;
    config.chunk_bytes = 1 << 18; /* not possible in v5 */
    pin(pair, 5, config);
    lagom_capture_set(region, communicator, LAGOM_CAPTURE_CALLS);
    uint64_t number = region->slots[0].calls;
    call(&pair[0], LAGOM_ALL_GATHER, BYTES);
    call(&pair[0], LAGOM_BROADCAST, 10);
    struct lagom_call_record records[3];
    CHECK_EQUAL(lagom_call_ring_drain(region, 0, records, 3), 2);
    const struct lagom_call_record *tuned = &records[0];
    CHECK_EQUAL(tuned->call, number);
    CHECK_EQUAL(tuned->bytes, BYTES);
    CHECK_EQUAL(tuned->function, LAGOM_ALL_GATHER);
    CHECK_EQUAL(tuned->stock_algorithm, LAGOM_RING);
    CHECK_EQUAL(tuned->stock_protocol, LAGOM_SIMPLE);
    CHECK(tuned->stock_us == 100);
    CHECK_EQUAL(tuned->chosen.channels, 5);
    CHECK_EQUAL(tuned->chosen.chunk_bytes, 0); /* what was asked of NCCL, not what was wished for */
    CHECK_EQUAL(tuned->flags, LAGOM_CALL_APPLIED);
    CHECK_EQUAL(tuned->pipe_ops, 1);
    CHECK(tuned->time_ns != 0);
    CHECK_EQUAL(records[1].flags, LAGOM_CALL_TRANSPARENT);
    CHECK_EQUAL(records[1].chosen.channels, 0);
    CHECK(region->slots[0].applied >= 1);
}

/* NCCL 2.32 asks ahead of a call what it would cost, of rounded bytes: no rank may count that, nor answer it. */
static void an_estimate_is_no_call(void)
{
    struct rank pair[2];
    struct lagom_config config = leave_all();
    config.channels = 5;
    pin(pair, 6, config);
    uint64_t calls = region->slots[0].calls, uncounted = region->slots[0].uncounted;
    float costs[ALGORITHMS * PROTOCOLS], before[ALGORITHMS * PROTOCOLS];
    for (size_t i = 0; i < ALGORITHMS * PROTOCOLS; i++) {
        costs[i] = before[i] = (float)(100 + i);
    }
    int channels = 0;
    float **flat = (float **)(void *)costs;
    CHECK(pair[0].plugin.v6->get_coll_info(pair[0].context, LAGOM_ALL_GATHER, BYTES, 0, flat, ALGORITHMS, PROTOCOLS, 0,
                                           &channels) == 0);
    CHECK(memcmp(costs, before, sizeof(costs)) == 0 && channels == 0);
    CHECK_EQUAL(region->slots[0].calls, calls);
    CHECK_EQUAL(region->slots[0].uncounted, uncounted);
    CHECK(pair[0].plugin.v6->get_coll_info(pair[0].context, LAGOM_ALL_GATHER, BYTES, 1, flat, ALGORITHMS, PROTOCOLS, 0,
                                           &channels) == 0);
    CHECK_EQUAL(region->slots[0].calls, calls + 1);
    CHECK_EQUAL(channels, 5);
}

static void a_plan_with_threads_is_refused_where_they_cannot_be_set(void)
{
    struct rank pair[2];
    static struct lagom_plan plan;
    struct lagom_config config = leave_all();
    config.threads = 128;
    two_ranks(pair, 5, 1);
    add_rule(&plan, LAGOM_ALL_GATHER, 0, UINT64_MAX, config);
    CHECK(!put_in_force(region, communicator, &plan, pair, 2));
    CHECK_EQUAL(region->slots[0].refused_fault, LAGOM_PLAN_NO_THREADS);
}

/* regBuff is per rank: seen, never an input. Without the profiler plugin it is the only sign of a graph capture. */
static void registered_buffers_are_noted(void)
{
    struct rank pair[2];
    two_ranks(pair, 5, 1);
    offer(&pair[0]);
    CHECK_EQUAL(region->slots[0].capturing, 0);
    plugin.v5->get_coll_info(pair[0].context, LAGOM_ALL_GATHER, BYTES, 1, (float **)(void *)pair[0].table, ALGORITHMS,
                             PROTOCOLS, 1, &pair[0].channels);
    CHECK_EQUAL(region->slots[0].capturing, 1);
    CHECK(untouched(&pair[0]));
}

static void a_process_says_what_it_can(void)
{
    struct rank pair[2];
    two_ranks(pair, 6, 1);
    const struct lagom_process *process = &region->processes[0];
    CHECK_EQUAL(process->tuner_api, 6);
    CHECK_EQUAL(process->knobs, LAGOM_KNOB_CHANNELS | LAGOM_KNOB_ALGORITHM | LAGOM_KNOB_CHUNK | LAGOM_KNOB_ONLINE);
    CHECK_EQUAL(region->slots[0].rank, LAGOM_UNKNOWN_RANK);
    CHECK_EQUAL(region->communicators[communicator].rank_count, 2);
    CHECK_EQUAL(process->remark[0], 0);
}

int main(void)
{
    int failures = 0;
    failures += RUN(stock_is_untouched_in_every_version);
    failures += RUN(channels_by_v4);
    failures += RUN(channels_by_v5);
    failures += RUN(channels_by_v6);
    failures += RUN(algorithm_and_protocol_win);
    failures += RUN(one_half_of_the_pair_takes_the_best_of_the_rest);
    failures += RUN(what_is_not_offered_is_left_alone);
    failures += RUN(minus_one_is_neither_touched_nor_written);
    failures += RUN(another_zero_does_not_tie_with_the_winner);
    failures += RUN(a_pick_that_is_already_nccls_writes_nothing);
    failures += RUN(unbounded_channels_are_never_set);
    failures += RUN(odd_tables_and_functions_are_survived);
    failures += RUN(a_record_says_what_nccl_wanted_and_what_we_did);
    failures += RUN(an_estimate_is_no_call);
    failures += RUN(a_plan_with_threads_is_refused_where_they_cannot_be_set);
    failures += RUN(registered_buffers_are_noted);
    failures += RUN(a_process_says_what_it_can);
    return failures != 0;
}
