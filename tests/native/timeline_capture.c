/* SPDX-License-Identifier: Apache-2.0 */
/* Capture from end to end against a fake CUPTI: records, names, the join, drops, on and off, the end. */
#include <limits.h>

#include "timeline_harness.h"

static void one_of_each(size_t record_bytes)
{
    attach();
    fake.set(record_bytes, 0, 0);
    CHECK_EQUAL(threads_of_ours(), 1);
    switch_on();
    CHECK(lagom_load_acquire(&process->timeline_first_enable_ns) > 0);
    compute();
    nccl_launch(GATHER, 4, 100, 1, LAGOM_ALL_GATHER, 16);
    compute();
    nccl_launch(SEND, 4, 0, 0, 0, 8);
    nccl_launch(SCATTER, 5, 40, 2, LAGOM_REDUCE_SCATTER, 24);
    nccl_launch(GATHER, 4, UINT64_MAX, 1, LAGOM_ALL_GATHER, 16);
    await_spans(6);
    CHECK_EQUAL(lagom_load_acquire(&process->timeline_records), 6);
    CHECK_EQUAL(lagom_load_acquire(&process->timeline_lost), 0);
    check_span(nccl_span(0), 100, LAGOM_JOIN_CALL);
    check_span(nccl_span(1), UINT64_MAX, LAGOM_JOIN_SLOT);
    check_span(nccl_span(2), 40, LAGOM_JOIN_CALL);
    check_span(nccl_span(3), UINT64_MAX, LAGOM_JOIN_SLOT);
    CHECK_EQUAL(nccl_span(0)->slot, 4);
    CHECK_EQUAL(nccl_span(0)->kind, LAGOM_SPAN_COLLECTIVE);
    CHECK_EQUAL(nccl_span(0)->protocol, LAGOM_SIMPLE); /* the name says LL, and lies */
    CHECK_EQUAL(nccl_span(0)->bytes, 4096);
    CHECK_EQUAL(nccl_span(1)->kind, LAGOM_SPAN_P2P);
    CHECK_EQUAL(nccl_span(2)->function, LAGOM_REDUCE_SCATTER);
    const struct lagom_kernel_span *matmul = &spans[0];
    CHECK_EQUAL(matmul->kind, LAGOM_SPAN_COMPUTE);
    CHECK_EQUAL(matmul->blocks, 396);
    CHECK_EQUAL(matmul->threads, 256);
    CHECK_EQUAL(matmul->end_ns - matmul->start_ns, 500);
    CHECK(strcmp(region->names[matmul->name - 1].text, MATMUL) == 0);
    CHECK_EQUAL(region->names[matmul->name - 1].ready, 1);
    want(0);
    CHECK(becomes(LAGOM_TIMELINE_OFF));
    compute();
    rest(50 * MS);
    drain();
    CHECK_EQUAL(span_count, 6);
    leave();
}

static void records_of_cupti_12(void)
{
    one_of_each(208);
}

static void records_of_cupti_13(void)
{
    one_of_each(216);
}

/* They are communication, are no launch of NCCL's, and leave the order of those alone. */
static void copies_between_gpus_are_communication(void)
{
    attach();
    switch_on();
    uint64_t start = now_ns();
    fake.copy(0, 1, 4096, 9, start, start + 700);
    nccl_launch(GATHER, 4, 100, 1, LAGOM_ALL_GATHER, 16);
    fake.copy(1, 1, 4096, 9, start, start + 700); /* on one GPU */
    fake.copy(1, 0, 1ull << 40, 9, start + 1, start + 2);
    fake.copy(1, 0, 4096, 9, 0, 0); /* CUPTI had no room for its times */
    nccl_launch(SCATTER, 4, 101, 1, LAGOM_REDUCE_SCATTER, 24);
    await_spans(5);
    CHECK_EQUAL(lagom_load_acquire(&process->timeline_records), 6);
    CHECK_EQUAL(lagom_load_acquire(&process->timeline_lost), 1);
    uint32_t copies = 0;
    for (uint32_t i = 0; i < span_count; i++) {
        if (spans[i].stream == 9) {
            CHECK_EQUAL(spans[i].kind, copies == 1 ? LAGOM_SPAN_OTHER : LAGOM_SPAN_P2P);
            CHECK_EQUAL(spans[i].bytes, copies == 2 ? 1ull << 40 : 4096);
            CHECK_EQUAL(spans[i].end_ns - spans[i].start_ns, copies == 2 ? 1 : 700);
            CHECK_EQUAL(spans[i].call, UINT64_MAX);
            CHECK_EQUAL(spans[i].slot, LAGOM_UNKNOWN_RANK);
            CHECK(strncmp(region->names[spans[i].name - 1].text, copies == 1 ? "Memcpy DtoD" : "Memcpy PtoP", 11) == 0);
            copies++;
        } else {
            check_span(&spans[i], spans[i].function == LAGOM_ALL_GATHER ? 100 : 101, LAGOM_JOIN_CALL);
        }
    }
    CHECK_EQUAL(copies, 3);
    want(0);
    CHECK(becomes(LAGOM_TIMELINE_OFF));
    fake.copy(0, 1, 4096, 9, now_ns(), now_ns());
    rest(50 * MS);
    drain();
    CHECK_EQUAL(span_count, 5);
    leave();
}

/* With external ids the order does not matter: here two kernels come without a note before them. */
static void external_ids_are_exact(void)
{
    attach();
    fake.set(216, 1, 0);
    switch_on();
    nccl_launch(GATHER, 4, 1, 1, LAGOM_ALL_GATHER, 16);
    nccl_launch(GATHER, 4, 2, 1, LAGOM_ALL_GATHER, 16);
    await_spans(2);
    check_span(nccl_span(0), 1, LAGOM_JOIN_CALL);
    check_span(nccl_span(1), 2, LAGOM_JOIN_CALL);
    leave();
}

static void asked_calls_stand_for_launches(void)
{
    attach();
    switch_on_with(false);
    rest(5 * MS);
    for (uint64_t call = 0; call < 6; call++) {
        bool gather = call % 3 != 0;
        struct lagom_kernel_span span = {
            .call = call, .slot = 2, .function = gather ? LAGOM_ALL_GATHER : LAGOM_REDUCE_SCATTER};
        timeline.asked(&span);
        uint64_t start = now_ns();
        fake.launch(gather ? GATHER : SCATTER, 8, 7, start, start + 1000, 0);
    }
    await_spans(6);
    for (uint32_t i = 0; i < 6; i++) {
        check_span(nccl_span(i), i, LAGOM_JOIN_CALL);
        CHECK_EQUAL(nccl_span(i)->slot, 2);
    }
    leave();
}

/* Beside launches that are noted, NCCL says nothing of a Broadcast but that it asked about it. */
static void a_broadcast_between_two_launches(bool external_ids)
{
    attach();
    fake.set(216, external_ids, 0);
    switch_on();
    rest(5 * MS);
    for (uint64_t call = 0; call < 9; call += 3) {
        nccl_launch(GATHER, 4, call, 1, LAGOM_ALL_GATHER, 16);
        struct lagom_kernel_span span = {.call = call + 1, .bytes = 4, .slot = 4, .function = LAGOM_BROADCAST};
        timeline.unreported(&span);
        uint64_t start = now_ns();
        fake.launch(BROADCAST, 1, 7, start, start + 1000, 0);
        nccl_launch(SCATTER, 4, call + 2, 1, LAGOM_REDUCE_SCATTER, 16);
    }
    await_spans(9);
    for (uint32_t i = 0; i < 9; i++) {
        CHECK_EQUAL(nccl_span(i)->join, LAGOM_JOIN_CALL);
        CHECK_EQUAL(nccl_span(i)->slot, 4);
        CHECK_EQUAL(nccl_span(i)->function == LAGOM_BROADCAST, nccl_span(i)->call % 3 == 1);
        CHECK_EQUAL(nccl_span(i)->bytes, nccl_span(i)->call % 3 == 1 ? 4 : 4096);
    }
    leave();
}

static void broadcasts_are_joined_with_external_ids(void)
{
    a_broadcast_between_two_launches(true);
}

static void broadcasts_are_joined_by_order(void)
{
    a_broadcast_between_two_launches(false);
}

static void replayed_by_a_graph(void)
{
    attach();
    switch_on();
    uint64_t start = now_ns();
    fake.launch(GATHER, 8, 7, start, start + 10, 77);
    await_spans(1);
    check_span(nccl_span(0), UINT64_MAX, LAGOM_JOIN_GRAPH);
    leave();
}

static void useless_records_are_counted(void)
{
    attach();
    switch_on();
    uint64_t now = now_ns();
    fake.launch(MATMUL, 1, 5, 0, 0, 0);                       /* CUPTI had no room for times */
    fake.launch(MATMUL, 1, 5, now, now - 5, 0);               /* backwards */
    fake.launch(MATMUL, 1, 5, now, now + 3600000ull * MS, 0); /* another clock */
    compute();
    await_spans(1);
    CHECK_EQUAL(lagom_load_acquire(&process->timeline_records), 4);
    CHECK_EQUAL(lagom_load_acquire(&process->timeline_lost), 3);
    leave();
}

static void two_buffers_and_many_kernels(void)
{
    attach();
    switch_on();
    for (int i = 0; i < 3000; i++) {
        compute();
    }
    await_spans(3000);
    CHECK_EQUAL(lagom_load_acquire(&process->kernel_drops), 0);
    leave();
}

/* 64 buffers of 128 KiB hold some 38,000 kernels; nobody reads the ring. Everything is counted, nothing hangs. */
static void nobody_reads(void)
{
    attach();
    switch_on();
    for (int i = 0; i < 60000; i++) {
        compute();
    }
    uint64_t until = now_ns() + 20000ull * MS;
    while (lagom_load_acquire(&process->timeline_records) + lagom_load_acquire(&process->timeline_lost) < 60000 && now_ns() < until) {
        compute();
        rest(10 * MS);
    }
    CHECK(lagom_load_acquire(&process->timeline_lost) > 0);
    CHECK(lagom_load_acquire(&process->kernel_drops) > 0);
    CHECK(lagom_load_acquire(&process->timeline_records) + lagom_load_acquire(&process->timeline_lost) >= 60000);
    leave();
}

/* CUPTI returns a buffer when its last kernel has ended: a later one may come first. */
static void buffers_in_another_order(void)
{
    attach();
    switch_on();
    for (uint64_t call = 0; call < 8; call++) {
        nccl_launch(GATHER, 4, call, 1, LAGOM_ALL_GATHER, 16);
        if (call == 3) {
            fake.delay();
            fake.flush();
        }
    }
    await_spans(8);
    for (uint32_t i = 0; i < 8; i++) {
        check_span(nccl_span(i), i, LAGOM_JOIN_CALL);
    }
    leave();
}

static void refused_by_cupti(void)
{
    attach();
    fake.set(216, 0, 1);
    want(1);
    CHECK(becomes(LAGOM_TIMELINE_YIELDED));
    CHECK(strstr(process->timeline_remark, "does not record kernels") != NULL);
    leave();
}

/* A machine without a GPU: there is no CUPTI, or one that refuses. */
static void no_gpu_here(void)
{
    CHECK_EQUAL(timeline.attach(region, 1, NULL), 0);
    want(1);
    uint64_t until = now_ns() + 5000ull * MS;
    while ((state() == LAGOM_TIMELINE_OFF || state() == LAGOM_TIMELINE_STARTING) && now_ns() < until) {
        rest(10 * MS);
    }
    CHECK(state() != LAGOM_TIMELINE_STARTING);
    CHECK(state() == LAGOM_TIMELINE_ON || strstr(process->timeline_remark, "no kernel timeline") != NULL);
    leave();
}

static void on_and_off_again(void)
{
    attach();
    for (uint32_t i = 0; i < 8; i++) {
        switch_on();
        span_count = 0;
        for (uint64_t call = 0; call < 5; call++) {
            nccl_launch(call % 2 ? GATHER : SCATTER, 4, call, 1, call % 2 ? LAGOM_ALL_GATHER : LAGOM_REDUCE_SCATTER, 16);
        }
        want(0);
        await_spans(5);
        for (uint32_t call = 0; call < 5; call++) {
            check_span(nccl_span(call), call, LAGOM_JOIN_CALL);
        }
        nccl_launch(GATHER, 4, 99, 1, LAGOM_ALL_GATHER, 16); /* unseen */
        rest(30 * MS);
    }
    timeline.detach();
    CHECK_EQUAL(timeline.attach(region, 1, NULL), 0); /* a later communicator */
    leave();
}

/* exit() while it records: no crash, and no thread left in CUPTI. */
static void ends_with_the_process(void)
{
    attach();
    switch_on();
    compute();
}

#ifndef __SANITIZE_THREAD__
static void (*at_join)(void);

/* In the C library's place: the library under test waits here for its thread, and holds its lock. */
int pthread_join(pthread_t thread, void **result)
{
    int (*real)(pthread_t, void **);
    void *symbol = dlsym(RTLD_NEXT, "pthread_join");
    memcpy(&real, &symbol, sizeof(symbol));
    if (at_join != NULL) {
        at_join();
    }
    return real(thread, result);
}

static void exit_in_handler(int number)
{
    (void)number;
    exit(0);
}

static void raise_a_signal(void)
{
    at_join = NULL;
    raise(SIGUSR1);
}

/* The handler calls exit() in the middle of the end of the last communicator: nothing is waited for. */
static void exit_in_a_signal_handler(void)
{
    attach();
    switch_on();
    CHECK(signal(SIGUSR1, exit_in_handler) != SIG_ERR);
    at_join = raise_a_signal;
    alarm(60); /* one that is ended by this was hanging */
    timeline.detach();
    CHECK(false);
}
#endif

static void a_forked_child_is_let_alone(void)
{
    attach();
    switch_on();
    pid_t child = fork();
    if (child == 0) {
        timeline.detach();
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    compute();
    await_spans(1);
    leave();
}

int main(void)
{
    unsetenv("CUDA_INJECTION64_PATH");
    build_fakes();
    CASE(records_of_cupti_12);
    CASE(records_of_cupti_13);
    CASE(copies_between_gpus_are_communication);
    CASE(external_ids_are_exact);
    CASE(asked_calls_stand_for_launches);
    CASE(broadcasts_are_joined_with_external_ids);
    CASE(broadcasts_are_joined_by_order);
    CASE(replayed_by_a_graph);
    CASE(useless_records_are_counted);
    CASE(two_buffers_and_many_kernels);
    CASE(nobody_reads);
    CASE(buffers_in_another_order);
    CASE(refused_by_cupti);
    CASE(no_gpu_here);
    CASE(on_and_off_again);
    CASE(ends_with_the_process);
#ifndef __SANITIZE_THREAD__ /* for which a thread that exit() has kept from being joined is a leak */
    CASE(exit_in_a_signal_handler);
#endif
    CASE(a_forked_child_is_let_alone);
    end_cases();
    return 0;
}
