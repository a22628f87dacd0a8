/* plugin_threads.c - NT: exact bytes into a communicator whose layout is known, the defaults back afterwards, and not
 * one byte wherever a guard is broken. The communicator is a stand-in: memory with the members NT looks at in NCCL's
 * places. */
#include "tests/native/plugin_harness.h"

#define COMM 0xabcdef0123ULL
#define STRUCT_BYTES (3u * MIB)
#define CONTEXT_AT MIB /* of &comm->tunerContext in it */

/* The program is its own libnccl: this is what the plugin finds behind our log function. */
static int version = 23007;
__attribute__((visibility("default"))) int ncclGetVersion(int *out)
{
    *out = version;
    return 0;
}

/* Bytes from &comm->tunerContext: facts of the wheels, written down a second time. */
struct layout {
    int version, max_threads, thresholds, ranks, hash, magic;
};
static const struct layout layouts[] = {
    {22703, -6736, -7744, -8324, -8336, 5816},   {22705, -6736, -7744, -8324, -8336, 5816},
    {22707, -6736, -7744, -8324, -8336, 5816},   {22803, -6752, -7760, -9516, -9528, 6104},
    {22807, -6752, -7760, -9516, -9528, 7248},   {22809, -6752, -7760, -9516, -9528, 7248},
    {22902, -7360, -8368, -10124, -10136, 7960}, {22903, -7360, -8368, -10124, -10136, 7960},
    {22907, -7360, -8368, -10124, -10136, 8056}, {23003, -7352, -8360, -10132, -10144, 8176},
    {23007, -7352, -8360, -10132, -10144, 8176}, {23102, -8712, -8880, -12340, -12352, 2696},
    {23203, -8728, -8896, -12364, -12376, 2744},
};
static const struct layout *layout;

static struct plugin plugin;
static struct lagom_region *region;
static char *structs[2];
static char *copies[2];

static int32_t *threads_of(char *base)
{
    return (int32_t *)(void *)(base + CONTEXT_AT + layout->max_threads);
}

static int64_t *thresholds_of(char *base)
{
    return (int64_t *)(void *)(base + CONTEXT_AT + layout->thresholds);
}

static void put(char *base, int at, const void *value, size_t bytes)
{
    memcpy(base + CONTEXT_AT + at, value, bytes);
}

static void fill_struct(char *base)
{
    static const int32_t threads[ALGORITHMS * PROTOCOLS] = {512, 640, 512, 512, 640, 512, 0,   0, 640, 0, 0,
                                                            640, 0,   0,   640, 0,   0,   640, 0, 0,   0};
    uint64_t magic = 0x0280028002800280ULL, hash = COMM;
    int32_t ranks = 2;
    memset(base, 0x5a, STRUCT_BYTES);
    put(base, layout->magic, &magic, sizeof(magic));
    put(base, layout->hash, &hash, sizeof(hash));
    put(base, layout->ranks, &ranks, sizeof(ranks));
    memcpy(threads_of(base), threads, sizeof(threads));
    for (int i = 0; i < ALGORITHMS * PROTOCOLS; i++) {
        thresholds_of(base)[i] = 64 + i;
    }
}

static void log_nothing(int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
    (void)level;
    (void)flags;
    (void)file;
    (void)line;
    (void)format;
}

static void use_layout(int wanted)
{
    version = wanted;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        if (layouts[i].version == wanted) {
            layout = &layouts[i];
        }
    }
    for (int i = 0; i < 2; i++) {
        structs[i] = malloc(STRUCT_BYTES);
        copies[i] = malloc(STRUCT_BYTES);
        fill_struct(structs[i]);
    }
}

/* The context is written by init into the struct itself, as NCCL's is. */
static struct rank rank_in(int i)
{
    struct rank rank = {.plugin = plugin, .api = 6};
    void **place = (void **)(void *)(structs[i] + CONTEXT_AT);
    CHECK(plugin.v6->init(place, COMM, 2, 1, log_nothing, NULL, NULL) == 0);
    rank.context = *place;
    CHECK(rank.context != NULL);
    hold(NULL, rank.context);
    memcpy(copies[i], structs[i], STRUCT_BYTES);
    return rank;
}

static void start(struct rank pair[2], const char *nt)
{
    setenv("LAGOM_NT", nt, 1);
    plugin = load_plugin();
    pair[0] = rank_in(0);
    pair[1] = rank_in(1);
    region = map_region();
}

static bool struct_untouched(int i)
{
    return memcmp(structs[i], copies[i], STRUCT_BYTES) == 0;
}

static struct lagom_config threads_and_channels(uint16_t threads, uint16_t channels)
{
    struct lagom_config config = leave_all();
    config.threads = threads;
    config.channels = channels;
    return config;
}

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
    const char *wanted = getenv("TEST_VERSION");
    use_layout(atoi(wanted));
    known_builds_are_written_and_restored();
}

static void other_algorithms_are_never_written(void)
{
    struct rank pair[2];
    use_layout(22809);
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
    use_layout(22809);
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
    use_layout(22809);
    start(pair, "0");
    refused_with_a_reason(pair, "");
    CHECK_EQUAL(region->processes[0].remark[0], 0);
}

static void unknown_version(void)
{
    struct rank pair[2];
    use_layout(22809);
    version = 22808;
    start(pair, "1");
    refused_with_a_reason(pair, "not known");
}

static void broken_magic(void)
{
    struct rank pair[2];
    use_layout(22809);
    structs[0][CONTEXT_AT + layout->magic] ^= 1;
    start(pair, "1");
    CHECK(!pin(pair));
    call(&pair[0], LAGOM_ALL_GATHER, 8 * MIB);
    CHECK(struct_untouched(0) && struct_untouched(1));
    CHECK(strstr(region->processes[0].remark, "another layout") != NULL);
}

static void broken_rank_count(void)
{
    struct rank pair[2];
    use_layout(22809);
    structs[0][CONTEXT_AT + layout->ranks] = 3;
    structs[1][CONTEXT_AT + layout->ranks] = 3;
    start(pair, "1");
    refused_with_a_reason(pair, "another layout");
}

static void broken_hash(void)
{
    struct rank pair[2];
    use_layout(22809);
    structs[0][CONTEXT_AT + layout->hash] ^= 1;
    structs[1][CONTEXT_AT + layout->hash] ^= 1;
    start(pair, "1");
    refused_with_a_reason(pair, "another layout");
}

static void broken_pattern(void)
{
    struct rank pair[2];
    use_layout(22809);
    start(pair, "1");
    for (int i = 0; i < 2; i++) { /* as NCCL_NTHREADS=256 would; it is only there at the first call */
        threads_of(structs[i])[ring(LAGOM_LL)] = 256;
        memcpy(copies[i], structs[i], STRUCT_BYTES);
    }
    refused_with_a_reason(pair, "NCCL_NTHREADS");
}

/* The context place is some pointer of a caller that is no libnccl, at the edge of its memory. */
static void memory_that_is_not_there(void)
{
    use_layout(22809);
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

static int run_every_build(void)
{
    int failures = 0;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        char number[16];
        snprintf(number, sizeof(number), "%d", layouts[i].version);
        setenv("TEST_VERSION", number, 1);
        failures += run_case(every_known_build, number);
    }
    return failures;
}

int main(void)
{
    int failures = run_every_build();
    failures += RUN(other_algorithms_are_never_written);
    failures += RUN(out_of_range_is_left);
    failures += RUN(not_asked_for_is_not_done);
    failures += RUN(unknown_version);
    failures += RUN(broken_magic);
    failures += RUN(broken_rank_count);
    failures += RUN(broken_hash);
    failures += RUN(broken_pattern);
    failures += RUN(memory_that_is_not_there);
    return failures != 0;
}
