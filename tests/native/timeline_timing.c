/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's own times of its kernels tell which of several alignments is right: of a job that repeats itself, whose CUPTI took
 * iterations to be switched on; and they tell when a pair is none. */
#include "join_harness.h"

#define MS 1000000u
#define US 1000u
#define SLOT 3u
#define NO_TIMES UINT64_MAX
#define GPU_ZERO 1795186421937000000u /* its clock's, less the host's */

/* Of one job: what was launched when, and when it really ran. */
#define CALLS 400u
static struct {
    uint8_t function;
    uint64_t asked_ns; /* the launch began; it takes 10 us */
    uint64_t start_ns;
    uint64_t end_ns;
} calls[CALLS];

static uint64_t dice(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static uint64_t about(uint64_t length, uint64_t scatter)
{
    return length + dice() % scatter;
}

/* Steps of six collectives, or of equal ones; the host is `ahead` calls ahead at most. */
static void make_job(bool equal, uint64_t length_ns, uint64_t ahead)
{
    uint64_t host = 10 * MS, gpu = 10 * MS;
    for (uint32_t i = 0; i < CALLS; i++) {
        host += about(length_ns / 20, length_ns / 40);
        if (i >= ahead && calls[i - ahead].end_ns > host) {
            host = calls[i - ahead].end_ns;
        }
        gpu = (gpu > host ? gpu : host) + about(length_ns / 4 + (i % 6 == 5 ? 2 * length_ns : 0), length_ns / 4);
        calls[i].function = !equal && i % 6 >= 4 ? LAGOM_REDUCE_SCATTER : equal ? LAGOM_ALL_REDUCE : LAGOM_ALL_GATHER;
        calls[i].asked_ns = host;
        calls[i].start_ns = gpu;
        gpu += about(length_ns, length_ns / 10);
        calls[i].end_ns = gpu;
    }
}

struct scenario {
    uint32_t recorded_from; /* CUPTI was being switched on when the first was launched; the first it recorded */
    uint64_t tick_ns;       /* of NCCL's times, or NO_TIMES */
    uint32_t note_lost;     /* never came; CALLS = none */
    uint32_t kernel_lost;   /* the first of those that never came */
    uint32_t times_late;    /* by so many calls more than usual: after the records */
    bool quickly;           /* CUPTI was switched on within one launch, not since the first */
    uint32_t kernels_lost;  /* 0 = one */
    uint32_t drift_ppm;     /* the GPU's clock runs so much faster */
    bool a_stranger_first;  /* the first call is another communicator's */
    uint32_t unnamed;       /* from this call on the numbers of twelve are not known; 0 = of none */
    bool untold;            /* NCCL's times of this communicator are refuted, and so not told */
    uint32_t preempted;     /* taken off the GPU between CUPTI's start and NCCL's; 0 = none */
    uint32_t notes_lost;    /* so many from `note_lost` on, and this is told; 0 = it and nobody says so */
};

static uint32_t slot_of(const struct scenario *scenario, uint32_t i)
{
    return scenario->a_stranger_first && i == 0 ? SLOT + 1 : SLOT;
}

static uint64_t name_of(const struct scenario *scenario, uint32_t i)
{
    return scenario->unnamed != 0 && i >= scenario->unnamed && i < scenario->unnamed + 12 ? UINT64_MAX : i;
}

static void note_launch(const struct scenario *scenario, uint32_t i)
{
    uint64_t begin = calls[i].asked_ns, end = begin + 10 * US;
    uint32_t slot = slot_of(scenario, i);
    struct lagom_kernel_span call = {.call = name_of(scenario, i),
                                     .slot = slot,
                                     .function = calls[i].function,
                                     .channels = 16,
                                     .untold = scenario->untold};
    lagom_join_note(&join, &(struct lagom_note){.kind = LAGOM_NOTE_LAUNCH,
                                                .thread = 1,
                                                .serial = ++serial,
                                                .begin_ns = begin,
                                                .end_ns = end,
                                                .span = {.slot = slot, .call = UINT64_MAX}});
    lagom_join_note(&join, &(struct lagom_note){
                               .kind = LAGOM_NOTE_CALL, .thread = 1, .begin_ns = end, .end_ns = end, .span = call});
}

static uint64_t by_the_gpu(const struct scenario *scenario, uint64_t ns)
{
    return (ns + GPU_ZERO + ns / 1000000 * scenario->drift_ppm) / scenario->tick_ns * scenario->tick_ns;
}

static void note_ran(const struct scenario *scenario, uint32_t i)
{
    uint64_t off_ns = scenario->preempted == i && i != 0 ? 2 * MS : 0;
    lagom_join_note(
        &join, &(struct lagom_note){.kind = LAGOM_NOTE_RAN,
                                    .span = {.call = name_of(scenario, i),
                                             .slot = slot_of(scenario, i),
                                             .start_ns = by_the_gpu(scenario, calls[i].start_ns + off_ns + dice() % (10 * US)),
                                             .end_ns = by_the_gpu(scenario, calls[i].end_ns - dice() % (5 * US))}});
}

/* Its stream says which call it really is. */
static void run_kernel(uint32_t i)
{
    deliver((struct lagom_nccl_kernel){.span = {.start_ns = calls[i].start_ns,
                                                .end_ns = calls[i].end_ns,
                                                .call = UINT64_MAX,
                                                .slot = LAGOM_UNKNOWN_RANK,
                                                .stream = i,
                                                .channels = 16,
                                                .kind = LAGOM_SPAN_COLLECTIVE,
                                                .function = calls[i].function},
                                       .correlation = ++correlation});
}

/* Of the launch, and of what NCCL would tell of it meanwhile. */
static bool is_unnoted(const struct scenario *scenario, uint32_t i)
{
    return i >= scenario->note_lost && i - scenario->note_lost < (scenario->notes_lost == 0 ? 1 : scenario->notes_lost);
}

static bool is_lost(const struct scenario *scenario, uint32_t i)
{
    uint32_t count = scenario->kernels_lost == 0 ? 1 : scenario->kernels_lost;
    return i >= scenario->kernel_lost && i - scenario->kernel_lost < count;
}

/* The job as it shows itself: launches, then, some calls later, times and records. */
static void play(const struct scenario *scenario)
{
    forget_everything();
    uint32_t before = scenario->quickly ? scenario->recorded_from : 0;
    begin_between(calls[before].asked_ns - 1, calls[scenario->recorded_from].asked_ns + 5 * US);
    for (uint32_t i = 0; i < CALLS + 20; i++) {
        uint64_t newest = join.launched.newest;
        if (i < CALLS && !is_unnoted(scenario, i)) {
            note_launch(scenario, i);
        }
        uint32_t timed = i - 10 - scenario->times_late;
        if (timed < CALLS && scenario->tick_ns != NO_TIMES && !(scenario->notes_lost != 0 && is_unnoted(scenario, i))) {
            note_ran(scenario, timed);
        }
        if (scenario->notes_lost != 0 && is_unnoted(scenario, i)) {
            lagom_join_notes_lost(&join, newest);
        }
        if (i >= 20 && i - 20 >= scenario->recorded_from && !is_lost(scenario, i - 20)) {
            run_kernel(i - 20);
            lagom_join_settle(&join);
        }
    }
    lagom_join_finish(&join);
}

static uint32_t joined_wrongly(void)
{
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < out_count; i++) {
        wrong += out[i].join == LAGOM_JOIN_CALL && out[i].call != out[i].stream;
    }
    return wrong;
}

static uint32_t joined_rightly(void)
{
    uint32_t right = 0;
    for (uint32_t i = 0; i < out_count; i++) {
        right += out[i].join == LAGOM_JOIN_CALL && out[i].call == out[i].stream;
    }
    return right;
}

/* ---- Switched on for iterations --------------------------------------------------------------------------------- */

static void the_right_iteration_is_found(void)
{
    static const uint32_t first[] = {0, 1, 6, 17, 30};
    for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
        for (int equal = 0; equal < 2; equal++) {
            make_job(equal, 2 * MS, 8);
            play(&(struct scenario){first[i], 32, CALLS, CALLS, .times_late = 0});
            CHECK_EQUAL(joined_rightly(), CALLS - first[i]);
            CHECK_EQUAL(out_count, CALLS - first[i]);
        }
    }
}

/* The case that the times are for: without them nothing can be said, and nothing is. */
static void without_times_it_is_not_guessed(void)
{
    make_job(false, 2 * MS, 8);
    play(&(struct scenario){30, NO_TIMES, CALLS, CALLS, .times_late = 0});
    CHECK_EQUAL(joined_rightly() + joined_wrongly(), 0);
    CHECK_EQUAL(join.counts[LAGOM_JOIN_AMBIGUOUS], CALLS - 30);
}

/* A clock that counts by the millisecond says little of kernels of two, and enough of kernels of fifty. */
static void a_coarse_clock_says_less(void)
{
    make_job(false, 2 * MS, 8);
    play(&(struct scenario){30, MS, CALLS, CALLS, .times_late = 0});
    CHECK_EQUAL(joined_wrongly(), 0);
    make_job(false, 50 * MS, 8);
    play(&(struct scenario){30, MS, CALLS, CALLS, .times_late = 0});
    CHECK_EQUAL(joined_rightly(), CALLS - 30);
}

/* ---- When something is missing ---------------------------------------------------------------------------------- */

/* One more kernel than launches: those after it would be taken for their successors; or one less, and they would be
 * taken for their predecessors, which no clock of ours could tell. NCCL's times can, however late: they are waited for. */
static void what_was_lost_is_noticed(void)
{
    for (int which = 0; which < 8; which++) {
        uint32_t late = which & 4 ? 24 : 0;
        bool note = (which & 2) != 0;
        make_job((which & 1) != 0, 2 * MS, 8);
        play(&(struct scenario){0, 32, note ? 100 : CALLS, note ? CALLS : 100, .times_late = late});
        CHECK_EQUAL(out_count, note ? CALLS : CALLS - 1);
        CHECK_EQUAL(joined_wrongly(), 0);
        CHECK(joined_rightly() >= CALLS - 12);
    }
}

/* Processes that share a GPU without MPS take turns on it. One whose turn ends just after CUPTI's start of a kernel, before
 * NCCL's, has a kernel that is shorter by NCCL's times: it is not believed to be the same, and nothing else is lost. */
static void a_kernel_is_preempted_as_it_starts(void)
{
    for (int equal = 0; equal < 2; equal++) {
        make_job(equal, 4 * MS, 8);
        play(&(struct scenario){0, 32, CALLS, CALLS, .preempted = 200});
        CHECK_EQUAL(out_count, CALLS);
        CHECK_EQUAL(joined_rightly(), CALLS - 1);
        CHECK_EQUAL(join.counts[LAGOM_JOIN_MISMATCH], 1);
    }
}

/* What was launched before the loss is joined; after it nothing is taken for a launch that is still to run, nor an
 * iteration for another. Where NCCL tells times, the alignment is found again. */
static void notes_are_lost(void)
{
    static const uint32_t counts[] = {1, 5, 6, 7, 30, 120};
    for (uint32_t which = 0; which < 24; which++) {
        uint32_t count = counts[which / 4];
        bool is_timed = (which & 2) != 0, is_equal = (which & 1) != 0;
        make_job(is_equal, 2 * MS, 8);
        play(&(struct scenario){0, is_timed ? 32 : NO_TIMES, 200, CALLS, .notes_lost = count});
        CHECK_EQUAL(out_count, CALLS);
        CHECK_EQUAL(joined_wrongly(), 0);
        CHECK(joined_rightly() >= 200 || (is_equal && !is_timed)); /* of which nothing was certain before either */
        CHECK(!is_timed || joined_rightly() >= CALLS - count - 40);
    }
}

/* CUPTI returned a buffer long after later ones: 100 to 109 come when others have been joined past them. */
static void play_with_a_late_buffer(void)
{
    const struct scenario plain = {.tick_ns = 32};
    forget_everything();
    begin_between(calls[0].asked_ns - 1, calls[0].asked_ns);
    for (uint32_t i = 0; i < CALLS; i++) {
        note_launch(&plain, i);
        note_ran(&plain, i);
    }
    uint32_t first = correlation;
    for (uint32_t i = 0; i < CALLS; i++) {
        uint32_t at = i < 100 || i >= 150 ? i : i < 140 ? i + 10 : i - 40;
        correlation = first + at;
        run_kernel(at);
        lagom_join_settle(&join);
    }
}

static void a_buffer_that_comes_late(void)
{
    for (int equal = 0; equal < 2; equal++) {
        make_job(equal, 2 * MS, 8);
        play_with_a_late_buffer();
        lagom_join_finish(&join);
        CHECK_EQUAL(joined_rightly(), CALLS);
    }
}

/* Kernels as short and close as the clocks are apart: their times do not say which is which. The 40 that came in place of
 * the late ones are taken for these; none after them is. */
static void short_kernels_are_not_guessed(void)
{
    make_job(true, 5 * US, 2000);
    play_with_a_late_buffer();
    lagom_join_finish(&join);
    CHECK_EQUAL(out_count, CALLS);
    CHECK(joined_rightly() >= 100);
    CHECK(joined_wrongly() <= 40);
}

/* One call has one kernel, even where a second one claims to have run at the same time. */
static void no_call_has_two_kernels(void)
{
    make_job(true, 2 * MS, 8);
    play_with_a_late_buffer();
    run_kernel(200);
    lagom_join_finish(&join);
    CHECK_EQUAL(out_count, CALLS + 1);
    CHECK_EQUAL(joined_rightly(), CALLS);
}

/* Lost soon after a long beginning: the alignment is looked for as widely as before. */
static void lost_near_the_beginning(void)
{
    for (uint32_t lost = 31; lost < 37; lost++) {
        make_job(lost % 2 == 0, 2 * MS, 8);
        play(&(struct scenario){30, 32, lost, CALLS, .times_late = 0});
        CHECK_EQUAL(joined_wrongly(), 0);
        CHECK(joined_rightly() >= CALLS - 30 - 20);
    }
}

/* The first launch with a kernel was not noted: the one next to it, the only one that fits, is not believed. */
static void lost_at_the_very_beginning(void)
{
    for (int equal = 0; equal < 2; equal++) {
        make_job(equal, 2 * MS, 8);
        play(&(struct scenario){3, 32, 3, CALLS, .quickly = true});
        CHECK_EQUAL(joined_wrongly(), 0);
        CHECK(joined_rightly() >= CALLS - 20);
    }
}

/* NCCL has told times before, and tells none of these: what is held goes as it went without, when no more is held. Not
 * in the middle of a buffer: its records come in any order. */
static void times_that_never_come_are_not_waited_for(void)
{
    const struct scenario plain = {.tick_ns = 32};
    make_job(false, 2 * MS, 8);
    forget_everything();
    join.tick_ns = 32;
    begin_between(1, 2);
    uint32_t first = correlation;
    for (uint32_t i = 0; i < CALLS; i++) {
        note_launch(&plain, i);
    }
    for (uint32_t i = 0; i < CALLS; i++) {
        uint32_t at = i % 80 == 10 ? i + 60 : i % 80 == 70 ? i - 60 : i;
        correlation = first + at;
        run_kernel(at);
        if (i % 80 == 79) {
            lagom_join_settle(&join);
        }
    }
    lagom_join_finish(&join);
    CHECK_EQUAL(joined_rightly(), CALLS);
}

/* Nor is anything held for times that are known not to come. */
static void times_that_are_refuted_hold_nothing_up(void)
{
    for (int refuted = 0; refuted < 2; refuted++) {
        const struct scenario scenario = {.tick_ns = 32, .untold = refuted != 0};
        make_job(false, 2 * MS, 8);
        forget_everything();
        join.tick_ns = 32;
        begin_between(1, 2);
        for (uint32_t i = 0; i < 40; i++) {
            note_launch(&scenario, i);
            run_kernel(i);
            lagom_join_settle(&join);
        }
        CHECK_EQUAL(join.counts[LAGOM_JOIN_CALL], refuted ? 40 : 0);
    }
}

static void more_is_lost_than_is_looked_ahead(void)
{
    for (uint32_t count = 8; count <= 40; count += 8) {
        make_job(count % 16 == 0, 2 * MS, 8);
        play(&(struct scenario){0, 32, CALLS, 100, .kernels_lost = count});
        CHECK_EQUAL(out_count, CALLS - count);
        CHECK_EQUAL(joined_wrongly(), 0);
        CHECK(joined_rightly() >= CALLS - count - 20);
    }
}

/* So much was launched that the oldest had to be forgotten: what then fits by chance is not believed. */
static void more_is_launched_than_is_kept(void)
{
    forget_everything();
    begin_between(1, 2);
    for (uint32_t i = 0; i < LAGOM_LAUNCHED + 100; i++) {
        uint8_t function = i % 10 == 9 ? LAGOM_REDUCE_SCATTER : LAGOM_ALL_GATHER;
        calls[i % CALLS].function = function;
        calls[i % CALLS].asked_ns = 10 * MS + i;
        note_launch(&(struct scenario){.tick_ns = 32}, i % CALLS);
    }
    for (uint32_t i = 0; i < 50; i++) {
        calls[i].start_ns = 100 * MS + i;
        calls[i].end_ns = 101 * MS + i;
        run_kernel(i);
        lagom_join_settle(&join);
    }
    lagom_join_finish(&join);
    CHECK_EQUAL(out_count, 50);
    CHECK_EQUAL(join.counts[LAGOM_JOIN_CALL], 0);
}

/* ---- Clocks and communicators ----------------------------------------------------------------------------------- */

static void a_clock_that_is_slewed(void)
{
    make_job(false, 50 * MS, 8);
    play(&(struct scenario){0, 32, CALLS, CALLS, .drift_ppm = 450});
    CHECK_EQUAL(joined_rightly(), CALLS);
}

/* As one rank's did in eight: kernels that start at once seem to start before their launches, later ones by more. */
static void cupti_falls_behind(uint32_t ppm)
{
    for (uint32_t i = 0; i < CALLS; i++) {
        uint64_t behind = calls[i].asked_ns / 1000000 * ppm;
        calls[i].start_ns = calls[i].asked_ns + 20 * US - behind;
        calls[i].end_ns -= behind;
    }
}

static void kernels_that_seem_to_start_before_their_launches(void)
{
    for (int is_timed = 0; is_timed < 2; is_timed++) {
        make_job(false, 50 * MS, 1);
        cupti_falls_behind(63);
        CHECK(calls[CALLS - 1].start_ns + 1 * MS < calls[CALLS - 1].asked_ns);
        play(&(struct scenario){0, is_timed ? 32 : NO_TIMES, CALLS, CALLS, .drift_ppm = 63});
        CHECK_EQUAL(joined_rightly(), CALLS);
    }
}

/* A lost note is noticed whichever communicator was seen first. */
static void a_stranger_first(void)
{
    make_job(true, 2 * MS, 8);
    play(&(struct scenario){0, 32, 200, CALLS, .a_stranger_first = true});
    CHECK_EQUAL(joined_wrongly(), 0);
    CHECK(joined_rightly() >= CALLS - 12);
}

/* Of some calls NCCL's times say when, but not which they are. */
static void calls_without_a_number(void)
{
    make_job(true, 2 * MS, 8);
    play(&(struct scenario){0, 32, CALLS, CALLS, .unnamed = 100});
    CHECK_EQUAL(joined_rightly(), CALLS - 12);
    CHECK_EQUAL(join.counts[LAGOM_JOIN_SLOT], 12);
}

int main(void)
{
    RUN(the_right_iteration_is_found);
    RUN(without_times_it_is_not_guessed);
    RUN(a_coarse_clock_says_less);
    RUN(what_was_lost_is_noticed);
    RUN(a_kernel_is_preempted_as_it_starts);
    RUN(notes_are_lost);
    RUN(a_buffer_that_comes_late);
    RUN(short_kernels_are_not_guessed);
    RUN(no_call_has_two_kernels);
    RUN(lost_near_the_beginning);
    RUN(lost_at_the_very_beginning);
    RUN(times_that_never_come_are_not_waited_for);
    RUN(times_that_are_refuted_hold_nothing_up);
    RUN(more_is_lost_than_is_looked_ahead);
    RUN(more_is_launched_than_is_kept);
    RUN(a_clock_that_is_slewed);
    RUN(kernels_that_seem_to_start_before_their_launches);
    RUN(a_stranger_first);
    RUN(calls_without_a_number);
    return 0;
}
