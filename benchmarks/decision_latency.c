/* decision_latency.c - what a decision costs NCCL: the real library, called through its exported tables as NCCL does.
 *
 * Two ranks of one communicator live in this process; the region is mapped beside the plugin to publish the program and
 * to drain the rings. Two views: every call timed by itself with the processor's counter, less the counter's own cost
 * (median and tail; some processors count in steps of 10 ns), and batches of calls back to back (typical cost, to a
 * tenth of a nanosecond, without the tail). Each scenario is a child of its own, since the plugin reads its settings
 * once. Output: one JSON object a line, for decision_latency.py.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agreement/publisher.h"
#include "protocol/lagom_protocol.h"
#include "shm/capture.h"
#include "shm/job_key.h"
#include "shm/region.h"
#include "shm/ring.h"
#include "tuner_plugin/nccl_abi.h"

#define COMM 0xbe5cULL
#define POSITIONS 512
#define SITES 96
#define SAMPLES 200000
#define BATCHES 4000
#define BATCH 256 /* within the call ring */
#define UNTIMED_CHECKS 100000
#define WARM_NS 300000000u /* past the first calibration of the plugin's clock */
#define DRAIN_EVERY 256

static void fail(const char *what)
{
    fprintf(stderr, "decision_latency: %s\n", what);
    exit(1);
}

/* ---- Allocations are counted: our definitions come before libc's in every library of this process ---------------- */

static uint64_t allocations;
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void __libc_free(void *old);

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    allocations++;
    return __libc_realloc(old, bytes);
}

void free(void *old)
{
    allocations++;
    __libc_free(old);
}

/* ---- Time -------------------------------------------------------------------------------------------------------- */

static uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#if defined(__x86_64__)
static inline uint64_t ticks_before(void)
{
    __builtin_ia32_lfence();
    uint64_t ticks = __builtin_ia32_rdtsc();
    __builtin_ia32_lfence();
    return ticks;
}

static inline uint64_t ticks_after(void)
{
    unsigned processor;
    uint64_t ticks = __builtin_ia32_rdtscp(&processor);
    __builtin_ia32_lfence();
    return ticks;
}
#else
#define ticks_before monotonic_ns
#define ticks_after monotonic_ns
#endif

static double nanoseconds_a_tick(void)
{
    uint64_t start_ns = monotonic_ns(), start = ticks_before();
    while (monotonic_ns() - start_ns < 50000000u) {
    }
    uint64_t ticks = ticks_after() - start;
    return (double)(monotonic_ns() - start_ns) / (double)ticks;
}

static uint64_t samples[SAMPLES];

static int compare(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static uint64_t quantile(double share)
{
    return samples[(size_t)(share * (SAMPLES - 1))];
}

/* The smallest step the counter takes. */
static double counter_step_ticks(void)
{
    uint64_t smallest = UINT64_MAX;
    for (int i = 0; i < 10000; i++) {
        uint64_t start = ticks_before(), step = ticks_after() - start;
        uint64_t next = ticks_after() - start - step;
        smallest = next > 0 && next < smallest ? next : smallest;
    }
    return (double)smallest;
}

/* The counter read twice with nothing in between. */
static uint64_t empty_ticks(void)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        uint64_t start = ticks_before();
        samples[i] = ticks_after() - start;
    }
    qsort(samples, SAMPLES, sizeof(samples[0]), compare);
    return quantile(0.5);
}

/* ---- NCCL's side ------------------------------------------------------------------------------------------------- */

enum state { OFF, NO_CONTROLLER, PROGRAM, SUSPENDED, RULES };

struct scenario {
    const char *name;
    int api;
    enum state state;
    bool recording;
};

static const struct scenario scenarios[] = {
    {"mode off", 5, OFF, false},
    {"mode off", 6, OFF, false},
    {"no controller (stock)", 5, NO_CONTROLLER, false},
    {"no controller (stock)", 6, NO_CONTROLLER, false},
    {"program of 512 positions", 5, PROGRAM, false},
    {"program of 512 positions", 6, PROGRAM, false},
    {"program, calls recorded", 5, PROGRAM, true},
    {"program, calls recorded", 6, PROGRAM, true},
    {"program suspended, recorded", 5, SUSPENDED, true},
    {"program suspended, recorded", 6, SUSPENDED, true},
    {"size rules only, recorded", 5, RULES, true},
    {"size rules only, recorded", 6, RULES, true},
};

struct rank {
    void *context;
    int (*ask)(void *, int, size_t, int, float **, int, int, int, int *);
    int (*chunk)(void *, int, size_t, int, int, int, size_t *);
    uint64_t step; /* in the sequence of calls */
};

static float table[LAGOM_ALGORITHMS][LAGOM_PROTOCOLS];
static int channels;
static size_t chunk_bytes;
static struct lagom_region *region;
static uint32_t communicator;

static void offer(void)
{
    static const float times[LAGOM_ALGORITHMS][LAGOM_PROTOCOLS] = {
        {300, 250, 200}, {180, 140, 100}, {-1, -1, -1}, {-1, -1, -1}, {-1, -1, 120}, {-1, -1, 130}, {-1, -1, -1}};
    memcpy(table, times, sizeof(table));
    channels = 0;
    chunk_bytes = 2u << 20;
}

/* What an iteration looks like: AllGathers forward, pairs of AllGather and ReduceScatter backward, over SITES sizes. */
static struct lagom_site site_at(uint32_t index)
{
    struct lagom_config config = {.algorithm = LAGOM_RING,
                                  .protocol = LAGOM_SIMPLE,
                                  .channels = (uint16_t)(1 + index % 16),
                                  .chunk_bytes = 1u << 18};
    return (struct lagom_site){.bytes = (1u << 20) + (index % 32) * 4096u,
                               .function = index % 3 == 2 ? LAGOM_REDUCE_SCATTER : LAGOM_ALL_GATHER,
                               .incumbent = config,
                               .candidate = config};
}

static uint32_t site_of_position(uint32_t position)
{
    return position % SITES;
}

static void call(struct rank *rank, bool as_expected)
{
    struct lagom_site site = site_at(site_of_position((uint32_t)(rank->step++ % POSITIONS)));
    size_t bytes = as_expected ? site.bytes : site.bytes + 64;
    rank->ask(rank->context, (int)site.function, bytes, 1, (float **)(void *)table, LAGOM_ALGORITHMS, LAGOM_PROTOCOLS,
              0, &channels);
}

static struct rank open_rank(const char *library_path, int api)
{
    struct rank rank = {.step = 0};
    void *library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fail(dlerror());
    }
    if (api == 5) {
        const struct nccl_tuner_v5 *tuner = dlsym(library, "ncclTunerPlugin_v5");
        tuner->init(&rank.context, COMM, 2, 1, NULL, NULL, NULL);
        rank.ask = tuner->get_coll_info;
    } else {
        const struct nccl_tuner_v6 *tuner = dlsym(library, "ncclTunerPlugin_v6");
        tuner->init(&rank.context, COMM, 2, 1, NULL, NULL, NULL);
        rank.ask = tuner->get_coll_info;
        rank.chunk = tuner->get_chunk_size;
    }
    return rank;
}

static void map_region(void)
{
    char key[LAGOM_PATH_BYTES], path[LAGOM_PATH_BYTES];
    lagom_job_key(key, 0);
    lagom_region_path(key, path);
    int fd = open(path, O_RDWR | O_CLOEXEC); /* kept open: closing it would drop the plugin's locks */
    region = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*region), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (region == MAP_FAILED) {
        fail("the plugin made no region; is there room in the shared memory folder?");
    }
    for (communicator = 0; region->communicators[communicator].comm_id != COMM; communicator++) {
    }
}

static void put_plan_in_force(struct rank pair[2], enum state state)
{
    static struct lagom_plan plan;
    plan.start_call = POSITIONS;
    if (state == RULES) {
        plan.rule_count = LAGOM_MAX_RULES; /* the last one fits */
        for (uint32_t i = 0; i < LAGOM_MAX_RULES; i++) {
            plan.rules[i] = (struct lagom_rule){.bytes_min = i + 1 == LAGOM_MAX_RULES ? 0 : 1u << 30,
                                                .bytes_max = UINT64_MAX,
                                                .function = LAGOM_ANY_FUNCTION,
                                                .incumbent = site_at(3).incumbent,
                                                .candidate = site_at(3).incumbent};
        }
    } else {
        plan.position_count = POSITIONS;
        plan.site_count = SITES;
        for (uint32_t i = 0; i < SITES; i++) {
            plan.sites[i] = site_at(i);
        }
        for (uint32_t i = 0; i < POSITIONS; i++) {
            plan.positions[i] = (uint16_t)site_of_position(i);
        }
    }
    if (lagom_publish(region, communicator, &plan) != LAGOM_PUBLISH_OK) {
        fail("the plan was not taken");
    }
    for (int i = 0; i < 2 * POSITIONS; i++) {
        offer();
        call(&pair[0], true);
        offer();
        call(&pair[1], true);
        lagom_publish_poll(region, communicator);
    }
    if (region->slots[0].active_epoch == 0 || region->slots[1].active_epoch == 0) {
        fail("the plan did not come into force");
    }
}

static void drain(void)
{
    static struct lagom_call_record records[LAGOM_CALL_RING_CAPACITY];
    lagom_call_ring_drain(region, 0, records, LAGOM_CALL_RING_CAPACITY);
}

/* ---- A scenario -------------------------------------------------------------------------------------------------- */

static void prepare(struct rank pair[2], const struct scenario *scenario, const char *library_path)
{
    setenv("LAGOM_MODE", scenario->state == OFF ? "off" : "tune", 1);
    pair[0] = open_rank(library_path, scenario->api);
    pair[1] = open_rank(library_path, scenario->api);
    if (scenario->state == OFF) {
        return;
    }
    map_region();
    if (scenario->state != NO_CONTROLLER) {
        put_plan_in_force(pair, scenario->state);
    }
    lagom_capture_set(region, communicator, scenario->recording ? LAGOM_CAPTURE_CALLS : 0, POSITIONS);
}

/* Untimed, and with everything NCCL does: from v6 on it asks for the chunk too. */
static void one_call(struct rank *rank, const struct scenario *scenario)
{
    call(rank, scenario->state != SUSPENDED);
    if (rank->chunk != NULL) {
        rank->chunk(rank->context, LAGOM_ALL_GATHER, 65536, LAGOM_RING, LAGOM_SIMPLE, 1, &chunk_bytes);
    }
}

static void time_calls(struct rank *rank, const struct scenario *scenario)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        struct lagom_site site = site_at(site_of_position((uint32_t)(rank->step++ % POSITIONS)));
        size_t bytes = scenario->state == SUSPENDED ? site.bytes + 64 : site.bytes;
        offer();
        uint64_t start = ticks_before();
        rank->ask(rank->context, (int)site.function, bytes, 1, (float **)(void *)table, LAGOM_ALGORITHMS,
                  LAGOM_PROTOCOLS, 0, &channels);
        samples[i] = ticks_after() - start;
        if (scenario->recording && i % DRAIN_EVERY == 0) {
            drain();
        }
    }
    qsort(samples, SAMPLES, sizeof(samples[0]), compare);
}

static void time_chunks(struct rank *rank)
{
    for (size_t i = 0; i < SAMPLES; i++) {
        offer();
        call(rank, true);
        uint64_t start = ticks_before();
        rank->chunk(rank->context, LAGOM_ALL_GATHER, 65536, LAGOM_RING, LAGOM_SIMPLE, 1, &chunk_bytes);
        samples[i] = ticks_after() - start;
        if (i % DRAIN_EVERY == 0) {
            drain();
        }
    }
    qsort(samples, SAMPLES, sizeof(samples[0]), compare);
}

/* Nanoseconds a call, median over batches. The table and what is asked are prepared outside. */
static double batch_ns(struct rank *rank, const struct scenario *scenario)
{
    struct lagom_site sites[POSITIONS];
    for (uint32_t i = 0; i < POSITIONS; i++) {
        sites[i] = site_at(site_of_position(i));
        sites[i].bytes += scenario->state == SUSPENDED ? 64 : 0;
    }
    offer(); /* RING/SIMPLE is the stock pick and what the program asks for, so the table stays as it is */
    for (size_t batch = 0; batch < BATCHES; batch++) {
        uint64_t start = monotonic_ns();
        for (int i = 0; i < BATCH; i++) {
            const struct lagom_site *site = &sites[rank->step++ % POSITIONS];
            rank->ask(rank->context, (int)site->function, site->bytes, 1, (float **)(void *)table, LAGOM_ALGORITHMS,
                      LAGOM_PROTOCOLS, 0, &channels);
        }
        samples[batch] = monotonic_ns() - start;
        if (scenario->recording) {
            drain();
        }
    }
    qsort(samples, BATCHES, sizeof(samples[0]), compare);
    return (double)samples[BATCHES / 2] / BATCH;
}

static double above(uint64_t ticks, uint64_t empty, double tick_ns)
{
    return ticks > empty ? (double)(ticks - empty) * tick_ns : 0;
}

static void print_line(const char *name, int api, uint64_t empty, double tick_ns, double batch, uint64_t allocated)
{
    printf("{\"scenario\": \"%s\", \"api\": %d, \"median_ns\": %.1f, \"p99_ns\": %.1f, \"p999_ns\": %.1f, "
           "\"batch_ns\": %.1f, \"step_ns\": %.1f, \"allocations\": %llu, \"samples\": %d}\n",
           name, api, above(quantile(0.5), empty, tick_ns), above(quantile(0.99), empty, tick_ns),
           above(quantile(0.999), empty, tick_ns), batch, counter_step_ticks() * tick_ns, (unsigned long long)allocated,
           SAMPLES);
}

static void warm_up(struct rank *rank, const struct scenario *scenario)
{
    uint64_t start = monotonic_ns();
    while (monotonic_ns() - start < WARM_NS) {
        offer();
        one_call(rank, scenario);
    }
    if (scenario->recording) {
        drain();
    }
}

/* Everything that allocates or frees in this process goes through this file's definitions. */
static uint64_t allocations_of(struct rank *rank, const struct scenario *scenario)
{
    uint64_t before = allocations;
    for (int i = 0; i < UNTIMED_CHECKS; i++) {
        offer();
        one_call(rank, scenario);
    }
    return allocations - before;
}

static void run_scenario(const struct scenario *scenario, const char *library_path)
{
    struct rank pair[2];
    uint64_t empty = empty_ticks();
    double tick_ns = nanoseconds_a_tick();
    prepare(pair, scenario, library_path);
    warm_up(&pair[0], scenario);
    uint64_t allocated = allocations_of(&pair[0], scenario);
    if (scenario->state == PROGRAM && channels == 0) {
        fail("the program is not in force: this would measure something else");
    }
    double batch = batch_ns(&pair[0], scenario);
    time_calls(&pair[0], scenario);
    print_line(scenario->name, scenario->api, empty, tick_ns, batch, allocated);
    if (scenario->state == PROGRAM && scenario->recording && pair[0].chunk != NULL) {
        time_chunks(&pair[0]);
        print_line("getChunkSize", scenario->api, empty, tick_ns, 0, allocated);
    }
}

/* ---- No system call ---------------------------------------------------------------------------------------------- */

/* Leaves exit; anything else is SIGSYS. (Seccomp's strict mode would also take away the processor's counter.) */
static bool forbid_system_calls(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {.len = sizeof(program) / sizeof(program[0]), .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static void under_seccomp(const struct scenario *scenario, const char *library_path)
{
    struct rank pair[2];
    if (scenario != NULL) {
        prepare(pair, scenario, library_path);
    }
    monotonic_ns();
    if (!forbid_system_calls()) {
        _exit(77);
    }
    for (int i = 0; i < UNTIMED_CHECKS; i++) {
        if (scenario == NULL) {
            monotonic_ns();
        } else {
            offer();
            one_call(&pair[0], scenario);
        }
    }
    syscall(SYS_exit, 0);
}

static const char *verdict_under_seccomp(const struct scenario *scenario, const char *library_path)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        under_seccomp(scenario, library_path);
    }
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) {
        return WEXITSTATUS(status) == 0    ? "none"
               : WEXITSTATUS(status) == 77 ? "not checked: no seccomp here"
                                           : "failed";
    }
    return "made";
}

static void check_system_calls(const char *library_path)
{
    const char *clock = verdict_under_seccomp(NULL, library_path);
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        const struct scenario *scenario = &scenarios[i];
        const char *verdict = verdict_under_seccomp(scenario, library_path);
        if (strcmp(verdict, "made") == 0 && strcmp(clock, "made") == 0 && scenario->recording) {
            verdict = "not checked: clock_gettime is a system call on this machine";
        }
        printf("{\"scenario\": \"%s\", \"api\": %d, \"recording\": %d, \"system_calls\": \"%s\"}\n", scenario->name,
               scenario->api, scenario->recording, verdict);
    }
}

int main(int argument_count, char **arguments)
{
    if (argument_count != 2) {
        fail("usage: decision_latency PLUGIN.so (run it through `python -m benchmarks.decision_latency`)");
    }
    setenv("LAGOM_CONTROLLER", "none", 1);
    unsetenv("LAGOM_PROFILE");
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            run_scenario(&scenarios[i], arguments[1]);
            exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status != 0) {
            fail("a scenario failed");
        }
    }
    check_system_calls(arguments[1]);
    return 0;
}
