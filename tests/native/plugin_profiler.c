/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_profiler.c - the profiler plugin, v4..v7: rank and name reach the tuner, events become spans with effective
 * channels, threads and GPU times, the mask is raised when somebody measures and lowered again, pools end cleanly. */
#include <pthread.h>

#include "tests/native/profiler_harness.h"

static void names_ranks_and_spans(int api)
{
    struct profiled_rank pair[2];
    struct lagom_kernel_span spans[8];
    pair_of(pair, api);
    CHECK_EQUAL(region->slots[0].rank, 0);
    CHECK_EQUAL(region->slots[1].rank, 1);
    CHECK(strcmp(region->communicators[communicator].name, "fsdp") == 0);
    CHECK_EQUAL(region->processes[0].profiler_api, api);
    CHECK(region->processes[0].knobs & LAGOM_KNOB_ONLINE); /* v4 too: the id came through the profiler plugin */

    CHECK((mask & (COLL | KERNEL_CH)) == 0);
    measure(&pair[0], LAGOM_CAPTURE_KERNELS);
    CHECK((mask & (COLL | KERNEL_CH)) == (COLL | KERNEL_CH));
    uint64_t number = region->slots[0].calls;
    call(&pair[0].rank, LAGOM_ALL_GATHER, 2 * 2 * MIB); /* of both ranks; the event says one's count */
    union nccl_event_body body = coll_of("AllGather", MIB, 3, 41);
    void *coll = start(&pair[0], COLL, NULL, &body);
    CHECK(coll != NULL);
    run_kernel(&pair[0], coll, 3, 5000);
    CHECK_EQUAL(drain(spans, 8), 2);
    CHECK_EQUAL(spans[0].source, LAGOM_SPAN_NCCL_EVENT);
    CHECK_EQUAL(spans[1].source, LAGOM_SPAN_NCCL_KERNEL);
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(spans[i].call, number);
        CHECK_EQUAL(spans[i].bytes, 2 * 2 * MIB); /* as the call */
        CHECK_EQUAL(spans[i].slot, 0);
        CHECK_EQUAL(spans[i].channels, 3);
        CHECK_EQUAL(spans[i].threads, 17 * 32);
        CHECK_EQUAL(spans[i].kind, LAGOM_SPAN_COLLECTIVE);
        CHECK_EQUAL(spans[i].function, LAGOM_ALL_GATHER);
        CHECK_EQUAL(spans[i].algorithm, LAGOM_RING);
        CHECK_EQUAL(spans[i].protocol, LAGOM_SIMPLE);
        CHECK_EQUAL(spans[i].sequence, 41);
    }
    CHECK_EQUAL(spans[1].start_ns, 5000);
    CHECK_EQUAL(spans[1].end_ns, 6002);

    measure(&pair[0], 0);
    CHECK((mask & (COLL | KERNEL_CH)) == 0);
    end_rank(&pair[0].rank);
    end_rank(&pair[1].rank);
    CHECK_EQUAL(mask, 0);
}

static void version_4(void)
{
    names_ranks_and_spans(4);
}

static void version_5(void)
{
    names_ranks_and_spans(5);
}

static void version_6(void)
{
    names_ranks_and_spans(6);
}

static void version_7(void)
{
    names_ranks_and_spans(7);
}

/* They never asked the tuner: counted, and not taken for the launch of a call that did ask. */
static void symmetric_kernels_are_counted_apart(void)
{
    struct profiled_rank pair[2];
    struct lagom_kernel_span spans[8];
    pair_of(pair, 7);
    measure(&pair[0], LAGOM_CAPTURE_KERNELS);
    uint64_t number = region->slots[0].calls;
    call(&pair[0].rank, LAGOM_ALL_GATHER, 2 * 2 * MIB);
    union nccl_event_body body = coll_of("AllGather", MIB, 3, 41);
    CHECK(start_v7(&pair[0], COLL, NULL, &body, true) == NULL);
    CHECK_EQUAL(drain(spans, 8), 0);
    CHECK_EQUAL(region->slots[0].untunable_symmetric, 1);
    CHECK(start_v7(&pair[0], COLL, NULL, &body, false) != NULL);
    CHECK_EQUAL(drain(spans, 8), 1);
    CHECK_EQUAL(spans[0].call, number);
    CHECK_EQUAL(region->slots[0].untunable_symmetric, 1);
}

/* Only a collective of v7 has the part that says whether symmetric kernels do it; here no other event does. */
static void the_new_part_of_version_7_is_read_of_collectives_alone(void)
{
    struct profiled_rank pair[2];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t length = offsetof(struct nccl_event_v7, body) + sizeof(union nccl_event_body);
    char *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && mprotect(pages + page, page, PROT_NONE) == 0);
    CHECK(length <= offsetof(struct nccl_event_v7, coll) + offsetof(struct nccl_event_coll_v7, symmetric));
    pair_of(pair, 7);
    struct nccl_event_v7 event = {.type = P2P_API, .body = {.p2p_api = {.function = "Send"}}};
    memcpy(pages + page - length, &event, length);
    void *handle = &event;
    CHECK(plugin.profiler_v7->start_event(pair[0].context, &handle, (void *)(pages + page - length)) == 0);
    CHECK(handle == NULL);
    CHECK_EQUAL(region->slots[0].untunable_p2p, 1);
    CHECK_EQUAL(region->slots[0].untunable_symmetric, 0);
}

/* Only the first kernel of an iteration: the mask is up for the call at position 0, raised one call ahead. */
static void one_kernel_an_iteration(void)
{
    struct profiled_rank pair[2];
    static struct lagom_plan plan;
    pair_of(pair, 5);
    plan.site_count = 2;
    plan.sites[0] = (struct lagom_site){
        .bytes = 2 * MIB, .function = LAGOM_ALL_GATHER, .incumbent = leave_all(), .candidate = leave_all()};
    plan.sites[1] = (struct lagom_site){
        .bytes = 2 * MIB, .function = LAGOM_REDUCE_SCATTER, .incumbent = leave_all(), .candidate = leave_all()};
    plan.position_count = 4;
    plan.positions[3] = 1;
    struct rank ranks[2] = {pair[0].rank, pair[1].rank};
    uint64_t smallest, largest;
    lagom_counters(region, communicator, &smallest, &largest);
    plan.start_call = largest + 4;
    CHECK(lagom_publish(region, communicator, &plan) == LAGOM_PUBLISH_OK);
    lagom_capture_set(region, communicator, LAGOM_CAPTURE_ITERATION);
    for (int i = 0; i < 4; i++) {
        call(&ranks[0], LAGOM_ALL_REDUCE, 1024);
        call(&ranks[1], LAGOM_ALL_REDUCE, 1024);
        lagom_publish_poll(region, communicator);
    }
    for (int iteration = 0; iteration < 3; iteration++) {
        for (int position = 0; position < 4; position++) {
            bool up = (mask & KERNEL_CH) != 0; /* what NCCL samples for this call */
            CHECK_EQUAL(up, position == 0 && iteration > 0);
            call(&ranks[0], position == 3 ? LAGOM_REDUCE_SCATTER : LAGOM_ALL_GATHER, 2 * MIB);
        }
    }
}

static void captures_and_untunable_calls_are_noted(void)
{
    struct profiled_rank pair[2];
    pair_of(pair, 6);
    CHECK_EQUAL(mask, COLL_API | P2P_API | CE_COLL);
    union nccl_event_body body = {.p2p_api = {.function = "Send"}};
    for (int i = 0; i < 5; i++) {
        CHECK(start(&pair[0], P2P_API, NULL, &body) == NULL);
        CHECK(start(&pair[0], P2P, NULL, &body) == NULL); /* the launch of the same one */
    }
    CHECK_EQUAL(region->slots[0].untunable_p2p, 5);
    start(&pair[0], CE_COLL, NULL, &body);
    CHECK_EQUAL(region->slots[0].untunable_copy_engine, 1);
    body = (union nccl_event_body){.coll_api = {.function = "AllGather", .graph_captured = false}};
    start(&pair[0], COLL_API, NULL, &body);
    CHECK_EQUAL(region->slots[0].capturing, 0);
    offer(&pair[0].rank); /* with the profiler plugin, registered buffers alone mean nothing */
    plugin.v6->get_coll_info(pair[0].rank.context, LAGOM_ALL_GATHER, MIB, 1, (float **)(void *)pair[0].rank.table,
                             ALGORITHMS, PROTOCOLS, 1, &pair[0].rank.channels);
    CHECK_EQUAL(region->slots[0].capturing, 0);
    measure(&pair[0], LAGOM_CAPTURE_KERNELS);
    CHECK(mask & KERNEL_CH);
    body.coll_api.graph_captured = true;
    start(&pair[0], COLL_API, NULL, &body);
    CHECK_EQUAL(region->slots[0].capturing, 1);
    call(&pair[0].rank, LAGOM_ALL_REDUCE, 1024);
    CHECK((mask & KERNEL_CH) == 0); /* a measured graph would carry a host node at every replay */
}

static void p2p_is_counted_in_version_4(void)
{
    struct profiled_rank pair[2];
    pair_of(pair, 4);
    CHECK_EQUAL(mask, P2P);
    union nccl_event_body body = {.coll = {.function = "Recv"}};
    start(&pair[1], P2P, NULL, &body);
    CHECK_EQUAL(region->slots[1].untunable_p2p, 1);
}

/* In a group all calls come first; an aggregate's members add up to it; the order within a function is kept. */
static void groups_are_joined(void)
{
    struct profiled_rank pair[2];
    struct lagom_kernel_span spans[8];
    pair_of(pair, 6);
    measure(&pair[0], LAGOM_CAPTURE_KERNELS);
    uint64_t first = region->slots[0].calls;
    call(&pair[0].rank, LAGOM_ALL_REDUCE, 8 * MIB);
    call(&pair[0].rank, LAGOM_ALL_REDUCE, 3 * MIB); /* 1 + 2 */
    call(&pair[0].rank, LAGOM_REDUCE_SCATTER, 8 * MIB);
    const char *functions[] = {"AllReduce", "AllReduce", "AllReduce", "ReduceScatter", "AllReduce"};
    size_t counts[] = {4 * MIB, MIB, MIB / 2, 2 * MIB, 7}; /* bf16; ReduceScatter of 2 ranks */
    uint64_t calls[] = {first, first + 1, first + 1, first + 2, UINT64_MAX};
    for (int i = 0; i < 5; i++) {
        union nccl_event_body body = coll_of(functions[i], counts[i], 2, (uint64_t)i);
        start(&pair[0], COLL, NULL, &body);
    }
    CHECK_EQUAL(drain(spans, 8), 5);
    for (int i = 0; i < 5; i++) {
        CHECK_EQUAL(spans[i].call, calls[i]);
    }
    call(&pair[0].rank, LAGOM_ALL_REDUCE, 8 * MIB); /* the next group: nothing of the last one is left */
    union nccl_event_body body = coll_of("AllReduce", 4 * MIB, 2, 9);
    start(&pair[0], COLL, NULL, &body);
    CHECK_EQUAL(drain(spans, 8), 1);
    CHECK_EQUAL(spans[0].call, first + 3);
}

static void unknown_words_are_not_guessed(void)
{
    struct profiled_rank pair[2];
    struct lagom_kernel_span span;
    pair_of(pair, 5);
    union nccl_event_body body = coll_of("AllToAll", 100, 2, 1);
    body.coll.type = NULL;
    body.coll.algorithm = "SOMETHING";
    body.coll.protocol = NULL;
    start(&pair[0], COLL, NULL, &body);
    CHECK_EQUAL(drain(&span, 1), 1);
    CHECK_EQUAL(span.call, UINT64_MAX);
    CHECK_EQUAL(span.algorithm, -1);
    CHECK_EQUAL(span.protocol, -1);
    CHECK_EQUAL(span.bytes, 0);
    CHECK_EQUAL(start(&pair[0], 1u << 20, NULL, &body), NULL); /* an event of the future */
}

/* More kernels in flight than there are places: the rest is not measured, nothing else happens. */
static void the_pool_runs_dry_and_recovers(void)
{
    struct profiled_rank pair[2];
    struct lagom_kernel_span spans[16];
    static void *colls[1200];
    pair_of(pair, 5);
    int without = 0;
    for (int i = 0; i < 1200; i++) {
        union nccl_event_body body = coll_of("AllReduce", MIB, 2, (uint64_t)i);
        colls[i] = start(&pair[0], COLL, NULL, &body);
        without += colls[i] == NULL;
        drain(spans, 16);
    }
    CHECK_EQUAL(without, 1200 - 1024);
    for (int i = 0; i < 1024; i++) {
        run_kernel(&pair[0], colls[i], 2, 1000);
        CHECK_EQUAL(drain(spans, 16), 1);
        CHECK_EQUAL(spans[0].sequence, i);
    }
    union nccl_event_body body = coll_of("AllReduce", MIB, 2, 7);
    CHECK(start(&pair[0], COLL, NULL, &body) != NULL);
    drain(spans, 16);
    run_kernel(&pair[0], colls[0], 2, 1000); /* an old handle: its place has another generation now */
    CHECK_EQUAL(drain(spans, 16), 0);
}

/* Kernels whose channels never report (an aborted communicator) do not hold their places for ever. */
static void lost_kernels_are_given_up(void)
{
    struct profiled_rank pair[2];
    struct lagom_kernel_span spans[16];
    pair_of(pair, 5);
    for (int i = 0; i < 10000; i++) {
        union nccl_event_body body = coll_of("AllReduce", MIB, 2, (uint64_t)i);
        start(&pair[0], COLL, NULL, &body);
        drain(spans, 16);
    }
    union nccl_event_body body = coll_of("AllReduce", MIB, 2, 99);
    void *coll = NULL;
    for (int tries = 0; coll == NULL && tries < 4096; tries++) { /* at most four rounds of the pool */
        coll = start(&pair[0], COLL, NULL, &body);
        drain(spans, 16);
    }
    CHECK(coll != NULL);
    run_kernel(&pair[0], coll, 2, 1000);
    CHECK_EQUAL(drain(spans, 16), 1);
    CHECK_EQUAL(spans[0].sequence, 99);
}

/* NCCL forgets kernels where a proxy falls behind: only those are lost. With two iterations in flight, one kernel in
 * a hundred never reported took another one with it, after the first few thousand. */
static void lost_kernels_cost_no_others(void)
{
    enum { IN_FLIGHT = 32, LOST = 97 };
    struct profiled_rank pair[2];
    struct lagom_kernel_span spans[16];
    void *colls[IN_FLIGHT] = {NULL};
    pair_of(pair, 5);
    for (int i = 0; i < 20000; i++) {
        void **oldest = &colls[i % IN_FLIGHT];
        if (*oldest != NULL) {
            run_kernel(&pair[0], *oldest, 2, 1000);
            CHECK_EQUAL(drain(spans, 16), 1);
            CHECK_EQUAL(spans[0].source, LAGOM_SPAN_NCCL_KERNEL);
            CHECK_EQUAL(spans[0].sequence, i - IN_FLIGHT);
        }
        union nccl_event_body body = coll_of("AllReduce", MIB, 2, (uint64_t)i);
        *oldest = start(&pair[0], COLL, NULL, &body);
        CHECK(*oldest != NULL);
        if (i % LOST == 0) {
            *oldest = NULL;
        }
        drain(spans, 16);
    }
}

/* Late events, double stops, unknown parents, a communicator that is gone, no context at all. */
static void events_out_of_place_are_harmless(void)
{
    struct profiled_rank pair[2];
    struct lagom_kernel_span spans[16];
    pair_of(pair, 5);
    union nccl_event_body body = coll_of("AllReduce", MIB, 1, 1);
    union nccl_event_body channel = {.kernel_ch = {.gpu_ns = 5}};
    void *coll = start(&pair[0], COLL, NULL, &body);
    void *kernel = start(&pair[0], KERNEL_CH, coll, &channel);
    drain(spans, 16);
    end_rank(&pair[0].rank);
    CHECK(plugin.profiler_v5->finalize(pair[0].context) == 0);
    stop_at(&pair[0], kernel, 10); /* still a kernel of this process */
    CHECK_EQUAL(drain(spans, 16), 1);
    stop_at(&pair[0], kernel, 20);
    stop_at(&pair[0], coll, 20);
    stop_at(&pair[0], NULL, 20);
    CHECK(start(&pair[0], COLL, NULL, &body) == NULL); /* finalized */
    uintptr_t seed = 88172645463325252u;
    for (int i = 0; i < 100000; i++) {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        void *garbage = (void *)seed;
        start(&pair[1], KERNEL_CH, garbage, &channel);
        stop_at(&pair[1], garbage, 1);
    }
    CHECK_EQUAL(drain(spans, 16), 0);
    void *handle = &handle;
    struct nccl_event_v5 event = {.type = COLL, .body = body};
    CHECK(plugin.profiler_v5->start_event(NULL, &handle, &event) == 0 && handle == NULL);
    CHECK(plugin.profiler_v5->start_event(NULL, NULL, &event) == 0);
    CHECK(plugin.profiler_v5->record_event_state(coll, STOP, NULL) == 0);
    CHECK(plugin.profiler_v5->finalize(NULL) == 0);
}

/* A controller that died in a measuring window leaves the flag set; a ring that nobody drains lowers the mask. */
static void nobody_listens(void)
{
    struct profiled_rank pair[2];
    struct lagom_kernel_span spans[64];
    pair_of(pair, 5);
    measure(&pair[0], LAGOM_CAPTURE_KERNELS);
    for (uint32_t i = 0; i < LAGOM_KERNEL_RING_CAPACITY; i++) {
        union nccl_event_body body = coll_of("AllReduce", MIB, 0, i);
        start(&pair[0], COLL, NULL, &body);
    }
    CHECK(mask & KERNEL_CH);
    call(&pair[0].rank, LAGOM_ALL_REDUCE, 1024);
    CHECK((mask & KERNEL_CH) == 0);
    drain(spans, 64); /* somebody does again */
    call(&pair[0].rank, LAGOM_ALL_REDUCE, 1024);
    CHECK(mask & KERNEL_CH);
}

/* Launching threads and proxy threads at once, for several communicators: every span arrives whole. */
#define THREADS 4
#define KERNELS 2000

static void *launch_and_progress(void *argument)
{
    const struct profiled_rank *rank = argument;
    for (int i = 0; i < KERNELS; i++) {
        union nccl_event_body body = coll_of("AllReduce", MIB, 4, (uint64_t)i);
        void *coll = start(rank, COLL, NULL, &body);
        if (coll != NULL) {
            run_kernel(rank, coll, 4, 1000);
        }
    }
    return NULL;
}

static void threads_push_at_once(void)
{
    struct profiled_rank pair[2];
    struct lagom_kernel_span spans[64];
    pthread_t threads[THREADS];
    uint64_t events = 0, kernels = 0;
    pair_of(pair, 5);
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, launch_and_progress, &pair[i % 2]) == 0);
    }
    for (int idle = 0; idle < 2000;) {
        uint32_t count = drain(spans, 64);
        for (uint32_t i = 0; i < count; i++) {
            bool kernel = spans[i].source == LAGOM_SPAN_NCCL_KERNEL;
            CHECK(kernel || spans[i].source == LAGOM_SPAN_NCCL_EVENT);
            CHECK(!kernel || (spans[i].start_ns == 1000 && spans[i].end_ns == 2003 && spans[i].channels == 4));
            events += !kernel;
            kernels += kernel;
        }
        idle = count == 0 ? idle + 1 : 0;
        usleep(count == 0 ? 100 : 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (uint32_t count; (count = drain(spans, 64)) > 0;) {
        events += count;
    }
    CHECK(events + kernels + region->processes[0].kernel_drops >= (uint64_t)THREADS * KERNELS);
    CHECK(kernels > 0);
}

static void off_gives_no_context(void)
{
    setenv("LAGOM_MODE", "off", 1);
    plugin = load_plugin();
    void *context = &context;
    mask = 77;
    CHECK(plugin.profiler_v5->init(&context, COMM, &mask, NULL, 1, 2, 0, NULL) == 0);
    CHECK(context == NULL && mask == 77);
}

int main(void)
{
    int failures = 0;
    failures += RUN(version_4);
    failures += RUN(version_5);
    failures += RUN(version_6) + RUN(version_7) + RUN(symmetric_kernels_are_counted_apart);
    failures += RUN(the_new_part_of_version_7_is_read_of_collectives_alone);
    failures += RUN(one_kernel_an_iteration);
    failures += RUN(captures_and_untunable_calls_are_noted);
    failures += RUN(p2p_is_counted_in_version_4);
    failures += RUN(groups_are_joined);
    failures += RUN(unknown_words_are_not_guessed);
    failures += RUN(the_pool_runs_dry_and_recovers);
    failures += RUN(lost_kernels_are_given_up);
    failures += RUN(lost_kernels_cost_no_others);
    failures += RUN(events_out_of_place_are_harmless);
    failures += RUN(nobody_listens);
    failures += RUN(threads_push_at_once);
    failures += RUN(off_gives_no_context);
    return failures != 0;
}
