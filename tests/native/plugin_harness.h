/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_harness.h - NCCL's side of the plugin, for the tests: loads the real library, gives it a flat cost table, and
 * maps the region beside it so that a test can publish plans and read what the plugin wrote.
 *
 * The plugin reads its settings once a process, so every case runs in a child of its own (RUN). Without a sanitizer the
 * plugin is the shared library as NCCL loads it; with LAGOM_SANITIZE it is the instrumented objects in this program.
 */
#ifndef LAGOM_PLUGIN_HARNESS_H
#define LAGOM_PLUGIN_HARNESS_H

#include <dlfcn.h>
#include <fcntl.h>
#include <float.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agreement/publisher.h"
#include "expect.h"
#include "plan/choose.h"
#include "plan/plan.h"
#include "protocol/lagom_atomic.h"
#include "shm/capture.h"
#include "shm/job_key.h"
#include "shm/region.h"
#include "shm/ring.h"
#include "tuner_plugin/nccl_abi.h"

extern const struct nccl_tuner_v2 ncclTunerPlugin_v2;
extern const struct nccl_tuner_v3 ncclTunerPlugin_v3;
extern const struct nccl_tuner_v4 ncclTunerPlugin_v4;
extern const struct nccl_tuner_v5 ncclTunerPlugin_v5;
extern const struct nccl_tuner_v6 ncclTunerPlugin_v6;
extern const struct nccl_profiler_v4 ncclProfiler_v4;
extern const struct nccl_profiler_v5 ncclProfiler_v5;
extern const struct nccl_profiler_v5 ncclProfiler_v6;
extern const struct nccl_profiler_v7 ncclProfiler_v7;

struct plugin {
    void *library; /* NULL = the objects in this program */
    const struct nccl_tuner_v4 *v4;
    const struct nccl_tuner_v5 *v5;
    const struct nccl_tuner_v6 *v6;
    const struct nccl_profiler_v4 *profiler_v4;
    const struct nccl_profiler_v5 *profiler_v5;
    const struct nccl_profiler_v5 *profiler_v6;
    const struct nccl_tuner_v2 *v2;
    const struct nccl_tuner_v3 *v3;
    const struct nccl_profiler_v7 *profiler_v7;
};

static inline const char *plugin_path(void)
{
    const char *path = getenv("LAGOM_TEST_PLUGIN");
    return path != NULL ? path : "lagom/_lib/libnccl-tuner-lagom.so";
}

static inline const void *find_symbol(void *library, const char *name)
{
    const void *symbol = dlsym(library, name);
    CHECK(symbol != NULL);
    return symbol;
}

static inline bool sanitized(void)
{
    const char *sanitizer = getenv("LAGOM_SANITIZE");
    return sanitizer != NULL && sanitizer[0] != '\0';
}

static inline struct plugin load_plugin(void)
{
    if (sanitized()) {
        return (struct plugin){NULL,
                               &ncclTunerPlugin_v4,
                               &ncclTunerPlugin_v5,
                               &ncclTunerPlugin_v6,
                               &ncclProfiler_v4,
                               &ncclProfiler_v5,
                               &ncclProfiler_v6,
                               &ncclTunerPlugin_v2,
                               &ncclTunerPlugin_v3,
                               &ncclProfiler_v7};
    }
    void *library = dlopen(plugin_path(), RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "no plugin to test (%s); run `make native` and start this from the repository root\n",
                dlerror());
        exit(1);
    }
    return (struct plugin){library,
                           find_symbol(library, "ncclTunerPlugin_v4"),
                           find_symbol(library, "ncclTunerPlugin_v5"),
                           find_symbol(library, "ncclTunerPlugin_v6"),
                           find_symbol(library, "ncclProfiler_v4"),
                           find_symbol(library, "ncclProfiler_v5"),
                           find_symbol(library, "ncclProfiler_v6"),
                           find_symbol(library, "ncclTunerPlugin_v2"),
                           find_symbol(library, "ncclTunerPlugin_v3"),
                           find_symbol(library, "ncclProfiler_v7")};
}

/* ---- A case: a child with an environment of its own ------------------------------------------------------------- */

static char case_folder[64];

static inline void fresh_environment(void)
{
    static const char *const names[] = {"LAGOM_MODE",  "LAGOM_CONFIG",    "LAGOM_NT",         "LAGOM_PYTHON",
                                        "LAGOM_CLOCK", "LAGOM_LOG_LEVEL", "LAGOM_SET",        "LAGOM_STRATEGY",
                                        "NCCL_HOSTID", "WORLD_SIZE",      "LOCAL_WORLD_SIZE", "NCCL_P2P_DISABLE",
                                        "LAGOM_HEADROOM"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsetenv(names[i]);
    }
    setenv("LAGOM_SHM_DIR", case_folder, 1);
    setenv("LAGOM_DIR", case_folder, 1);
    setenv("LAGOM_JOB_ID", "plugin-test", 1);
    setenv("LAGOM_CONTROLLER", "none", 1);
}

static inline void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -rf '%s'", case_folder);
    int ignored = system(command);
    (void)ignored;
}

static inline int run_case(void (*function)(void), const char *name)
{
    snprintf(case_folder, sizeof(case_folder), "/tmp/lagom-plugin-test-XXXXXX");
    CHECK(mkdtemp(case_folder) != NULL);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        fresh_environment();
        alarm(600); /* a case that hangs is a case that fails */
        function();
        exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    remove_folder();
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    printf("%s %s\n", good ? "ok  " : "FAIL", name);
    if (WIFSIGNALED(status)) {
        printf("     killed by %s\n", strsignal(WTERMSIG(status)));
    }
    return good ? 0 : 1;
}
#define RUN(function) run_case(function, #function)

/* ---- The region beside the plugin ------------------------------------------------------------------------------- */

/* Mapped by hand and never closed: a second descriptor of the file, closed, would drop the plugin's locks. */
static inline struct lagom_region *map_region(void)
{
    char key[LAGOM_PATH_BYTES], path[LAGOM_PATH_BYTES];
    lagom_job_key(key, 0);
    lagom_region_path(key, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    void *region = mmap(NULL, sizeof(struct lagom_region), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return region == MAP_FAILED ? NULL : region;
}

static inline uint32_t find_communicator_of(const struct lagom_region *region, uint64_t comm_id)
{
    for (uint32_t i = 0; i < LAGOM_MAX_COMMUNICATORS; i++) {
        if (lagom_load_relaxed(&region->communicators[i].comm_id) == comm_id) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* ---- The driver ------------------------------------------------------------------------------------------------- */

/* Every rank of a program has a GPU of its own, or where a case says so, this one. */
static int same_device = -1;

int cuCtxGetDevice(int *device);
int cuCtxGetDevice(int *device)
{
    static int next;
    *device = same_device >= 0 ? same_device : __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED);
    return 0;
}

/* ---- One rank of one communicator, as NCCL holds it ------------------------------------------------------------- */

#define ALGORITHMS LAGOM_ALGORITHMS
#define PROTOCOLS LAGOM_PROTOCOLS
#define MIB (1u << 20)

struct rank {
    struct plugin plugin;
    int api;
    void *context;
    int channels;
    float table[ALGORITHMS][PROTOCOLS];
};

/* Times of an NVLink node: RING/SIMPLE is the stock pick; CollNet and PAT are not available. */
static inline void offer(struct rank *rank)
{
    static const float times[ALGORITHMS][PROTOCOLS] = {{300, 250, 200}, {180, 140, 100}, {-1, -1, -1}, {-1, -1, -1},
                                                       {-1, -1, 120},   {-1, -1, 130},   {-1, -1, -1}};
    memcpy(rank->table, times, sizeof(times));
    rank->channels = 0;
}

/* NCCL holds on to contexts it never finalizes; so does this, or a leak checker would call them lost. */
static void *held_contexts[256];

static inline void hold(void *old, void *context)
{
    for (size_t i = 0; i < sizeof(held_contexts) / sizeof(held_contexts[0]); i++) {
        void *expected = old;
        if (__atomic_compare_exchange_n(&held_contexts[i], &expected, context, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
            return;
        }
    }
}

static inline struct rank make_rank(const struct plugin *plugin, int api, uint64_t comm_id, size_t ranks, size_t nodes)
{
    struct rank rank = {.plugin = *plugin, .api = api};
    int failure = api == 4   ? plugin->v4->init(ranks, nodes, NULL, &rank.context)
                  : api == 5 ? plugin->v5->init(&rank.context, comm_id, ranks, nodes, NULL, NULL, NULL)
                             : plugin->v6->init(&rank.context, comm_id, ranks, nodes, NULL, NULL, NULL);
    CHECK(failure == 0);
    hold(NULL, rank.context);
    return rank;
}

static inline void end_rank(struct rank *rank)
{
    int failure = rank->api == 4   ? rank->plugin.v4->destroy(rank->context)
                  : rank->api == 5 ? rank->plugin.v5->finalize(rank->context)
                                   : rank->plugin.v6->finalize(rank->context);
    CHECK(failure == 0);
    hold(rank->context, NULL);
}

/* getCollInfo on the table as it stands. */
static inline void ask(struct rank *rank, int function, size_t bytes)
{
    float **flat = (float **)(void *)rank->table;
    int failure = rank->api == 4   ? rank->plugin.v4->get_coll_info(rank->context, function, bytes, 1, flat, ALGORITHMS,
                                                                    PROTOCOLS, 0, &rank->channels)
                  : rank->api == 5 ? rank->plugin.v5->get_coll_info(rank->context, function, bytes, 1, flat, ALGORITHMS,
                                                                    PROTOCOLS, 0, &rank->channels)
                                   : rank->plugin.v6->get_coll_info(rank->context, function, bytes, 1, flat, ALGORITHMS,
                                                                    PROTOCOLS, 0, &rank->channels);
    CHECK(failure == 0);
}

static inline void call(struct rank *rank, int function, size_t bytes)
{
    offer(rank);
    ask(rank, function, bytes);
}

static inline size_t chunk_of(struct rank *rank, int function, int algorithm, int protocol, size_t incoming)
{
    size_t chunk = incoming;
    CHECK(rank->plugin.v6->get_chunk_size(rank->context, function, 4096, algorithm, protocol, 1, &chunk) == 0);
    return chunk;
}

/* Whether the last call left everything as offer() had it. */
static inline bool untouched(const struct rank *rank)
{
    struct rank stock;
    offer(&stock);
    return rank->channels == 0 && memcmp(rank->table, stock.table, sizeof(stock.table)) == 0;
}

static inline int stock_pick(const struct rank *rank)
{
    const float *costs = &rank->table[0][0];
    int best = -1;
    for (int i = 0; i < ALGORITHMS * PROTOCOLS; i++) {
        if (costs[i] >= 0 && (best < 0 || costs[i] < costs[best])) {
            best = i;
        }
    }
    return best;
}

/* ---- Plans ------------------------------------------------------------------------------------------------------ */

static inline struct lagom_config leave_all(void)
{
    return (struct lagom_config){.algorithm = LAGOM_LEAVE, .protocol = LAGOM_LEAVE};
}

static inline void add_rule(struct lagom_plan *plan, uint32_t function, uint64_t from, uint64_t to,
                            struct lagom_config config)
{
    plan->rules[plan->rule_count++] = (struct lagom_rule){
        .bytes_min = from, .bytes_max = to, .function = function, .incumbent = config, .candidate = config};
}

/* Prepares the plan some calls ahead, lets every rank call until it is in force, and commits on the way. */
static inline bool put_in_force(struct lagom_region *region, uint32_t communicator, struct lagom_plan *plan,
                                struct rank *ranks, int count)
{
    uint64_t smallest, largest;
    CHECK(lagom_counters(region, communicator, &smallest, &largest) == (uint32_t)count);
    plan->start_call = largest + 4;
    if (lagom_publish(region, communicator, plan) != LAGOM_PUBLISH_OK) {
        return false;
    }
    for (uint64_t call_number = 0; call_number < largest - smallest + 5; call_number++) {
        for (int i = 0; i < count; i++) {
            call(&ranks[i], LAGOM_ALL_REDUCE, 1024);
        }
        lagom_publish_poll(region, communicator);
    }
    return LAGOM_WORD_STATE(region->communicators[communicator].word) == LAGOM_COMMITTED;
}

#endif
