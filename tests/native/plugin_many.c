/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_many.c - many communicators at once and one after another: threads, concurrent inits, 10,000 lives without
 * growth. */
#include <dirent.h>
#include <pthread.h>

#include "tests/native/plugin_harness.h"

#define THREADS 8
#define CALLS (sanitized() && !is_full() ? 4000 : 20000)
#define RANKS 4
#define LIVES (sanitized() ? (is_full() ? 1000u : 300u) : 10000u) /* a sanitizer keeps freed memory; there the leak checker judges */

static struct plugin plugin;

static long resident_kib(void)
{
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static int open_files(void)
{
    int count = 0;
    DIR *files = opendir("/proc/self/fd");
    while (readdir(files) != NULL) {
        count++;
    }
    closedir(files);
    return count;
}

static int slots_in_use(const struct lagom_region *region)
{
    int count = 0;
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        count += region->slots[i].state == LAGOM_READY || region->slots[i].state == LAGOM_CLAIMED;
    }
    return count;
}

static void one_life(uint64_t comm_id)
{
    static int mask;
    void *profiled;
    CHECK(plugin.profiler_v6->init(&profiled, comm_id, &mask, "pg", 1, 8, 3, NULL) == 0);
    CHECK(profiled != NULL);
    struct rank rank = make_rank(&plugin, 6, comm_id, 8, 1);
    CHECK(rank.context != NULL);
    call(&rank, LAGOM_ALL_GATHER, MIB);
    CHECK(untouched(&rank));
    end_rank(&rank);
    CHECK(plugin.profiler_v6->finalize(profiled) == 0);
}

static void ten_thousand_lives_without_growth(void)
{
    plugin = load_plugin();
    for (uint64_t i = 1; i <= 200; i++) {
        one_life(i);
    }
    long resident = resident_kib();
    int files = open_files();
    for (uint64_t i = 201; i <= LIVES; i++) {
        one_life(i);
    }
    CHECK_EQUAL(open_files(), files);
    CHECK(sanitized() ||
          resident_kib() - resident < 2048); /* a communicator is 70 KiB: no life leaves anything behind */
    struct lagom_region *region = map_region();
    CHECK_EQUAL(slots_in_use(region), 0);
    one_life(LIVES + 1); /* there still is a place */
}

/* Each thread is a rank of its own communicator, as autograd and main thread are; all share the process. */
static void *live_and_call(void *argument)
{
    uint64_t comm_id = 500 + (uint64_t)(uintptr_t)argument;
    static int mask;
    void *profiled;
    CHECK(plugin.profiler_v6->init(&profiled, comm_id, &mask, NULL, 1, 2, 0, NULL) == 0);
    struct rank rank = make_rank(&plugin, 6, comm_id, 2, 1);
    CHECK(rank.context != NULL);
    for (int i = 0; i < CALLS; i++) {
        call(&rank, i % LAGOM_FUNCTIONS, (size_t)(i % 97) << 16);
        CHECK(untouched(&rank));
        CHECK_EQUAL(chunk_of(&rank, i % LAGOM_FUNCTIONS, LAGOM_RING, LAGOM_SIMPLE, MIB), MIB);
    }
    end_rank(&rank);
    CHECK(plugin.profiler_v6->finalize(profiled) == 0);
    return NULL;
}

/* The first inits race: the region is joined once, everybody gets a place. */
static void threads_with_a_communicator_each(void)
{
    pthread_t threads[THREADS];
    plugin = load_plugin();
    for (uintptr_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, live_and_call, (void *)i) == 0);
    }
    struct lagom_region *region = NULL;
    for (int i = 0; i < 600000 && (region = map_region()) == NULL; i++) {
        usleep(1000);
    }
    CHECK(region != NULL);
    for (int i = 0; i < 400; i++) { /* a controller that looks, switches recording and drains meanwhile */
        struct lagom_call_record records[64];
        for (uint32_t slot = 0; slot < LAGOM_MAX_SLOTS; slot++) {
            uint32_t count = lagom_call_ring_drain(region, slot, records, 64);
            for (uint32_t j = 1; j < count; j++) {
                CHECK(records[j].call > records[j - 1].call);
            }
        }
        for (uint32_t c = 0; c < THREADS; c++) {
            lagom_capture_set(region, c, i % 3 == 0 ? 0 : LAGOM_CAPTURE_CALLS | LAGOM_CAPTURE_KERNELS);
        }
        usleep(200);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    uint64_t calls = 0;
    for (uint32_t slot = 0; slot < LAGOM_MAX_SLOTS; slot++) {
        calls += region->slots[slot].calls;
    }
    CHECK_EQUAL(calls, THREADS * CALLS);
    CHECK_EQUAL(region->header.processes_seen, 1);
}

/* Several GPUs in one process: every rank of one communicator, a thread each, agreeing on one plan while they run. */
static uint64_t first_tuned[RANKS];
static bool enough;

static void *rank_of_one_communicator(void *argument)
{
    uintptr_t self = (uintptr_t)argument;
    struct rank rank = make_rank(&plugin, 5, 42, RANKS, 1);
    CHECK(rank.context != NULL);
    for (uint64_t i = 0; !lagom_load_acquire(&enough); i++) {
        call(&rank, LAGOM_ALL_GATHER, MIB);
        if (rank.channels == 0) {
            CHECK(untouched(&rank) && first_tuned[self] == 0); /* never back to stock */
        } else if (first_tuned[self] == 0) {
            CHECK_EQUAL(rank.channels, 7);
            first_tuned[self] = i;
        }
    }
    return NULL;
}

static struct lagom_region *wait_for_all(uint32_t *communicator)
{
    struct lagom_region *region = NULL;
    uint64_t smallest, largest;
    for (;; usleep(1000)) {
        region = region == NULL ? map_region() : region;
        *communicator = region == NULL ? UINT32_MAX : find_communicator_of(region, 42);
        if (*communicator != UINT32_MAX && lagom_counters(region, *communicator, &smallest, &largest) == RANKS) {
            return region;
        }
    }
}

static void commit(struct lagom_region *region, uint32_t communicator, struct lagom_plan *plan)
{
    uint64_t smallest, largest;
    enum lagom_outcome outcome = LAGOM_OUTCOME_ABORTED;
    for (uint64_t margin = 20000; outcome != LAGOM_OUTCOME_COMMITTED; margin *= 2) { /* two processors, four ranks */
        lagom_counters(region, communicator, &smallest, &largest);
        plan->start_call = largest + margin;
        CHECK(lagom_publish(region, communicator, plan) == LAGOM_PUBLISH_OK);
        while ((outcome = lagom_publish_poll(region, communicator)) == LAGOM_OUTCOME_OPEN) {
            usleep(100);
        }
    }
}

static void ranks_in_one_process_switch_at_one_call(void)
{
    pthread_t threads[RANKS];
    static struct lagom_plan plan;
    struct lagom_config config = leave_all();
    uint32_t communicator;
    uint64_t smallest = 0, largest;
    config.channels = 7;
    add_rule(&plan, LAGOM_ALL_GATHER, 0, UINT64_MAX, config);
    plugin = load_plugin();
    for (uintptr_t i = 0; i < RANKS; i++) {
        CHECK(pthread_create(&threads[i], NULL, rank_of_one_communicator, (void *)i) == 0);
    }
    struct lagom_region *region = wait_for_all(&communicator);
    commit(region, communicator, &plan);
    while (smallest <= plan.start_call) {
        usleep(100);
        lagom_counters(region, communicator, &smallest, &largest);
    }
    lagom_store_release(&enough, true);
    for (int i = 0; i < RANKS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQUAL(first_tuned[i], plan.start_call);
    }
}

int main(void)
{
    int failures = 0;
    failures += RUN(ten_thousand_lives_without_growth);
    failures += RUN(threads_with_a_communicator_each);
    failures += RUN(ranks_in_one_process_switch_at_one_call);
    return failures != 0;
}
