/* SPDX-License-Identifier: Apache-2.0 */
/* The join of kernels with launches, without CUPTI, clocks or threads: what is certain is joined, nothing is guessed. */
#include "join_harness.h"
#include "timeline/kernel_name.h"

static void begin(void)
{
    forget_everything();
    begin_between(1000, 2000);
}

static struct lagom_kernel_span span_of(uint64_t call, uint8_t function, uint16_t channels)
{
    return (struct lagom_kernel_span){.call = call, .slot = 3, .function = function, .channels = channels, .bytes = 64};
}

static void note_launch(uint32_t thread, uint64_t from, uint64_t to)
{
    lagom_join_note(&join, &(struct lagom_note){.kind = LAGOM_NOTE_LAUNCH,
                                                .thread = thread,
                                                .serial = ++serial,
                                                .begin_ns = from,
                                                .end_ns = to,
                                                .span = {.slot = 3, .call = UINT64_MAX}});
}

static void note_call(uint32_t kind, uint32_t thread, uint64_t call, uint8_t function, uint16_t channels)
{
    lagom_join_note(&join, &(struct lagom_note){.kind = kind,
                                                .thread = thread,
                                                .begin_ns = clock_ns,
                                                .end_ns = clock_ns,
                                                .span = span_of(call, function, channels)});
}

static void launched(uint64_t call, uint8_t function, uint16_t channels)
{
    note_launch(1, clock_ns, clock_ns + 10);
    note_call(LAGOM_NOTE_CALL, 1, call, function, channels);
    clock_ns += 100;
}

static struct lagom_nccl_kernel make_kernel(uint8_t function, uint16_t channels)
{
    return (struct lagom_nccl_kernel){.span = {.start_ns = clock_ns + 1000000,
                                               .end_ns = clock_ns + 1000500,
                                               .call = UINT64_MAX,
                                               .slot = LAGOM_UNKNOWN_RANK,
                                               .channels = channels,
                                               .kind = LAGOM_SPAN_COLLECTIVE,
                                               .function = function},
                                      .correlation = ++correlation};
}

static void kernel(uint8_t function, uint16_t channels)
{
    deliver(make_kernel(function, channels));
}

static void expect(uint32_t which, uint64_t call, enum lagom_join_result result)
{
    CHECK(which < out_count);
    CHECK_EQUAL(out[which].join, result);
    CHECK_EQUAL(out[which].call, call);
}

static uint8_t function_of(uint64_t call)
{
    return call % 3 == 2 ? LAGOM_REDUCE_SCATTER : LAGOM_ALL_GATHER;
}

/* ---- By times alone --------------------------------------------------------------------------------------------- */

static void equal_calls_are_told_apart_by_when_it_began(void)
{
    begin();
    for (uint64_t call = 0; call < 50; call++) { /* tensor parallel: all the same */
        launched(call, LAGOM_ALL_REDUCE, 16);
        kernel(LAGOM_ALL_REDUCE, 16);
    }
    lagom_join_settle(&join);
    CHECK_EQUAL(out_count, 50);
    for (uint32_t i = 0; i < 50; i++) {
        expect(i, i, LAGOM_JOIN_CALL);
        CHECK_EQUAL(out[i].slot, 3);
    }
}

static void launches_before_it_began_have_no_kernel(void)
{
    begin();
    note_launch(1, 500, 900);
    note_call(LAGOM_NOTE_CALL, 1, 7, LAGOM_ALL_GATHER, 16); /* of a launch we have no kernel of */
    launched(8, LAGOM_ALL_GATHER, 16);
    kernel(LAGOM_ALL_GATHER, 16);
    lagom_join_settle(&join);
    CHECK_EQUAL(out_count, 1);
    expect(0, 8, LAGOM_JOIN_CALL);
}

/* Two launches fell into the moment of switching on: recorded or not? The pattern tells, once it has a corner. */
static void candidates_are_tried_against_the_pattern(void)
{
    for (uint64_t missed = 0; missed <= 2; missed++) {
        begin();
        clock_ns = 1200;
        for (uint64_t call = 0; call < 12; call++) {
            clock_ns = call < 2 ? 1200 + call * 400 : 3000 + call * 100;
            launched(call, function_of(call), 16);
        }
        for (uint64_t call = missed; call < 12; call++) {
            kernel(function_of(call), 16);
        }
        lagom_join_settle(&join);
        CHECK_EQUAL(out_count, 12 - missed);
        for (uint32_t i = 0; i < out_count; i++) {
            expect(i, missed + i, LAGOM_JOIN_CALL);
        }
    }
}

/* The same with nothing but equal calls: held, and let go unjoined, never guessed. */
static void what_cannot_be_told_is_not_guessed(void)
{
    begin();
    for (uint64_t call = 0; call < 600; call++) {
        clock_ns = call < 2 ? 1200 + call * 400 : 3000 + call * 100;
        launched(call, LAGOM_ALL_REDUCE, 16);
    }
    for (uint64_t call = 1; call < 600; call++) {
        kernel(LAGOM_ALL_REDUCE, 16);
        lagom_join_settle(&join);
    }
    lagom_join_finish(&join);
    CHECK_EQUAL(out_count, 599);
    for (uint32_t i = 0; i < out_count; i++) {
        CHECK_EQUAL(out[i].call, UINT64_MAX);
    }
    CHECK_EQUAL(join.counts[LAGOM_JOIN_CALL], 0);
    CHECK(join.counts[LAGOM_JOIN_AMBIGUOUS] > 0);
}

/* ---- Shapes ----------------------------------------------------------------------------------------------------- */

static void an_aggregate_is_its_first_call(void)
{
    begin();
    note_launch(1, clock_ns, clock_ns + 10);
    note_call(LAGOM_NOTE_CALL, 1, 20, LAGOM_ALL_GATHER, 8);
    note_call(LAGOM_NOTE_CALL, 1, 21, LAGOM_ALL_GATHER, 8);
    clock_ns += 100;
    kernel(LAGOM_ALL_GATHER, 16); /* more channels than either */
    launched(22, LAGOM_REDUCE_SCATTER, 16);
    kernel(LAGOM_REDUCE_SCATTER, 16);
    lagom_join_settle(&join);
    expect(0, 20, LAGOM_JOIN_CALL);
    expect(1, 22, LAGOM_JOIN_CALL);
}

static void send_and_receive_in_between(void)
{
    begin();
    launched(1, LAGOM_ALL_GATHER, 16);
    kernel(LAGOM_ALL_GATHER, 16);
    note_launch(1, clock_ns, clock_ns + 10);
    struct lagom_nccl_kernel send = make_kernel(LAGOM_NO_FUNCTION, 4);
    send.span.kind = LAGOM_SPAN_P2P;
    lagom_join_kernel(&join, &send);
    launched(2, LAGOM_ALL_GATHER, 16);
    kernel(LAGOM_ALL_GATHER, 16);
    lagom_join_settle(&join);
    expect(0, 1, LAGOM_JOIN_CALL);
    expect(1, UINT64_MAX, LAGOM_JOIN_SLOT);
    CHECK_EQUAL(out[1].slot, 3);
    expect(2, 2, LAGOM_JOIN_CALL);
}

static void two_threads_at_once_are_disputed(void)
{
    begin();
    launched(1, LAGOM_ALL_GATHER, 16);
    note_launch(1, 4000, 4100);
    note_call(LAGOM_NOTE_CALL, 1, 2, LAGOM_ALL_GATHER, 16);
    note_launch(2, 4050, 4150);
    note_call(LAGOM_NOTE_CALL, 2, 90, LAGOM_REDUCE_SCATTER, 8);
    clock_ns = 5000;
    launched(3, LAGOM_ALL_GATHER, 16);
    kernel(LAGOM_ALL_GATHER, 16);
    kernel(LAGOM_REDUCE_SCATTER, 8); /* the second thread came first */
    kernel(LAGOM_ALL_GATHER, 16);
    kernel(LAGOM_ALL_GATHER, 16);
    lagom_join_settle(&join);
    expect(0, 1, LAGOM_JOIN_CALL);
    expect(1, UINT64_MAX, LAGOM_JOIN_DISPUTED);
    expect(2, UINT64_MAX, LAGOM_JOIN_DISPUTED);
    expect(3, 3, LAGOM_JOIN_CALL);
}

static void kernels_of_one_buffer_come_in_any_order(void)
{
    begin();
    struct lagom_nccl_kernel kernels[6];
    for (uint64_t call = 0; call < 6; call++) {
        launched(call, function_of(call), (uint16_t)(4 + call));
        kernels[call] = make_kernel(function_of(call), (uint16_t)(4 + call));
    }
    static const int order[6] = {3, 0, 5, 1, 4, 2};
    for (int i = 0; i < 6; i++) {
        lagom_join_kernel(&join, &kernels[order[i]]);
    }
    lagom_join_settle(&join);
    for (uint32_t i = 0; i < 6; i++) {
        expect(i, i, LAGOM_JOIN_CALL);
    }
}

static void a_kernel_cannot_run_before_its_launch(void)
{
    begin();
    launched(1, LAGOM_ALL_GATHER, 16);
    struct lagom_nccl_kernel early = make_kernel(LAGOM_ALL_GATHER, 16);
    early.span.start_ns = 1;
    early.span.end_ns = 2;
    join.launched.launches[0].note.begin_ns = join.launched.launches[0].note.end_ns = 500000000;
    lagom_join_kernel(&join, &early);
    lagom_join_finish(&join);
    CHECK_EQUAL(out_count, 1);
    CHECK_EQUAL(out[0].call, UINT64_MAX);
}

/* ---- When something is missing ---------------------------------------------------------------------------------- */

/* One kernel's record is dropped in the middle: a wrong pair shows by its function, and the alignment is found again. */
static void a_dropped_record(void)
{
    begin();
    for (uint64_t call = 0; call < 60; call++) {
        launched(call, function_of(call), 16);
        if (call != 14) { /* a ReduceScatter */
            kernel(function_of(call), 16);
        }
        lagom_join_settle(&join);
    }
    lagom_join_finish(&join);
    CHECK_EQUAL(out_count, 59);
    for (uint32_t i = 0; i < out_count; i++) {
        uint64_t truth = i < 14 ? i : i + 1;
        CHECK(out[i].call == truth || out[i].call == UINT64_MAX);
    }
    CHECK(join.counts[LAGOM_JOIN_CALL] >= 50);
}

static void told_that_something_is_lost(void)
{
    begin();
    for (uint64_t call = 0; call < 20; call++) {
        launched(call, function_of(call), 16);
        kernel(function_of(call), 16);
    }
    lagom_join_settle(&join);
    lagom_join_lost(&join, 4);
    for (uint64_t call = 20; call < 60; call++) {
        launched(call, function_of(call), 16);
        if (call >= 22) {
            kernel(function_of(call), 16);
        }
    }
    lagom_join_finish(&join);
    CHECK_EQUAL(out_count, 58);
    for (uint32_t i = 20; i < out_count; i++) {
        CHECK(out[i].call == i + 2 || out[i].call == UINT64_MAX);
    }
}

static void no_launch_was_ever_noted(void)
{
    begin();
    for (int i = 0; i < 400; i++) {
        kernel(LAGOM_ALL_GATHER, 16);
        lagom_join_settle(&join);
    }
    lagom_join_finish(&join);
    CHECK_EQUAL(out_count, 400);
    CHECK_EQUAL(join.counts[LAGOM_JOIN_NO_LAUNCH], 400);
}

static void launches_without_kernels_do_not_pile_up(void)
{
    begin();
    for (uint64_t call = 0; call < 3 * LAGOM_LAUNCHED; call++) {
        launched(call, LAGOM_ALL_GATHER, 16);
    }
    CHECK(lagom_launched_waiting(&join.launched) <= LAGOM_LAUNCHED);
    lagom_join_finish(&join);
}

/* ---- The other sources ------------------------------------------------------------------------------------------ */

static void by_serial_whatever_the_order(void)
{
    begin();
    launched(1, LAGOM_ALL_REDUCE, 16);
    launched(2, LAGOM_ALL_REDUCE, 16);
    struct lagom_nccl_kernel one = make_kernel(LAGOM_ALL_REDUCE, 16);
    lagom_join_exact(&join, &one, serial);
    expect(0, 2, LAGOM_JOIN_CALL);
    lagom_join_exact(&join, &one, 999999);
    expect(1, UINT64_MAX, LAGOM_JOIN_NO_LAUNCH);
}

static void calls_alone(void)
{
    begin();
    clock_ns = 10000000;
    for (uint64_t call = 0; call < 9; call++) {
        note_call(call % 2 ? LAGOM_NOTE_CALL : LAGOM_NOTE_ASKED, 1, call, function_of(call), 0);
        kernel(function_of(call), 16);
        clock_ns += 5000000;
    }
    lagom_join_finish(&join);
    CHECK_EQUAL(out_count, 9);
    for (uint32_t i = 0; i < 9; i++) {
        expect(i, i, LAGOM_JOIN_CALL);
    }
}

/* Any stream of notes and kernels: every kernel comes out once, and a joined one fits its launch. */
static void anything_at_all(void)
{
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 200; round++) {
        uint32_t in = 0;
        begin();
        for (int i = 0; i < 500; i++) {
            uint64_t dice = next_random(&random);
            uint8_t function = dice & 1 ? LAGOM_ALL_GATHER : LAGOM_REDUCE_SCATTER;
            uint16_t channels = (uint16_t)(8 + (dice >> 8) % 2);
            if (dice % 16 != 2) {
                launched((dice >> 20) % 8 == 0 ? UINT64_MAX : (uint64_t)i * 4 + function, function, channels);
            }
            if (dice % 16 != 3) {
                kernel(function, channels);
                in++;
            }
            if (dice % 11 == 0) {
                lagom_join_settle(&join);
            }
            if (dice % 101 == 0) {
                lagom_join_lost(&join, dice >> 60);
            }
        }
        lagom_join_finish(&join);
        CHECK_EQUAL(out_count, in);
        for (uint32_t i = 0; i < out_count; i++) {
            CHECK(out[i].call == UINT64_MAX || out[i].call % 4 == out[i].function);
        }
    }
}

static void names_are_classified(void)
{
    static const struct {
        const char *name;
        uint8_t kind;
        uint8_t function;
    } names[] = {
        {"_Z31ncclDevKernel_AllGather_RING_LL24x", LAGOM_SPAN_COLLECTIVE, LAGOM_ALL_GATHER},
        {"ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)", LAGOM_SPAN_COLLECTIVE, LAGOM_REDUCE_SCATTER},
        {"_Z40ncclDevKernel_AllReduce_Sum_bf16_TREE_LL24x", LAGOM_SPAN_COLLECTIVE, LAGOM_ALL_REDUCE},
        {"_Z31ncclDevKernel_Broadcast_RING_LL24x", LAGOM_SPAN_COLLECTIVE, LAGOM_BROADCAST},
        {"_Z34ncclDevKernel_Reduce_Sum_f32_RING_LL", LAGOM_SPAN_COLLECTIVE, LAGOM_REDUCE},
        {"_Z22ncclDevKernel_SendRecv24x", LAGOM_SPAN_P2P, LAGOM_NO_FUNCTION},
        {"_Z27ncclDevKernel_Generic_424x", LAGOM_SPAN_COLLECTIVE, LAGOM_NO_FUNCTION},
        {"_Z20ncclSymkDevKernel_AllGather_LL", LAGOM_SPAN_COLLECTIVE, LAGOM_ALL_GATHER},
        {"nvjet_sm90_tst_320x128", LAGOM_SPAN_COMPUTE, LAGOM_NO_FUNCTION},
        {"_ZN2at6native13reduce_kernelILi512", LAGOM_SPAN_COMPUTE, LAGOM_NO_FUNCTION},
        {NULL, LAGOM_SPAN_COMPUTE, LAGOM_NO_FUNCTION},
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        struct lagom_kernel_class class = lagom_kernel_classify(names[i].name);
        CHECK_EQUAL(class.kind, names[i].kind);
        CHECK_EQUAL(class.function, names[i].function);
    }
}

static void names_are_written_once(void)
{
    struct lagom_region *region = calloc(1, sizeof(*region));
    char name[300];
    CHECK_EQUAL(lagom_kernel_name_intern(region, NULL), 0);
    uint32_t first = lagom_kernel_name_intern(region, "one");
    CHECK(first != 0);
    CHECK_EQUAL(lagom_kernel_name_intern(region, "one"), first);
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    uint32_t longest = lagom_kernel_name_intern(region, name);
    CHECK_EQUAL(strlen(region->names[longest - 1].text), LAGOM_KERNEL_NAME_BYTES - 1);
    for (int i = 0; i < 3000; i++) {
        snprintf(name, sizeof(name), "kernel %d", i);
        uint32_t index = lagom_kernel_name_intern(region, name);
        CHECK(index <= LAGOM_MAX_KERNEL_NAMES);
        CHECK(index == 0 || strcmp(region->names[index - 1].text, name) == 0);
        CHECK(index != 0 || i > 1000);
    }
    free(region);
}

int main(void)
{
    equal_calls_are_told_apart_by_when_it_began();
    launches_before_it_began_have_no_kernel();
    candidates_are_tried_against_the_pattern();
    what_cannot_be_told_is_not_guessed();
    an_aggregate_is_its_first_call();
    send_and_receive_in_between();
    two_threads_at_once_are_disputed();
    kernels_of_one_buffer_come_in_any_order();
    a_kernel_cannot_run_before_its_launch();
    a_dropped_record();
    told_that_something_is_lost();
    no_launch_was_ever_noted();
    launches_without_kernels_do_not_pile_up();
    by_serial_whatever_the_order();
    calls_alone();
    anything_at_all();
    names_are_classified();
    names_are_written_once();
    return 0;
}
