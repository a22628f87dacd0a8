/* SPDX-License-Identifier: Apache-2.0 */
/* timeline_harness.h - a process whose GPU is the fake CUPTI's: the real liblagom_timeline.so (with a sanitizer: its
 * objects in this program) over a region in private memory. Every case runs in a child of its own. */
#ifndef LAGOM_TIMELINE_HARNESS_H
#define LAGOM_TIMELINE_HARNESS_H

#include <dirent.h>
#include <dlfcn.h>
#include <time.h>

#include "check.h"
#include "protocol/lagom_atomic.h"
#include "shm/capture.h"
#include "shm/ring.h"
#include "timeline/liblagom_timeline.h"

#define GATHER "_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE"
#define SCATTER "_Z44ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE"
#define BROADCAST "_Z31ncclDevKernel_Broadcast_RING_LL24ncclDevKernelArgsStorageILm4096EE"
#define SEND "_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE"
#define MATMUL "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_TNT"
#define MS 1000000u

struct timeline {
    int (*attach)(struct lagom_region *, uint32_t, lagom_timeline_push);
    void (*detach)(void);
    void (*launch_begins)(uint32_t);
    void (*launch_ends)(void);
    void (*launched)(const struct lagom_kernel_span *);
    void (*asked)(const struct lagom_kernel_span *);
    void (*unreported)(const struct lagom_kernel_span *);
};
struct fake {
    uint32_t (*launch)(const char *, uint32_t, uint32_t, uint64_t, uint64_t, uint64_t);
    void (*copy)(uint32_t, uint32_t, uint64_t, uint32_t, uint64_t, uint64_t);
    void (*set)(size_t, int, int);
    void (*counts)(int[4]);
    void (*steal)(void);
    uint8_t *(*foreign_buffer)(void);
    int (*delivered_to_them)(void);
    void (*torch_profiling)(int);
    void (*torch_profiling_thread)(int);
    void (*take_clock)(void);
    void (*delay)(void);
    void (*flush)(void);
};

static struct timeline timeline;
static struct fake fake;
static struct lagom_region *region;
static struct lagom_process *process;
static struct lagom_kernel_span spans[4096]; /* of several drains */
static uint32_t span_count;

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void rest(uint64_t nanoseconds)
{
    nanosleep(&(struct timespec){(time_t)(nanoseconds / 1000000000u), (long)(nanoseconds % 1000000000u)}, NULL);
}

static inline void find(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);
    if (address == NULL) {
        fprintf(stderr, "no %s: %s\n", name, dlerror());
        exit(1);
    }
    memcpy(function, &address, sizeof(address));
}

static inline void load_timeline(void)
{
    const char *sanitizer = getenv("LAGOM_SANITIZE");
    if (sanitizer != NULL && sanitizer[0] != '\0') {
        timeline = (struct timeline){lagom_timeline_attach,      lagom_timeline_detach,   lagom_timeline_launch_begins,
                                     lagom_timeline_launch_ends, lagom_timeline_launched, lagom_timeline_asked,
                                     lagom_timeline_unreported};
        return;
    }
    void *library = dlopen("lagom/_lib/liblagom_timeline.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "no library to test (%s); run `make native`, start this from the repository root\n", dlerror());
        exit(1);
    }
    find(library, "lagom_timeline_attach", &timeline.attach);
    find(library, "lagom_timeline_detach", &timeline.detach);
    find(library, "lagom_timeline_launch_begins", &timeline.launch_begins);
    find(library, "lagom_timeline_launch_ends", &timeline.launch_ends);
    find(library, "lagom_timeline_launched", &timeline.launched);
    find(library, "lagom_timeline_asked", &timeline.asked);
    find(library, "lagom_timeline_unreported", &timeline.unreported);
}

/* Builds the fakes once a run, beside the test's other files. */
static inline const char *fakes_folder(void)
{
    static char folder[PATH_MAX];
    const char *base = getenv("LAGOM_SHM_DIR");
    snprintf(folder, sizeof(folder), "%s/fakes", base == NULL ? "/tmp" : base);
    return folder;
}

static inline void build_fakes(void)
{
    char command[4 * PATH_MAX];
    const char *folder = fakes_folder();
    snprintf(command, sizeof(command),
             "mkdir -p '%s' && "
             "${CC:-gcc} -std=c11 -O1 -shared -fPIC -pthread -Wl,-soname,libcupti.so.13 tests/native/fakes/fake_cupti.c "
             "-o '%s/libcupti.so.13' && "
             "${CC:-gcc} -std=c11 -O1 -shared -fPIC -Wl,-soname,libtorch_cpu.so tests/native/fakes/fake_torch.c "
             "-o '%s/libtorch_cpu.so'",
             folder, folder, folder);
    CHECK(system(command) == 0);
}

static inline void *open_fake(const char *name)
{
    char path[2 * PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", fakes_folder(), name);
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    CHECK(library != NULL);
    return library;
}

static inline void load_fakes(void)
{
    void *cupti = open_fake("libcupti.so.13");
    void *torch = open_fake("libtorch_cpu.so");
    find(cupti, "fake_launch", &fake.launch);
    find(cupti, "fake_copy", &fake.copy);
    find(cupti, "fake_set", &fake.set);
    find(cupti, "fake_counts", &fake.counts);
    find(cupti, "fake_steal", &fake.steal);
    find(cupti, "fake_foreign_buffer", &fake.foreign_buffer);
    find(cupti, "fake_delivered_to_them", &fake.delivered_to_them);
    find(torch, "fake_torch_profiling", &fake.torch_profiling);
    find(torch, "fake_torch_profiling_thread", &fake.torch_profiling_thread);
    find(cupti, "fake_take_clock", &fake.take_clock);
    find(cupti, "fake_delay", &fake.delay);
    find(cupti, "fake_flush", &fake.flush);
}

static inline void setup(void)
{
    load_timeline();
    region = calloc(1, sizeof(*region));
    process = &region->processes[1];
}

static inline uint32_t state(void)
{
    return lagom_load_acquire(&process->timeline_state);
}

/* In a second or two, but a busy machine may take its time. */
static inline bool becomes(uint32_t wanted)
{
    uint64_t until = now_ns() + 300000ull * MS;
    while (state() != wanted && now_ns() < until) {
        rest(2 * MS);
    }
    return state() == wanted;
}

static inline void want(uint32_t wanted)
{
    lagom_timeline_want(region, 1, wanted);
}

/* The job goes on: it launches before anything is recorded. */
static inline void switch_on_with(bool brackets)
{
    want(1);
    if (becomes(LAGOM_TIMELINE_STARTING) && brackets) {
        timeline.launch_begins(9);
        timeline.launch_ends();
    }
    CHECK(becomes(LAGOM_TIMELINE_ON));
}

static inline void switch_on(void)
{
    switch_on_with(true);
}

static inline void drain(void)
{
    span_count += lagom_kernel_ring_drain(region, 1, spans + span_count,
                                          (uint32_t)(sizeof(spans) / sizeof(spans[0])) - span_count);
}

static inline void await_spans(uint32_t count)
{
    uint64_t until = now_ns() + 10000ull * MS;
    while (span_count < count && now_ns() < until) {
        drain();
        rest(2 * MS);
    }
    CHECK_EQUAL(span_count, count);
}

/* NCCL launches one kernel with these calls in it (call numbers from `call` on), as the profiler plugin sees it. */
static inline void nccl_launch(const char *name, uint32_t slot, uint64_t call, uint32_t collectives, uint8_t function,
                               uint16_t channels)
{
    timeline.launch_begins(slot);
    uint64_t start = now_ns();
    fake.launch(name, channels, 7, start, start + 1000, 0);
    timeline.launch_ends();
    for (uint32_t i = 0; i < collectives; i++) {
        struct lagom_kernel_span span = {.call = call == UINT64_MAX ? call : call + i,
                                         .bytes = 4096,
                                         .slot = slot,
                                         .channels = channels,
                                         .function = function,
                                         .algorithm = LAGOM_RING,
                                         .protocol = LAGOM_SIMPLE};
        timeline.launched(&span);
    }
}

static inline void compute(void)
{
    uint64_t start = now_ns();
    fake.launch(MATMUL, 132, 5, start, start + 500, 0);
}

/* By name: a sanitizer has threads of its own. */
static inline int threads_of_ours(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char path[512], name[32] = "";
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "r");
        if (file != NULL) {
            count += fgets(name, sizeof(name), file) != NULL && strncmp(name, "lagom-timeline", 14) == 0;
            fclose(file);
        }
    }
    closedir(folder);
    return count;
}

static inline void attach(void)
{
    load_fakes();
    CHECK_EQUAL(timeline.attach(region, 1, NULL), 0);
}

static inline void leave(void)
{
    timeline.detach();
    for (int i = 0; i < 10000 && threads_of_ours() > 0; i++) {
        usleep(1000); /* a thread may be joined a moment before /proc lists it no more */
    }
    CHECK_EQUAL(threads_of_ours(), 0);
    free(region);
}

static inline const struct lagom_kernel_span *nccl_span(uint32_t which)
{
    for (uint32_t i = 0; i < span_count; i++) {
        if (spans[i].kind != LAGOM_SPAN_COMPUTE && which-- == 0) {
            return &spans[i];
        }
    }
    CHECK(false);
    return NULL;
}

static inline void check_span(const struct lagom_kernel_span *span, uint64_t call, enum lagom_join_result result)
{
    CHECK_EQUAL(span->join, result);
    CHECK_EQUAL(span->call, call);
}

/* Cases mostly wait: some of them run side by side, each in a child with a region of its own. */
#define SIDE_BY_SIDE 4u

static struct {
    const char *name; /* NULL = free */
    pid_t child;
} cases[SIDE_BY_SIDE];

static inline void await_a_case(void)
{
    int status = 0;
    pid_t ended = wait(&status);
    CHECK(ended > 0);
    for (uint32_t i = 0; i < SIDE_BY_SIDE; i++) {
        if (cases[i].name != NULL && cases[i].child == ended) {
            if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
                fprintf(stderr, "%s: ended with status %d\n", cases[i].name, status);
                exit(1);
            }
            cases[i].name = NULL;
        }
    }
}

static inline uint32_t running_cases(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < SIDE_BY_SIDE; i++) {
        count += cases[i].name != NULL;
    }
    return count;
}

static inline void run_case(const char *name, void (*body)(void))
{
    if (running_cases() == SIDE_BY_SIDE) {
        await_a_case();
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setup();
        body();
        exit(0);
    }
    uint32_t place = 0;
    while (cases[place].name != NULL) {
        place++;
    }
    cases[place].name = name;
    cases[place].child = child;
}
#define CASE(body) run_case(#body, body)

static inline void end_cases(void)
{
    while (running_cases() > 0) {
        await_a_case();
    }
}

#endif
