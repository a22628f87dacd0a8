/* SPDX-License-Identifier: Apache-2.0 */
/* known_build_harness.h - a communicator of a known NCCL build: memory with the members we look at in NCCL's places. */
#ifndef LAGOM_KNOWN_BUILD_HARNESS_H
#define LAGOM_KNOWN_BUILD_HARNESS_H

#include "tests/native/build_id.h"
#include "tests/native/plugin_harness.h"
#include "tuner_plugin/build.h"

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

/* Whose build id the program carries. */
static const struct lagom_nccl_build *layout;

static struct plugin plugin;
static struct lagom_region *region;
static char *structs[2];
static char *copies[2];

static inline int32_t *threads_of(char *base)
{
    return (int32_t *)(void *)(base + CONTEXT_AT + layout->max_threads);
}

static inline int64_t *thresholds_of(char *base)
{
    return (int64_t *)(void *)(base + CONTEXT_AT + layout->thresholds);
}

static inline void put(char *base, int at, const void *value, size_t bytes)
{
    memcpy(base + CONTEXT_AT + at, value, bytes);
}

static inline void fill_struct(char *base)
{
    static const int32_t threads[ALGORITHMS * PROTOCOLS] = {512, 640, 512, 512, 640, 512, 0,   0, 640, 0, 0,
                                                            640, 0,   0,   640, 0,   0,   640, 0, 0,   0};
    uint64_t magic = 0x0280028002800280ULL, hash = COMM;
    int32_t ranks = 2, channels = 3;
    memset(base, 0x5a, STRUCT_BYTES);
    put(base, layout->end_magic, &magic, sizeof(magic));
    put(base, layout->comm_hash, &hash, sizeof(hash));
    put(base, layout->ranks, &ranks, sizeof(ranks));
    put(base, layout->channels, &channels, sizeof(channels));
    memcpy(threads_of(base), threads, sizeof(threads));
    for (int i = 0; i < ALGORITHMS * PROTOCOLS; i++) {
        thresholds_of(base)[i] = 64 + i;
    }
}

static inline void log_nothing(int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
    (void)level;
    (void)flags;
    (void)file;
    (void)line;
    (void)format;
}

/* The first build of that version, as NVIDIA's wheel has it on this or another processor. */
static inline const struct lagom_nccl_build *build_of(int wanted)
{
    const struct lagom_nccl_build *build = lagom_nccl_builds;
    while (build->version != wanted) {
        build++;
    }
    return build;
}

static inline void use_build(const struct lagom_nccl_build *build)
{
    layout = build;
    version = build->version;
    wear_build_id(build->build_id);
    for (int i = 0; i < 2; i++) {
        structs[i] = malloc(STRUCT_BYTES);
        copies[i] = malloc(STRUCT_BYTES);
        fill_struct(structs[i]);
    }
}

/* The context is written by init into the struct itself, as NCCL's is. */
static inline struct rank rank_in(int i)
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

static inline void start(struct rank pair[2], const char *nt)
{
    setenv("LAGOM_NT", nt, 1);
    plugin = load_plugin();
    pair[0] = rank_in(0);
    pair[1] = rank_in(1);
    region = map_region();
}

static inline bool struct_untouched(int i)
{
    return memcmp(structs[i], copies[i], STRUCT_BYTES) == 0;
}

static inline struct lagom_config threads_and_channels(uint16_t threads, uint16_t channels)
{
    struct lagom_config config = leave_all();
    config.threads = threads;
    config.channels = channels;
    return config;
}

#endif
