/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_headroom.c - head-room: every call that no plan speaks for runs with the channels NCCL would have used without
 * it, whatever became of region, mode and rank; and without head-room nothing changes. */
#include "tests/native/plugin_harness.h"
#include "tuner_plugin/headroom.h"

#define COMM 0x5151u
#define RANKS 8
#define BUILT 32
#define STOCK 24

static struct plugin plugin;

/* ---- NCCL's own rule, written down a second time --------------------------------------------------------------- */

struct nccl {
    int built;
    int ring_threads;
};

static long threshold_of(int algorithm, int protocol)
{
    long threshold = protocol == LAGOM_SIMPLE ? 64 : 8;
    return algorithm == LAGOM_RING && protocol == LAGOM_LL ? threshold * RANKS : threshold;
}

static int threads_of(struct nccl nccl, int algorithm, int protocol)
{
    return protocol == LAGOM_LL128                                  ? 640
           : algorithm == LAGOM_RING && protocol == LAGOM_SIMPLE ? nccl.ring_threads
                                                                   : 512;
}

static int own_channels(struct nccl nccl, int algorithm, int protocol, size_t bytes)
{
    int channels = nccl.built;
    long a_channel = threads_of(nccl, algorithm, protocol) * threshold_of(algorithm, protocol);
    while (channels > 1 && (long)bytes < channels * a_channel) {
        channels--;
    }
    return channels;
}

/* Up to 2.30 the tuner's number replaces NCCL's; from 2.31 on it is an upper bound. Both end at what was built. */
static int used_channels(struct nccl nccl, int algorithm, int protocol, size_t bytes, int asked, bool only_lower)
{
    int own = own_channels(nccl, algorithm, protocol, bytes);
    int used = asked == 0 ? own : only_lower && own < asked ? own : asked;
    return used < nccl.built ? used : nccl.built;
}

/* ---- Every call of a communicator ------------------------------------------------------------------------------- */

static void offer_only(struct rank *rank, int algorithm, int protocol)
{
    for (int i = 0; i < ALGORITHMS * PROTOCOLS; i++) {
        rank->table[i / PROTOCOLS][i % PROTOCOLS] = -1;
    }
    rank->table[algorithm][protocol] = 100;
    rank->channels = 0;
}

static void expect_channels_at(struct rank *rank, struct nccl with, struct nccl without, int algorithm, int protocol,
                               size_t bytes)
{
    offer_only(rank, algorithm, protocol);
    ask(rank, LAGOM_ALL_REDUCE, bytes);
    for (int only_lower = 0; only_lower < 2; only_lower++) {
        CHECK_EQUAL(used_channels(with, algorithm, protocol, bytes, rank->channels, only_lower != 0),
                    own_channels(without, algorithm, protocol, bytes));
    }
    CHECK(rank->table[algorithm][protocol] == 100);
}

/* Sizes of every order, and those around which NCCL takes one channel more. */
static void expect_channels_of_stock(struct rank *rank, struct nccl with, struct nccl without)
{
    for (int i = 0; i < 2 * PROTOCOLS; i++) {
        int algorithm = i % 2 == 0 ? LAGOM_RING : LAGOM_TREE, protocol = i / 2;
        for (size_t bytes = 512; bytes <= (size_t)64 << 20; bytes += bytes / 3 + 1) {
            expect_channels_at(rank, with, without, algorithm, protocol, bytes);
        }
        size_t a_channel = (size_t)(threads_of(with, algorithm, protocol) * threshold_of(algorithm, protocol));
        for (size_t channels = 1; channels <= BUILT + 1; channels++) {
            expect_channels_at(rank, with, without, algorithm, protocol, channels * a_channel - 1);
            expect_channels_at(rank, with, without, algorithm, protocol, channels * a_channel);
        }
    }
}

static struct rank new_rank(int api)
{
    plugin = load_plugin();
    return make_rank(&plugin, api, COMM, RANKS, 1);
}

static void pinned(int api, int ring_threads)
{
    struct rank rank = new_rank(api);
    CHECK(rank.context != NULL);
    expect_channels_of_stock(&rank, (struct nccl){BUILT, ring_threads}, (struct nccl){STOCK, ring_threads});
    end_rank(&rank);
}

static void a_member(void)
{
    setenv("LAGOM_HEADROOM", "32:24", 1);
    pinned(6, 512);
}

static void a_slow_path_has_fewer_threads(void)
{
    setenv("LAGOM_HEADROOM", "32:24:256", 1);
    pinned(5, 256);
}

static void mode_off(void)
{
    setenv("LAGOM_HEADROOM", "32:24", 1);
    setenv("LAGOM_MODE", "off", 1);
    pinned(6, 512);
}

static void no_region(void)
{
    setenv("LAGOM_HEADROOM", "32:24", 1);
    setenv("LAGOM_SHM_DIR", "/proc", 1);
    pinned(6, 512);
}

static void no_id(void)
{
    setenv("LAGOM_HEADROOM", "32:24", 1);
    pinned(4, 512);
}

static void a_config_that_does_not_fit(void)
{
    setenv("LAGOM_HEADROOM", "32:24", 1);
    setenv("LAGOM_MODE", "replay", 1);
    setenv("LAGOM_CONFIG", "/nonexistent", 1);
    pinned(6, 512);
}

static void no_place_in_the_region(void)
{
    setenv("LAGOM_HEADROOM", "32:24", 1);
    plugin = load_plugin();
    struct rank last = {.api = 0};
    for (uint32_t i = 0; i < LAGOM_MAX_COMMUNICATORS + 2; i++) {
        last = make_rank(&plugin, 6, 1000 + i, RANKS, 1);
        CHECK(last.context != NULL);
    }
    expect_channels_of_stock(&last, (struct nccl){BUILT, 512}, (struct nccl){STOCK, 512});
    CHECK_EQUAL(chunk_of(&last, LAGOM_ALL_GATHER, LAGOM_RING, LAGOM_SIMPLE, 2 * MIB), 2 * MIB);
    end_rank(&last); /* a passthrough context: nothing to let go of */
}

/* ---- Plans, and everything else --------------------------------------------------------------------------------- */

/* What the plan names may go above stock; what it leaves open stays on stock's channels. */
static void a_plan_may_go_above_stock(void)
{
    setenv("LAGOM_HEADROOM", "32:24", 1);
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, COMM, 1 + 1, 1);
    struct rank other = make_rank(&plugin, 6, COMM, 1 + 1, 1);
    struct rank both[] = {rank, other};
    struct lagom_region *region = map_region();
    static struct lagom_plan plan;
    struct lagom_config above = leave_all(), chunk = leave_all();
    above.channels = 28;
    chunk.chunk_bytes = 512u << 10;
    add_rule(&plan, LAGOM_ALL_GATHER, MIB, UINT64_MAX, above);
    add_rule(&plan, LAGOM_REDUCE_SCATTER, MIB, UINT64_MAX, chunk);
    CHECK(put_in_force(region, find_communicator_of(region, COMM), &plan, both, 2));
    call(&both[0], LAGOM_ALL_GATHER, 8 * MIB);
    CHECK_EQUAL(both[0].channels, 28);
    call(&both[0], LAGOM_REDUCE_SCATTER, 8 * MIB);
    CHECK_EQUAL(both[0].channels, STOCK);
    call(&both[0], LAGOM_ALL_REDUCE, 8 * MIB);
    CHECK_EQUAL(both[0].channels, STOCK);
}

/* From the size on from which NCCL would use all of stock's channels they are written, below it NCCL's own rule holds. */
static void written_from_the_threshold_on(void)
{
    setenv("LAGOM_HEADROOM", "32:24", 1);
    struct rank rank = new_rank(6);
    for (int i = 0; i < 2 * PROTOCOLS; i++) {
        int algorithm = i % 2 == 0 ? LAGOM_RING : LAGOM_TREE, protocol = i / 2;
        long enough = STOCK * threads_of((struct nccl){BUILT, 512}, algorithm, protocol) * threshold_of(algorithm, protocol);
        for (int off = -1; off <= 1; off++) {
            offer_only(&rank, algorithm, protocol);
            ask(&rank, LAGOM_ALL_REDUCE, (size_t)(enough + off));
            CHECK_EQUAL(rank.channels, off < 0 ? 0 : STOCK);
        }
    }
    end_rank(&rank);
}

static void nvls_has_channels_of_its_own(void)
{
    setenv("LAGOM_HEADROOM", "32:24", 1);
    struct rank rank = new_rank(6);
    offer_only(&rank, LAGOM_NVLS, LAGOM_SIMPLE);
    ask(&rank, LAGOM_ALL_REDUCE, 64 * MIB);
    CHECK_EQUAL(rank.channels, 0);
}

static void a_table_that_offers_nothing_is_left_alone(void)
{
    setenv("LAGOM_HEADROOM", "32:24", 1);
    setenv("LAGOM_MODE", "off", 1);
    struct rank rank = new_rank(6);
    offer_only(&rank, LAGOM_RING, LAGOM_SIMPLE);
    rank.table[LAGOM_RING][LAGOM_SIMPLE] = -1;
    ask(&rank, LAGOM_ALL_REDUCE, 64 * MIB);
    CHECK_EQUAL(rank.channels, 0);
}

static void without_headroom_nothing_changes(void)
{
    struct rank rank = new_rank(6);
    for (size_t bytes = 512; bytes <= (size_t)64 << 20; bytes *= 2) {
        call(&rank, LAGOM_ALL_REDUCE, bytes);
        CHECK(untouched(&rank));
    }
    setenv("LAGOM_HEADROOM", "32:24", 1); /* too late: settings are read once */
    call(&rank, LAGOM_ALL_REDUCE, 64 * MIB);
    CHECK(untouched(&rank));
}

static void what_cannot_be_read_is_no_headroom(void)
{
    static const char *const bad[] = {"32", "32:", ":24", "24:32", "32:0", "99:24", "32:24:", "32:24:0", "32:24:x",
                                      "32:24:512:1", " 32:24", "32:24 ", "32,24", "99999999999999:1"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        pid_t child = fork();
        if (child == 0) {
            setenv("LAGOM_HEADROOM", bad[i], 1);
            struct rank rank = new_rank(6);
            call(&rank, LAGOM_ALL_REDUCE, 64 * MIB);
            exit(untouched(&rank) ? 0 : 1);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK_EQUAL(status, 0);
    }
}

/* Where it says no, the job is told that it was not understood. */
static void whether_it_could_be_read_is_said(void)
{
    struct lagom_headroom read = {0};
    CHECK(lagom_headroom_read(NULL, &read) && read.built == 0 && read.stock == 0);
    CHECK(lagom_headroom_read("", &read) && read.built == 0 && read.stock == 0);
    CHECK(lagom_headroom_read("32:24:256", &read) && read.built == 32 && read.stock == 24 && read.ring_threads == 256);
    CHECK(!lagom_headroom_read("24:32", &read) && read.built == 0 && read.stock == 0);
}

/* Ranks that joined and ranks that could not reckon with the same size, however large. */
static void bystanders_of_every_size(void)
{
    CHECK(lagom_passthrough_for(8) == NULL);
    lagom_headroom.stock = 24;
    for (uint32_t ranks = 1; ranks <= 300; ranks++) {
        const struct lagom_passthrough *one = lagom_passthrough_for(ranks);
        CHECK_EQUAL(one->ranks, ranks);
        CHECK(lagom_is_passthrough(one));
        CHECK(lagom_passthrough_for(ranks) == one);
    }
}

int main(void)
{
    int failures = RUN(a_member);
    failures += RUN(bystanders_of_every_size);
    failures += RUN(a_slow_path_has_fewer_threads);
    failures += RUN(mode_off);
    failures += RUN(no_region);
    failures += RUN(no_id);
    failures += RUN(a_config_that_does_not_fit);
    failures += RUN(no_place_in_the_region);
    failures += RUN(a_plan_may_go_above_stock);
    failures += RUN(written_from_the_threshold_on);
    failures += RUN(nvls_has_channels_of_its_own);
    failures += RUN(a_table_that_offers_nothing_is_left_alone);
    failures += RUN(without_headroom_nothing_changes);
    failures += RUN(whether_it_could_be_read_is_said);
    failures += RUN(what_cannot_be_read_is_no_headroom);
    return failures == 0 ? 0 : 1;
}
