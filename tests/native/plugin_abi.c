/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_abi.c - our declarations against the facts: every size and offset that a version's NCCL relies on; and what
 * the library shows to the world and takes from it. */
#include <elf.h>
#include <link.h>
#include <stddef.h>

#include "tests/native/plugin_harness.h"

/* A pointer is 8 bytes here; the tables are pointers in NCCL's order (v6: name, init, getCollInfo, finalize,
 * getChunkSize). */
_Static_assert(sizeof(struct nccl_tuner_v2) == 32 && sizeof(struct nccl_tuner_v3) == 32, "tuner v2, v3");
_Static_assert(sizeof(struct nccl_tuner_v4) == 32, "tuner v4");
_Static_assert(sizeof(struct nccl_tuner_v5) == 32, "tuner v5");
_Static_assert(sizeof(struct nccl_tuner_v6) == 40, "tuner v6");
_Static_assert(offsetof(struct nccl_tuner_v4, name) == 0 && offsetof(struct nccl_tuner_v4, init) == 8, "");
_Static_assert(offsetof(struct nccl_tuner_v4, get_coll_info) == 16 && offsetof(struct nccl_tuner_v4, destroy) == 24,
               "");
_Static_assert(offsetof(struct nccl_tuner_v5, get_coll_info) == 16 && offsetof(struct nccl_tuner_v5, finalize) == 24,
               "");
_Static_assert(offsetof(struct nccl_tuner_v6, finalize) == 24 && offsetof(struct nccl_tuner_v6, get_chunk_size) == 32,
               "");

_Static_assert(sizeof(struct nccl_profiler_v4) == 48 && sizeof(struct nccl_profiler_v5) == 48, "profiler");
_Static_assert(offsetof(struct nccl_profiler_v4, start_event) == 16 &&
                   offsetof(struct nccl_profiler_v4, stop_event) == 24 &&
                   offsetof(struct nccl_profiler_v4, record_event_state) == 32 &&
                   offsetof(struct nccl_profiler_v4, finalize) == 40,
               "");
_Static_assert(offsetof(struct nccl_profiler_v5, start_event) == 16 &&
                   offsetof(struct nccl_profiler_v5, stop_event) == 24 &&
                   offsetof(struct nccl_profiler_v5, record_event_state) == 32 &&
                   offsetof(struct nccl_profiler_v5, finalize) == 40,
               "");

/* {type; parent; rank; union}: the type is one byte in v4 and eight from v5 on, what follows lies alike. */
_Static_assert(sizeof(((struct nccl_event_v4 *)0)->type) == 1 && sizeof(((struct nccl_event_v5 *)0)->type) == 8, "");
_Static_assert(offsetof(struct nccl_event_v4, parent) == 8 && offsetof(struct nccl_event_v5, parent) == 8, "");
_Static_assert(offsetof(struct nccl_event_v4, rank) == 16 && offsetof(struct nccl_event_v5, rank) == 16, "");
_Static_assert(offsetof(struct nccl_event_v4, body) == 24 && offsetof(struct nccl_event_v5, body) == 24, "");

/* coll {u64 seq; func; send; recv; size_t count; int root; datatype; u8 nChannels; u8 nWarps; algo; proto [;
 * parentGroup]} */
_Static_assert(offsetof(struct nccl_event_coll, function) == 8 && offsetof(struct nccl_event_coll, count) == 32, "");
_Static_assert(offsetof(struct nccl_event_coll, root) == 40 && offsetof(struct nccl_event_coll, type) == 48, "");
_Static_assert(offsetof(struct nccl_event_coll, channels) == 56 && offsetof(struct nccl_event_coll, warps) == 57, "");
_Static_assert(offsetof(struct nccl_event_coll, algorithm) == 64 && offsetof(struct nccl_event_coll, protocol) == 72,
               "");
/* collApi {func; size_t count; datatype; int root; void *stream; bool graphCaptured}, p2pApi the same without root */
_Static_assert(offsetof(struct nccl_event_coll_api, count) == 8 && offsetof(struct nccl_event_coll_api, stream) == 32 &&
                   offsetof(struct nccl_event_coll_api, graph_captured) == 40,
               "");
_Static_assert(offsetof(struct nccl_event_p2p_api, stream) == 24 &&
                   offsetof(struct nccl_event_p2p_api, graph_captured) == 32,
               "");
_Static_assert(offsetof(struct nccl_event_group_api, graph_captured) == 0 &&
                   offsetof(struct nccl_event_group_api, depth) == 4,
               "");
/* kernelCh {u8 channelId; u64 pTimer}; the stop's argument is one u64 */
_Static_assert(offsetof(struct nccl_event_kernel_ch, gpu_ns) == 8 && sizeof(union nccl_event_state_args) == 8, "");

/* What we read of an event is never more than the smallest union NCCL ever sent (v4: coll, 80 bytes). */
_Static_assert(sizeof(union nccl_event_body) == 80, "reading an event stays inside it");

/* v7 appends {parentGroup; kernelVariant; isSymColl} to coll; what was there stays where it was. */
_Static_assert(offsetof(struct nccl_event_v7, body) == 24 && offsetof(struct nccl_event_v7, coll) == 24, "");
_Static_assert(offsetof(struct nccl_event_coll_v7, kernel) == 88 && offsetof(struct nccl_event_coll_v7, symmetric) == 96,
               "");

_Static_assert(NCCL_EVENT_COLL == 2 && NCCL_EVENT_P2P == 4 && NCCL_EVENT_KERNEL_CH == 64 &&
                   NCCL_EVENT_GROUP_API == 256 && NCCL_EVENT_COLL_API == 512 && NCCL_EVENT_P2P_API == 1024 &&
                   NCCL_EVENT_CE_COLL == 4096,
               "mask bits");
_Static_assert(NCCL_STATE_KERNEL_CH_STOP == 22, "event state");

static void every_table_is_whole(void)
{
    struct plugin plugin = load_plugin();
    CHECK(strcmp(plugin.v4->name, "lagom") == 0 && strcmp(plugin.v5->name, "lagom") == 0 &&
          strcmp(plugin.v6->name, "lagom") == 0);
    const void *const *tables[] = {(const void *)plugin.v4,          (const void *)plugin.v5,
                                   (const void *)plugin.v6,          (const void *)plugin.profiler_v4,
                                   (const void *)plugin.profiler_v5, (const void *)plugin.profiler_v6,
                                   (const void *)plugin.v2,          (const void *)plugin.v3,
                                   (const void *)plugin.profiler_v7};
    const int entries[] = {4, 4, 5, 6, 6, 6, 4, 4, 6};
    for (int i = 0; i < 9; i++) {
        for (int j = 0; j < entries[i]; j++) {
            CHECK(tables[i][j] != NULL);
        }
    }
}

static const ElfW(Dyn) * dynamic_of(void *library)
{
    struct link_map *map = NULL;
    CHECK(dlinfo(library, RTLD_DI_LINKMAP, &map) == 0);
    return map->l_ld;
}

static uintptr_t address_in(const void *library_dynamic, ElfW(Sxword) tag)
{
    for (const ElfW(Dyn) *entry = library_dynamic; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == tag) {
            return entry->d_un.d_ptr;
        }
    }
    return 0;
}

/* NCCL dlopens it anywhere: nothing but libc may be needed, and it must never be unmapped under our threads' feet. */
static void the_library_needs_libc_only_and_stays(void)
{
    struct plugin plugin = load_plugin();
    if (plugin.library == NULL) {
        return; /* with a sanitizer the plugin is part of this program */
    }
    const ElfW(Dyn) *dynamic = dynamic_of(plugin.library);
    const char *strings = (const char *)address_in(dynamic, DT_STRTAB);
    bool stays = false;
    for (const ElfW(Dyn) *entry = dynamic; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_NEEDED) {
            const char *name = strings + entry->d_un.d_val;
            CHECK(strncmp(name, "libc.", 5) == 0 || strncmp(name, "libdl.", 6) == 0 ||
                  strncmp(name, "libpthread.", 11) == 0 || strncmp(name, "libm.", 5) == 0 ||
                  strncmp(name, "ld-linux", 8) == 0);
        }
        stays = stays || (entry->d_tag == DT_FLAGS_1 && (entry->d_un.d_val & DF_1_NODELETE) != 0);
    }
    CHECK(stays);
}

static void nothing_else_is_visible(void)
{
    struct plugin plugin = load_plugin();
    if (plugin.library == NULL) {
        return;
    }
    static const char *const hidden[] = {
        "lagom_decide",       "lagom_plugin_enter", "lagom_agreement_decide", "lagom_region_join", "lagom_publish",
        "ncclTunerPlugin_v1", "ncclTunerPlugin_v7", "ncclProfiler_v1",        "ncclProfiler_v3",   "ncclProfiler_v8",
        "ncclNetPlugin_v8",   "ncclEnvPlugin_v1"};
    for (size_t i = 0; i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        void *symbol = dlsym(plugin.library, hidden[i]);
        Dl_info info;
        bool elsewhere =
            symbol != NULL && dladdr(symbol, &info) != 0 && strstr(info.dli_fname, "libnccl-tuner-lagom") == NULL;
        CHECK(symbol == NULL || elsewhere);
    }
}

static void no_context_is_survived_by_every_function(void)
{
    struct plugin plugin = load_plugin();
    int channels = 0;
    float table[ALGORITHMS][PROTOCOLS] = {{1}};
    float **flat = (float **)(void *)table;
    CHECK(plugin.v4->init(8, 1, NULL, NULL) == 0);
    CHECK(plugin.v5->init(NULL, 1, 8, 1, NULL, NULL, NULL) == 0);
    CHECK(plugin.v6->init(NULL, 1, 8, 1, NULL, NULL, NULL) == 0);
    CHECK(plugin.v4->get_coll_info(NULL, 2, MIB, 1, flat, ALGORITHMS, PROTOCOLS, 0, &channels) == 0);
    CHECK(plugin.v5->get_coll_info(NULL, 2, MIB, 1, NULL, ALGORITHMS, PROTOCOLS, 0, NULL) == 0);
    CHECK(plugin.v6->get_coll_info(NULL, 2, MIB, 1, NULL, 0, 0, 0, NULL) == 0);
    CHECK(plugin.v6->get_chunk_size(NULL, 2, MIB, 1, 2, 1, NULL) == 0);
    CHECK(plugin.v4->destroy(NULL) == 0 && plugin.v5->finalize(NULL) == 0 && plugin.v6->finalize(NULL) == 0);
    CHECK(plugin.profiler_v4->init(NULL, NULL, NULL, 0, 0, 0, 0, NULL) == 0);
    CHECK(plugin.profiler_v6->init(NULL, 0, NULL, NULL, 0, 0, 0, NULL) == 0);
    CHECK(plugin.profiler_v5->stop_event(NULL) == 0 && plugin.profiler_v5->finalize(NULL) == 0);
    CHECK(channels == 0 && table[0][0] == 1);
}

int main(void)
{
    int failures = 0;
    failures += RUN(every_table_is_whole);
    failures += RUN(the_library_needs_libc_only_and_stays);
    failures += RUN(nothing_else_is_visible);
    failures += RUN(no_context_is_survived_by_every_function);
    return failures != 0;
}
