/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_chunk.c - v6: the chunk of the right decision, in groups too; only ever lower, never below the floor. */
#include "tests/native/plugin_harness.h"

#define COMM 0x77u
#define STOCK_CHUNK ((size_t)2 * MIB)
#define KIB 1024u

static struct plugin plugin;
static struct lagom_region *region;

static struct lagom_config chunked(uint32_t bytes)
{
    struct lagom_config config = leave_all();
    config.chunk_bytes = bytes;
    return config;
}

/* AllGather 256 KiB from 16 MiB on, 512 KiB below; ReduceScatter 16 KiB; AllReduce from 1 MiB on stays stock. */
static void tuned_pair(struct rank pair[2])
{
    static struct lagom_plan plan;
    plugin = load_plugin();
    pair[0] = make_rank(&plugin, 6, COMM, 2, 1);
    pair[1] = make_rank(&plugin, 6, COMM, 2, 1);
    region = map_region();
    add_rule(&plan, LAGOM_ALL_GATHER, 16 * MIB, UINT64_MAX, chunked(256 * KIB));
    add_rule(&plan, LAGOM_ALL_GATHER, MIB, 16 * MIB - 1, chunked(512 * KIB));
    add_rule(&plan, LAGOM_REDUCE_SCATTER, 0, UINT64_MAX, chunked(16 * KIB));
    add_rule(&plan, LAGOM_ALL_REDUCE, 64 * MIB, UINT64_MAX, chunked(100 * 1000));
    CHECK(put_in_force(region, find_communicator_of(region, COMM), &plan, pair, 2));
}

static size_t ring_chunk(struct rank *rank, int function)
{
    return chunk_of(rank, function, LAGOM_RING, LAGOM_SIMPLE, STOCK_CHUNK);
}

static void one_collective_has_up_to_three_parts(void)
{
    struct rank pair[2];
    tuned_pair(pair);
    call(&pair[0], LAGOM_ALL_GATHER, 32 * MIB);
    CHECK(untouched(&pair[0]));
    for (int part = 0; part < 3; part++) {
        CHECK_EQUAL(ring_chunk(&pair[0], LAGOM_ALL_GATHER), 256 * KIB);
    }
    call(&pair[0], LAGOM_ALL_GATHER, 2 * MIB);
    CHECK_EQUAL(ring_chunk(&pair[0], LAGOM_ALL_GATHER), 512 * KIB);
    call(&pair[0], LAGOM_ALL_GATHER, 64 * KIB); /* no rule: the one before must not linger */
    CHECK_EQUAL(ring_chunk(&pair[0], LAGOM_ALL_GATHER), STOCK_CHUNK);
}

/* All calls of a group come before its first getChunkSize. */
static void a_group_is_told_apart_by_function(void)
{
    struct rank pair[2];
    tuned_pair(pair);
    call(&pair[0], LAGOM_ALL_GATHER, 32 * MIB);
    call(&pair[0], LAGOM_ALL_REDUCE, 2 * MIB);
    call(&pair[0], LAGOM_REDUCE_SCATTER, 2 * MIB);
    CHECK_EQUAL(ring_chunk(&pair[0], LAGOM_ALL_GATHER), 256 * KIB);
    CHECK_EQUAL(ring_chunk(&pair[0], LAGOM_ALL_REDUCE), STOCK_CHUNK);
    CHECK_EQUAL(ring_chunk(&pair[0], LAGOM_REDUCE_SCATTER), 16 * KIB);
    CHECK_EQUAL(ring_chunk(&pair[0], LAGOM_ALL_GATHER), 256 * KIB);
}

static void a_tie_takes_the_smaller_one(void)
{
    struct rank pair[2];
    tuned_pair(pair);
    for (int order = 0; order < 2; order++) {
        call(&pair[0], LAGOM_ALL_GATHER, order == 0 ? 32 * MIB : 2 * MIB);
        call(&pair[0], LAGOM_ALL_GATHER, order == 0 ? 2 * MIB : 32 * MIB);
        CHECK_EQUAL(ring_chunk(&pair[0], LAGOM_ALL_GATHER), 256 * KIB);
        CHECK_EQUAL(ring_chunk(&pair[0], LAGOM_ALL_GATHER), 256 * KIB);
    }
    call(&pair[0], LAGOM_ALL_GATHER, 64 * KIB); /* left to NCCL, beside one that is not */
    call(&pair[0], LAGOM_ALL_GATHER, 2 * MIB);
    CHECK_EQUAL(ring_chunk(&pair[0], LAGOM_ALL_GATHER), 512 * KIB);
}

static void another_algorithm_or_protocol_is_another_question(void)
{
    struct rank pair[2];
    tuned_pair(pair);
    call(&pair[0], LAGOM_ALL_GATHER, 32 * MIB); /* decided for RING/SIMPLE */
    CHECK_EQUAL(chunk_of(&pair[0], LAGOM_ALL_GATHER, LAGOM_TREE, LAGOM_SIMPLE, STOCK_CHUNK), STOCK_CHUNK);
    CHECK_EQUAL(chunk_of(&pair[0], LAGOM_ALL_GATHER, LAGOM_RING, LAGOM_LL, STOCK_CHUNK), STOCK_CHUNK);
    CHECK_EQUAL(ring_chunk(&pair[0], LAGOM_ALL_GATHER), 256 * KIB);
}

static void never_above_what_came_in(void)
{
    struct rank pair[2];
    tuned_pair(pair);
    call(&pair[0], LAGOM_ALL_GATHER, 32 * MIB);
    CHECK_EQUAL(chunk_of(&pair[0], LAGOM_ALL_GATHER, LAGOM_RING, LAGOM_SIMPLE, 128 * KIB), 128 * KIB);
    CHECK_EQUAL(chunk_of(&pair[0], LAGOM_ALL_GATHER, LAGOM_RING, LAGOM_SIMPLE, 4096), 4096);
    CHECK_EQUAL(chunk_of(&pair[0], LAGOM_ALL_GATHER, LAGOM_RING, LAGOM_SIMPLE, 0), 0);
}

/* NVLS buffers lie whole multiples of 16 KiB apart. */
static void nvls_is_lowered_to_whole_slots(void)
{
    struct rank pair[2];
    tuned_pair(pair);
    offer(&pair[0]);
    pair[0].table[LAGOM_NVLS][LAGOM_SIMPLE] = 1; /* NCCL picks NVLS */
    ask(&pair[0], LAGOM_ALL_REDUCE, 64 * MIB);
    CHECK_EQUAL(chunk_of(&pair[0], LAGOM_ALL_REDUCE, LAGOM_NVLS, LAGOM_SIMPLE, 128 * KIB), 96 * KIB); /* of 100,000 */
    CHECK_EQUAL(chunk_of(&pair[0], LAGOM_ALL_REDUCE, LAGOM_NVLS, LAGOM_SIMPLE, 64 * KIB), 64 * KIB);
}

static void garbage_is_survived(void)
{
    struct rank pair[2];
    tuned_pair(pair);
    size_t chunk = 12345;
    const struct nccl_tuner_v6 *v6 = plugin.v6;
    CHECK(v6->get_chunk_size(NULL, LAGOM_ALL_GATHER, 1, 1, 2, 1, &chunk) == 0);
    CHECK(v6->get_chunk_size(pair[0].context, LAGOM_ALL_GATHER, 1, 1, 2, 1, NULL) == 0);
    for (int function = -2; function < 12; function++) {
        for (int algorithm = -2; algorithm < 12; algorithm++) {
            for (int protocol = -2; protocol < 6; protocol++) {
                CHECK(v6->get_chunk_size(pair[0].context, function, 1, algorithm, protocol, 1, &chunk) == 0);
            }
        }
    }
    CHECK_EQUAL(chunk, 12345);
}

int main(void)
{
    int failures = 0;
    failures += RUN(one_collective_has_up_to_three_parts);
    failures += RUN(a_group_is_told_apart_by_function);
    failures += RUN(a_tie_takes_the_smaller_one);
    failures += RUN(another_algorithm_or_protocol_is_another_question);
    failures += RUN(never_above_what_came_in);
    failures += RUN(nvls_is_lowered_to_whole_slots);
    failures += RUN(garbage_is_survived);
    return failures != 0;
}
