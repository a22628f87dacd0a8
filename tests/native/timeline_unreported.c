/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcasts, which NCCL asks about and reports to no profiler: joined by where they lie between kernels whose calls
 * are known, never guessed, and never in the way of the others. */
#include "join_harness.h"
#include "timeline/kernel_name.h"

#define FSDP 3u
#define OTHER 4u

static uint64_t next_call[8]; /* by slot: NCCL's calls, one after the other */

static void begin_window(void)
{
    memset(next_call, 0, sizeof(next_call));
    begin_between(1000, 2000);
}

static void begin(void)
{
    forget_everything();
    begin_window();
}

static void note(uint32_t kind, uint32_t slot, uint64_t call, uint8_t function)
{
    lagom_join_note(&join, &(struct lagom_note){.kind = kind,
                                                .thread = 1,
                                                .serial = kind == LAGOM_NOTE_LAUNCH ? ++serial : 0,
                                                .begin_ns = clock_ns,
                                                .end_ns = clock_ns + 10,
                                                .span = {.call = call, .slot = slot, .function = function,
                                                         .bytes = 1000 + call, .channels = 0}});
}

/* Runs 1 ms after its launch: the host is ahead. Its stream says which call it really is. */
static struct lagom_nccl_kernel make_kernel(uint8_t function, uint64_t truth)
{
    return (struct lagom_nccl_kernel){.span = {.start_ns = clock_ns + 1000000,
                                               .end_ns = clock_ns + 1000500,
                                               .call = UINT64_MAX,
                                               .slot = LAGOM_UNKNOWN_RANK,
                                               .stream = (uint32_t)truth,
                                               .channels = 5,
                                               .threads = 96,
                                               .kind = LAGOM_SPAN_COLLECTIVE,
                                               .function = function},
                                      .correlation = ++correlation};
}

/* Asked, launched in a bracket and reported. */
static struct lagom_nccl_kernel launch(uint32_t slot, uint8_t function)
{
    uint64_t call = next_call[slot]++;
    note(LAGOM_NOTE_LAUNCH, slot, UINT64_MAX, LAGOM_NO_FUNCTION);
    note(LAGOM_NOTE_CALL, slot, call, function);
    clock_ns += 100;
    return make_kernel(function, call);
}

static uint64_t ask(uint32_t slot)
{
    uint64_t call = next_call[slot]++;
    note(LAGOM_NOTE_UNREPORTED, slot, call, LAGOM_BROADCAST);
    clock_ns += 100;
    return call;
}

static struct lagom_nccl_kernel broadcast(uint32_t slot)
{
    uint64_t call = ask(slot);
    return make_kernel(LAGOM_BROADCAST, call);
}

static void gather(uint32_t slot)
{
    deliver(launch(slot, LAGOM_ALL_GATHER));
}

/* The one kernel that is this call's, as it came out. */
static const struct lagom_kernel_span *span_of(uint8_t function, uint64_t truth)
{
    const struct lagom_kernel_span *found = NULL;
    for (uint32_t i = 0; i < out_count; i++) {
        if (out[i].function == function && out[i].stream == truth) {
            CHECK(found == NULL);
            found = &out[i];
        }
    }
    CHECK(found != NULL);
    return found;
}

static void expect(uint32_t slot, uint64_t call)
{
    const struct lagom_kernel_span *span = span_of(LAGOM_BROADCAST, call);
    CHECK_EQUAL(span->join, LAGOM_JOIN_CALL);
    CHECK_EQUAL(span->slot, slot);
    CHECK_EQUAL(span->call, call);
    CHECK_EQUAL(span->bytes, 1000 + call);
    CHECK_EQUAL(span->channels, 5); /* the kernel's own */
    CHECK_EQUAL(span->threads, 96);
}

static void expect_unjoined(uint64_t truth, enum lagom_join_result result)
{
    const struct lagom_kernel_span *span = span_of(LAGOM_BROADCAST, truth);
    CHECK_EQUAL(span->join, result);
    CHECK_EQUAL(span->call, UINT64_MAX);
    CHECK_EQUAL(span->slot, LAGOM_UNKNOWN_RANK);
}

/* ---- Where all is well ------------------------------------------------------------------------------------------ */

/* A job of FSDP with a Broadcast each fifth step; without external ids. */
static void all_of_a_job_is_joined(void)
{
    begin();
    for (int step = 0; step < 50; step++) {
        gather(FSDP);
        deliver(launch(FSDP, LAGOM_REDUCE_SCATTER));
        if (step % 5 == 2) {
            deliver(broadcast(FSDP));
        }
        lagom_join_settle(&join);
    }
    lagom_join_finish(&join);
    CHECK_EQUAL(out_count, 110);
    CHECK_EQUAL(join.counts[LAGOM_JOIN_CALL], 110);
    for (uint32_t i = 0; i < out_count; i++) {
        CHECK_EQUAL(out[i].call, out[i].stream);
    }
}

static void it_waits_for_the_next_kernel(void)
{
    begin();
    gather(FSDP);
    deliver(broadcast(FSDP));
    lagom_join_settle(&join);
    CHECK_EQUAL(out_count, 1);
    gather(FSDP);
    lagom_join_settle(&join);
    CHECK_EQUAL(out_count, 3);
    expect(FSDP, 1);
}

static void two_in_a_row(void)
{
    begin();
    gather(FSDP);
    deliver(broadcast(FSDP));
    deliver(broadcast(FSDP));
    gather(FSDP);
    lagom_join_settle(&join);
    expect(FSDP, 1);
    expect(FSDP, 2);
}

static void the_last_of_a_window(void)
{
    begin();
    gather(FSDP);
    deliver(broadcast(FSDP));
    lagom_join_settle(&join);
    launch(FSDP, LAGOM_ALL_GATHER); /* not recorded any more */
    clock_ns += 5000000;
    broadcast(FSDP);
    lagom_join_finish(&join);
    expect(FSDP, 1);
}

/* Where CUPTI delivers external ids, only the Broadcast has none. */
static void beside_kernels_that_name_their_launch(void)
{
    begin();
    struct lagom_nccl_kernel before = launch(FSDP, LAGOM_ALL_GATHER);
    uint64_t first = serial;
    struct lagom_nccl_kernel between = broadcast(FSDP);
    struct lagom_nccl_kernel after = launch(FSDP, LAGOM_ALL_GATHER);
    lagom_join_exact(&join, &before, first);
    lagom_join_exact(&join, &after, serial);
    lagom_join_kernel(&join, &between); /* in the same buffer, but later */
    lagom_join_settle(&join);
    CHECK_EQUAL(out_count, 3);
    expect(FSDP, 1);
}

static void records_of_one_buffer_come_in_any_order(void)
{
    static const int order[6] = {3, 0, 5, 1, 4, 2};
    struct lagom_nccl_kernel kernels[6];
    begin();
    for (int i = 0; i < 6; i++) {
        kernels[i] = i % 2 == 0 ? launch(FSDP, LAGOM_ALL_GATHER) : broadcast(FSDP);
    }
    for (int i = 0; i < 6; i++) {
        lagom_join_kernel(&join, &kernels[order[i]]);
    }
    lagom_join_finish(&join);
    for (uint64_t call = 1; call < 6; call += 2) {
        expect(FSDP, call);
    }
    CHECK_EQUAL(join.counts[LAGOM_JOIN_CALL], 6);
}

static void behind_an_aggregate(void)
{
    begin();
    gather(FSDP);
    note(LAGOM_NOTE_LAUNCH, FSDP, UINT64_MAX, LAGOM_NO_FUNCTION);
    note(LAGOM_NOTE_CALL, FSDP, 1, LAGOM_ALL_GATHER);
    note(LAGOM_NOTE_CALL, FSDP, 2, LAGOM_ALL_GATHER);
    next_call[FSDP] = 3;
    deliver(make_kernel(LAGOM_ALL_GATHER, 1));
    deliver(broadcast(FSDP));
    lagom_join_finish(&join); /* the next kernel is not known: call 3 follows the aggregate's last one */
    expect(FSDP, 3);
}

/* ---- Several communicators -------------------------------------------------------------------------------------- */

static void either_of_two_communicators(void)
{
    begin();
    gather(FSDP);
    gather(OTHER);
    next_call[OTHER] = 101; /* told apart by their truth */
    uint64_t one = ask(FSDP);
    uint64_t other = ask(OTHER);
    deliver(make_kernel(LAGOM_BROADCAST, one));
    deliver(make_kernel(LAGOM_BROADCAST, other));
    gather(FSDP);
    gather(OTHER);
    lagom_join_finish(&join);
    expect_unjoined(one, LAGOM_JOIN_AMBIGUOUS);
    expect_unjoined(other, LAGOM_JOIN_AMBIGUOUS);
    deliver(broadcast(FSDP)); /* what comes after is certain again */
    gather(FSDP);
    lagom_join_settle(&join);
    expect(FSDP, next_call[FSDP] - 2);
}

/* One kernel, two calls, and it could belong to either. */
static void one_kernel_of_two_communicators(void)
{
    for (int lost = 0; lost < 2; lost++) {
        begin();
        gather(FSDP);
        gather(OTHER);
        struct lagom_nccl_kernel one = broadcast(FSDP);
        struct lagom_nccl_kernel other = broadcast(OTHER);
        deliver(lost == 0 ? other : one);
        gather(FSDP);
        gather(OTHER);
        lagom_join_finish(&join);
        expect_unjoined(1, LAGOM_JOIN_AMBIGUOUS);
    }
}

/* The host is far ahead: both were asked before either ran. But one was launched before the other was asked about. */
static void told_apart_by_the_launches_between(void)
{
    begin();
    next_call[OTHER] = 100;
    gather(FSDP);
    gather(OTHER);
    deliver(broadcast(FSDP));
    gather(FSDP);
    deliver(broadcast(OTHER));
    gather(OTHER);
    lagom_join_settle(&join);
    expect(FSDP, 1);
    expect(OTHER, 101);
}

/* Of a communicator that is not ours (no room in the region): nobody noted what NCCL asked. */
static void of_a_communicator_nobody_knows(void)
{
    begin();
    gather(FSDP);
    deliver(make_kernel(LAGOM_BROADCAST, 77));
    deliver(broadcast(FSDP));
    gather(FSDP);
    deliver(make_kernel(LAGOM_BROADCAST, 78));
    gather(FSDP);
    lagom_join_finish(&join);
    expect_unjoined(77, LAGOM_JOIN_AMBIGUOUS);
    expect_unjoined(1, LAGOM_JOIN_AMBIGUOUS);
    expect_unjoined(78, LAGOM_JOIN_NO_LAUNCH);
}

/* ---- Where something is missing --------------------------------------------------------------------------------- */

static void nothing_is_known_of_its_communicator(void)
{
    begin();
    gather(OTHER);
    deliver(broadcast(FSDP));
    gather(FSDP);
    lagom_join_finish(&join);
    expect_unjoined(0, LAGOM_JOIN_AMBIGUOUS);
}

/* Its kernel surely came before the window: no call can claim it any more. */
static void asked_before_we_looked(void)
{
    begin();
    clock_ns = 900;
    ask(OTHER);
    clock_ns = 3000;
    gather(FSDP);
    deliver(broadcast(FSDP));
    gather(FSDP);
    lagom_join_settle(&join);
    expect(FSDP, 1);
}

static void a_lost_kernel_s_question_expires(void)
{
    begin();
    gather(FSDP);
    ask(FSDP); /* its kernel's record never comes */
    gather(FSDP);
    deliver(broadcast(FSDP));
    gather(FSDP);
    lagom_join_settle(&join);
    expect(FSDP, 3);
    CHECK_EQUAL(join.unreported.ask_count, 0);
    for (int i = 0; i < 200; i++) { /* nor do they pile up */
        ask(FSDP);
        gather(FSDP);
        lagom_join_settle(&join);
    }
    CHECK_EQUAL(join.unreported.ask_count, 0);
}

/* Which of the two is missing? */
static void one_of_two_is_lost(void)
{
    begin();
    gather(FSDP);
    ask(FSDP);
    deliver(broadcast(FSDP));
    gather(FSDP);
    lagom_join_settle(&join);
    expect_unjoined(2, LAGOM_JOIN_AMBIGUOUS);
}

static void more_questions_than_there_is_room(void)
{
    begin();
    gather(FSDP);
    lagom_join_settle(&join);
    uint64_t first = next_call[FSDP];
    struct lagom_nccl_kernel kernels[LAGOM_UNREPORTED_ASKS + 1];
    for (uint32_t i = 0; i <= LAGOM_UNREPORTED_ASKS; i++) {
        kernels[i] = broadcast(FSDP);
    }
    for (uint32_t i = 0; i <= LAGOM_UNREPORTED_ASKS; i++) {
        deliver(kernels[i]);
    }
    gather(FSDP);
    deliver(broadcast(FSDP));
    gather(FSDP);
    lagom_join_finish(&join);
    for (uint32_t i = 0; i <= LAGOM_UNREPORTED_ASKS; i++) {
        CHECK_EQUAL(span_of(LAGOM_BROADCAST, first + i)->call, UINT64_MAX);
    }
    expect(FSDP, first + LAGOM_UNREPORTED_ASKS + 2);
}

static void told_that_something_is_lost(void)
{
    begin();
    gather(FSDP);
    deliver(broadcast(FSDP));
    lagom_join_settle(&join);
    lagom_join_lost(&join, 1);
    expect_unjoined(1, LAGOM_JOIN_AMBIGUOUS);
    deliver(broadcast(FSDP)); /* its left neighbour is not known any more */
    for (int i = 0; i < 12; i++) {
        gather(FSDP);
    }
    lagom_join_settle(&join);
    expect_unjoined(2, LAGOM_JOIN_AMBIGUOUS);
    deliver(broadcast(FSDP));
    gather(FSDP);
    lagom_join_settle(&join);
    CHECK_EQUAL(span_of(LAGOM_BROADCAST, 15)->call, 15);
}

static void windows_are_apart(void)
{
    begin();
    gather(FSDP);
    ask(FSDP);
    broadcast(FSDP);
    lagom_join_settle(&join);
    begin_window();
    CHECK_EQUAL(join.unreported.ask_count, 0);
    next_call[FSDP] = 10;
    deliver(broadcast(FSDP));
    gather(FSDP);
    lagom_join_finish(&join);
    expect_unjoined(10, LAGOM_JOIN_AMBIGUOUS);
}

/* Broadcasts alone, for ever: all come out, and nothing grows. */
static void nothing_else_is_launched(void)
{
    begin();
    gather(FSDP);
    for (int i = 0; i < 1000; i++) {
        deliver(broadcast(FSDP));
        lagom_join_settle(&join);
    }
    lagom_join_finish(&join);
    CHECK_EQUAL(out_count, 1001);
}

static void others_alone(void)
{
    begin();
    gather(OTHER);
    for (int i = 0; i < 3 * (int)LAGOM_UNREPORTED_MARKS; i++) {
        gather(FSDP);
        lagom_join_settle(&join);
        CHECK(join.unreported.mark_count <= LAGOM_UNREPORTED_MARKS / 2);
    }
    deliver(broadcast(OTHER)); /* its left neighbour was long ago, and is still known */
    gather(OTHER);
    lagom_join_settle(&join);
    expect(OTHER, 1);
    deliver(broadcast(FSDP));
    gather(FSDP);
    lagom_join_settle(&join);
    expect(FSDP, next_call[FSDP] - 2);
}

/* ---- Other NCCLs ------------------------------------------------------------------------------------------------ */

/* It reports them: they have brackets and COLL events, and the calls are not looked at. */
static void an_nccl_that_reports_them(void)
{
    begin();
    for (int window = 0; window < 2; window++) {
        for (int step = 0; step < 10; step++) {
            gather(FSDP);
            note(LAGOM_NOTE_UNREPORTED, FSDP, next_call[FSDP], LAGOM_BROADCAST);
            deliver(launch(FSDP, LAGOM_BROADCAST));
            lagom_join_settle(&join);
        }
        lagom_join_finish(&join);
        CHECK_EQUAL(out_count, 20);
        for (uint64_t call = 1; call < 20; call += 2) {
            expect(FSDP, call);
        }
        CHECK_EQUAL(join.unreported.ask_count, 0);
        CHECK_EQUAL(join.unreported.mark_count, 0);
        begin_window();
    }
    CHECK_EQUAL(join.counts[LAGOM_JOIN_CALL], 40);
}

/* Told so while some wait: those have launches as well. */
static void found_to_be_reported_late(void)
{
    begin();
    gather(FSDP);
    note(LAGOM_NOTE_UNREPORTED, FSDP, 1, LAGOM_BROADCAST);
    note(LAGOM_NOTE_LAUNCH, FSDP, UINT64_MAX, LAGOM_NO_FUNCTION);
    next_call[FSDP] = 2;
    deliver(make_kernel(LAGOM_BROADCAST, 1));
    note(LAGOM_NOTE_CALL, FSDP, 1, LAGOM_BROADCAST);
    gather(FSDP);
    lagom_join_finish(&join);
    CHECK_EQUAL(join.counts[LAGOM_JOIN_CALL], 3);
    CHECK_EQUAL(span_of(LAGOM_BROADCAST, 1)->call, 1);
}

/* Questions stand for all launches, Broadcasts among them. */
static void without_the_profiler_half(void)
{
    begin();
    clock_ns = 10000000;
    for (uint64_t call = 0; call < 9; call++) {
        uint8_t function = call % 3 == 1 ? LAGOM_BROADCAST : LAGOM_ALL_GATHER;
        note(LAGOM_NOTE_ASKED, FSDP, call, function);
        deliver(make_kernel(function, call));
        clock_ns += 5000000;
    }
    lagom_join_finish(&join);
    CHECK_EQUAL(join.counts[LAGOM_JOIN_CALL], 9);
    for (uint32_t i = 0; i < 9; i++) {
        CHECK_EQUAL(out[i].call, i);
    }
}

/* ---- Anything at all -------------------------------------------------------------------------------------------- */

/* Kernels of two communicators, delivered in shuffled buffers, some records dropped without a word: every kernel comes
 * out once, and a Broadcast that is joined is joined with its own call. */
static void anything_at_all(void)
{
    uint64_t random = 88172645463325252u;
    uint64_t joined = 0, broadcasts = 0;
    for (int round = 0; round < 300; round++) {
        struct lagom_nccl_kernel buffer[32];
        uint64_t serials[32];
        uint32_t in = 0;
        begin();
        next_call[OTHER] = 100000;
        for (int turn = 0; turn < 10; turn++) {
            uint32_t count = 0;
            for (int i = 0; i < 32; i++) {
                uint64_t dice = next_random(&random);
                uint32_t slot = dice % 3 == 0 ? OTHER : FSDP;
                bool is_broadcast = (dice >> 8) % 5 == 0;
                buffer[count] = is_broadcast ? broadcast(slot) : launch(slot, LAGOM_ALL_GATHER);
                serials[count] = is_broadcast ? 0 : serial;
                count += (dice >> 16) % 40 != 0;
            }
            for (uint32_t i = 0; i < count; i++) { /* those with an external id in their order, Broadcasts anywhere */
                if (serials[i] != 0) {
                    lagom_join_exact(&join, &buffer[i], serials[i]);
                } else if (next_random(&random) % 2 == 0) {
                    lagom_join_kernel(&join, &buffer[i]);
                    serials[i] = UINT64_MAX;
                }
            }
            for (uint32_t i = 0; i < count; i++) {
                if (serials[i] == 0) {
                    lagom_join_kernel(&join, &buffer[i]);
                }
            }
            in += count;
            lagom_join_settle(&join);
        }
        lagom_join_finish(&join);
        CHECK_EQUAL(out_count, in);
        for (uint32_t i = 0; i < out_count; i++) {
            CHECK(out[i].call == UINT64_MAX || out[i].call == out[i].stream);
            joined += out[i].function == LAGOM_BROADCAST && out[i].call != UINT64_MAX;
            broadcasts += out[i].function == LAGOM_BROADCAST;
        }
    }
    printf("%llu of %llu Broadcasts joined\n", (unsigned long long)joined, (unsigned long long)broadcasts);
    CHECK(joined > broadcasts / 4);
}

int main(void)
{
    all_of_a_job_is_joined();
    it_waits_for_the_next_kernel();
    two_in_a_row();
    the_last_of_a_window();
    beside_kernels_that_name_their_launch();
    records_of_one_buffer_come_in_any_order();
    behind_an_aggregate();
    either_of_two_communicators();
    one_kernel_of_two_communicators();
    told_apart_by_the_launches_between();
    of_a_communicator_nobody_knows();
    nothing_is_known_of_its_communicator();
    asked_before_we_looked();
    a_lost_kernel_s_question_expires();
    one_of_two_is_lost();
    more_questions_than_there_is_room();
    told_that_something_is_lost();
    windows_are_apart();
    nothing_else_is_launched();
    others_alone();
    an_nccl_that_reports_them();
    found_to_be_reported_late();
    without_the_profiler_half();
    anything_at_all();
    return 0;
}
