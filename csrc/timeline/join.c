/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/join.h"

#include <string.h>

#include "timeline/clock.h"
#include "timeline/alignment.h"

#define LOOK_AHEAD 8u    /* launches without a kernel that we believe in, after something went wrong */
#define MOST_LOST 64u    /* the same, if the loss was reported */
#define SYNC_PAIRS 64u   /* compared with each other at most: the clocks drift apart */

/* CUPTI turns the GPU's clock into the host's by a rate of its own, so a kernel may seem to start before its launch.
 * Seen on H200s: 63 us more for each second that CUPTI was on. */
#define APART_NS 200000u
#define DRIFT 8000u /* one part in so many */

static struct lagom_launch *launch_at(struct lagom_join *join, uint64_t number)
{
    return lagom_launched_at(&join->launched, number);
}

static uint64_t waiting(const struct lagom_join *join)
{
    return lagom_launched_waiting(&join->launched);
}

static struct lagom_alignment_input alignment_input(struct lagom_join *join)
{
    return (struct lagom_alignment_input){.launched = &join->launched,
                                          .held = join->held,
                                          .held_count = join->held_count,
                                          .search = join->search,
                                          .on_end_ns = join->on_end_ns,
                                          .tick_ns = join->tick_ns,
                                          .clocks = &join->clocks,
                                          .starting = join->starting,
                                          .doubtful = join->doubtful};
}

static void lose_sync(struct lagom_join *join, uint32_t search)
{
    join->in_sync = false;
    join->starting = false;
    join->search = search;
}

/* ---- NCCL's own times ------------------------------------------------------------------------------------------- */

static void add_to_sync(struct lagom_join *join, const struct lagom_launch *launch)
{
    if (lagom_timing_pairs(&join->sync_timing) >= SYNC_PAIRS) {
        memset(&join->sync_timing, 0, sizeof(join->sync_timing));
    }
    lagom_launch_pair(launch, launch->start_ns, launch->end_ns, &join->sync_timing);
    lagom_clocks_learn(&join->clocks, &join->sync_timing, launch->note.span.slot, join->tick_ns);
}

static void add_timing(struct lagom_join *join, const struct lagom_note *ran)
{
    join->tick_ns = lagom_timing_tick(lagom_timing_tick(join->tick_ns, ran->span.start_ns), ran->span.end_ns);
    uint64_t number = lagom_launched_ran(&join->launched, ran);
    if (number < join->launched.newest && number >= join->timed_up_to) {
        join->timed_up_to = number + 1;
    }
    if (join->in_sync && number >= join->sync_from && number < join->launched.oldest) { /* joined already: rightly? */
        add_to_sync(join, launch_at(join, number));
    }
}

/* ---- What NCCL reports to no profiler --------------------------------------------------------------------------- */

static void emit(struct lagom_join *join, const struct lagom_nccl_kernel *kernel, enum lagom_join_result result)
{
    struct lagom_kernel_span span = kernel->span;
    span.join = (uint8_t)result;
    join->counts[result]++;
    join->emit(join->context, &span);
}

static void settle_unreported(struct lagom_join *join, bool last_chance)
{
    struct lagom_nccl_kernel kernel;
    enum lagom_join_result result;
    while (lagom_unreported_next(&join->unreported, last_chance, &kernel, &result)) {
        emit(join, &kernel, result);
    }
}

static void forget_unreported(struct lagom_join *join)
{
    lagom_unreported_forget(&join->unreported);
    settle_unreported(join, true);
}

static void add_unreported(struct lagom_join *join, const struct lagom_note *ask)
{
    if (join->unreported.reported || ask->end_ns <= join->launched.since_ns) {
        return;
    }
    if (!lagom_unreported_asked(&join->unreported, ask)) { /* their kernels never came, or are far behind */
        forget_unreported(join);
        lagom_unreported_asked(&join->unreported, ask);
    }
}

static void hold_unreported(struct lagom_join *join, const struct lagom_nccl_kernel *kernel)
{
    if (!lagom_unreported_hold(&join->unreported, kernel)) {
        forget_unreported(join);
        lagom_unreported_hold(&join->unreported, kernel);
    }
}

/* This NCCL reports Broadcasts after all: they have launches, and go in step with all others. */
static void find_them_reported(struct lagom_join *join)
{
    struct lagom_nccl_kernel kernel;
    join->unreported.reported = true;
    while (lagom_unreported_take(&join->unreported, &kernel)) {
        lagom_join_kernel(join, &kernel);
    }
    lagom_unreported_start(&join->unreported);
}

static void add_mark(struct lagom_join *join, const struct lagom_nccl_kernel *kernel, const struct lagom_launch *launch)
{
    bool known = launch->bracketed && launch->last_call != UINT64_MAX; /* else one of its calls is not known */
    if (known && !join->unreported.reported) {
        lagom_unreported_joined(&join->unreported, &(struct lagom_mark){.first_call = launch->note.span.call,
                                                                        .last_call = launch->last_call,
                                                                        .end_ns = launch->note.end_ns,
                                                                        .slot = launch->note.span.slot,
                                                                        .correlation = kernel->correlation});
    }
}

/* ---- Notes ------------------------------------------------------------------------------------------------------ */

void lagom_join_note(struct lagom_join *join, const struct lagom_note *note)
{
    if (note->kind == LAGOM_NOTE_UNREPORTED) {
        add_unreported(join, note);
        return;
    }
    if (note->kind == LAGOM_NOTE_RAN) {
        add_timing(join, note);
        return;
    }
    if (note->kind == LAGOM_NOTE_CALL && note->span.function == LAGOM_BROADCAST && !join->unreported.reported) {
        find_them_reported(join);
    }
    if (!lagom_launched_note(&join->launched, note)) {
        lose_sync(join, LOOK_AHEAD);
        join->doubtful = true;
    }
}

/* ---- Going in step ---------------------------------------------------------------------------------------------- */

static void emit_joined(struct lagom_join *join, struct lagom_nccl_kernel kernel, const struct lagom_launch *launch)
{
    const struct lagom_kernel_span *said = &launch->note.span;
    if (launch->disputed) {
        emit(join, &kernel, LAGOM_JOIN_DISPUTED);
        return;
    }
    kernel.span.slot = said->slot;
    if (launch->collectives == 0 || kernel.span.kind != LAGOM_SPAN_COLLECTIVE) {
        emit(join, &kernel, LAGOM_JOIN_SLOT);
        return;
    }
    kernel.span.call = said->call;
    kernel.span.bytes = said->bytes;
    kernel.span.function = said->function;
    kernel.span.algorithm = said->algorithm;
    kernel.span.protocol = said->protocol;
    kernel.span.sequence = said->sequence;
    emit(join, &kernel, said->call == UINT64_MAX ? LAGOM_JOIN_SLOT : LAGOM_JOIN_CALL);
    add_mark(join, &kernel, launch);
}

static void pop_held(struct lagom_join *join)
{
    join->held_count--;
    memmove(join->held, join->held + 1, join->held_count * sizeof(join->held[0]));
}

static void set_times(struct lagom_launch *launch, const struct lagom_kernel_span *kernel)
{
    launch->start_ns = kernel == NULL ? 0 : kernel->start_ns;
    launch->end_ns = kernel == NULL ? 0 : kernel->end_ns;
}

/* NCCL will soon report when this launch's kernel ran, which decides whether it is this kernel. */
static bool may_wait(const struct lagom_join *join, const struct lagom_launch *launch)
{
    bool untimed = lagom_launch_is_told(launch) && launch->ran.end_ns == 0;
    bool to_come = join->launched.oldest >= join->timed_up_to;
    return lagom_join_is_timed(join) && untimed && to_come && join->held_count < LAGOM_JOIN_PATIENT;
}

/* Some were lost about here. */
static bool notes_are_missing(const struct lagom_join *join)
{
    return join->launched.oldest >= join->doubted_from && join->launched.oldest < join->doubted_up_to;
}

/* Perhaps this launch is one after them, and its kernel is still to come. */
static bool is_doubted(const struct lagom_join *join, const struct lagom_launch *launch)
{
    return notes_are_missing(join) && launch->ran.end_ns == 0;
}

/* true = one kernel is off our hands. */
static bool step(struct lagom_join *join, bool last_chance)
{
    if (waiting(join) == 0) {
        return false;
    }
    struct lagom_launch *launch = launch_at(join, join->launched.oldest);
    if (!last_chance && may_wait(join, launch)) {
        return false;
    }
    if (is_doubted(join, launch)) {
        lose_sync(join, LOOK_AHEAD);
        join->doubtful = true;
        return true;
    }
    set_times(launch, &join->held[0].span);
    add_to_sync(join, launch);
    bool unlike = lagom_timing_verdict(&join->sync_timing, join->tick_ns) == LAGOM_TIMING_UNLIKE;
    if (unlike || !lagom_launch_may_be(launch, &join->held[0])) {
        set_times(launch, NULL);
        lose_sync(join, LOOK_AHEAD);
        return true;
    }
    emit_joined(join, join->held[0], launch);
    join->launched.oldest++;
    pop_held(join);
    return true;
}

/* ---- By NCCL's times alone --------------------------------------------------------------------------------------- */

/* Of the launches that no kernel was joined with, passed or not, the only one that NCCL timed so. NULL = none, or two, or
 * one that NCCL has not timed yet may be the one. */
static struct lagom_launch *launch_timed_as(struct lagom_join *join, const struct lagom_nccl_kernel *kernel)
{
    struct lagom_launch *found = NULL;
    for (uint64_t number = lagom_launched_kept(&join->launched); number < join->launched.newest; number++) {
        struct lagom_launch *launch = launch_at(join, number);
        if (launch->start_ns != 0 || !lagom_launch_may_be(launch, kernel)) {
            continue;
        }
        bool untimed = launch->collectives == 1 && launch->ran.end_ns == 0;
        if (untimed || lagom_clocks_allow(&join->clocks, launch->note.span.slot, kernel->span.start_ns,
                                          kernel->span.end_ns, &launch->ran, join->tick_ns)) {
            if (found != NULL) {
                return NULL;
            }
            found = launch;
        }
    }
    return found == NULL || found->ran.end_ns == 0 ? NULL : found;
}

/* A kernel out of its order, or beside one that was lost: it is joined all the same if its times say with which. */
static bool joined_by_times(struct lagom_join *join)
{
    struct lagom_nccl_kernel *kernel = &join->held[0];
    struct lagom_launch *launch = kernel->span.start_ns == 0 ? NULL : launch_timed_as(join, kernel);
    if (launch == NULL) {
        return false;
    }
    set_times(launch, &kernel->span);
    emit_joined(join, *kernel, launch);
    pop_held(join);
    return true;
}

/* ---- Finding the alignment -------------------------------------------------------------------------------------- */

static void go_on_from(struct lagom_join *join, uint64_t offset, const struct lagom_alignment *alignment)
{
    join->launched.oldest += offset;
    if (alignment->verdict == LAGOM_TIMING_ALIKE && join->launched.oldest + alignment->timed > join->doubted_from) {
        join->doubted_from = join->launched.oldest + alignment->timed; /* none is missing among these */
    }
    join->in_sync = true;
    join->starting = join->doubtful = false;
    memset(&join->sync_timing, 0, sizeof(join->sync_timing));
    join->sync_from = join->launched.oldest;
}

static void let_go(struct lagom_join *join, enum lagom_join_result result)
{
    if (!joined_by_times(join)) {
        emit(join, &join->held[0], result);
        pop_held(join);
    }
}

/* Several alignments fit and will go on fitting: half of what is held goes, so that the search is not done for each. */
static void let_many_go(struct lagom_join *join, uint32_t count)
{
    bool launches = waiting(join) > 0;
    for (uint32_t i = 0; i < count; i++) {
        let_go(join, launches ? LAGOM_JOIN_AMBIGUOUS : LAGOM_JOIN_NO_LAUNCH);
        if (notes_are_missing(join)) {
            join->search += join->search < MOST_LOST; /* perhaps it had none */
        } else {
            join->launched.oldest += waiting(join) > 0; /* every kernel had one, whichever it was */
        }
    }
}

/* true = worth another look. */
static bool find_sync(struct lagom_join *join, bool last_chance)
{
    const struct lagom_alignment_input input = alignment_input(join);
    uint64_t last = lagom_alignment_last(&input);
    struct lagom_alignments found = lagom_alignments_find(&input, last);
    bool full = join->held_count >= LAGOM_JOIN_PATIENT;
    bool enough = join->starting ? last < waiting(join) : join->held_count >= LAGOM_ALIGNMENT_KERNELS;
    if (found.count == 1 && enough && lagom_alignment_is_certain(&input, &found.there, full || last_chance)) {
        go_on_from(join, found.first, &found.there);
        return true;
    }
    if (found.count == 0 && waiting(join) > last) {
        if (join->starting) {
            lose_sync(join, (uint32_t)last + LOOK_AHEAD);
            return true;
        }
        let_go(join, LAGOM_JOIN_MISMATCH);
        /* Its launch may be among these all the same; more than one was lost. */
        join->search += lagom_join_is_timed(join) ? 2 : 1;
        return true;
    }
    if (full || last_chance) {
        lose_sync(join, (uint32_t)last);
        let_many_go(join, full ? LAGOM_JOIN_PATIENT / 2 : join->held_count);
        return true;
    }
    return false;
}

/* ---- From outside ----------------------------------------------------------------------------------------------- */

void lagom_join_start(struct lagom_join *join, uint64_t on_begin_ns, uint64_t on_end_ns)
{
    join->on_end_ns = on_end_ns;
    lagom_launched_start(&join->launched, on_begin_ns);
    lagom_join_drop(join);
    join->in_sync = false;
    join->starting = true;
    join->doubtful = false;
    join->search = 0;
    join->timed_up_to = 0;
    join->doubted_from = join->doubted_up_to = 0;
}

static uint64_t launched_by(const struct lagom_join *join, const struct lagom_kernel_span *kernel)
{
    uint64_t on_for = lagom_elapsed_ns(kernel->start_ns, join->launched.since_ns);
    return kernel->start_ns == 0 ? UINT64_MAX : kernel->start_ns + APART_NS + on_for / DRIFT;
}

/* Kept in the order of the launches. */
static void hold(struct lagom_join *join, const struct lagom_nccl_kernel *kernel)
{
    uint32_t at = join->held_count++;
    while (at > 0 && lagom_launched_before(kernel->correlation, join->held[at - 1].correlation)) {
        join->held[at] = join->held[at - 1];
        at--;
    }
    join->held[at] = *kernel;
}

static void settle(struct lagom_join *join, bool last_chance)
{
    while (join->held_count > 0 && (join->in_sync ? step(join, last_chance) : find_sync(join, last_chance))) {
    }
}

void lagom_join_kernel(struct lagom_join *join, const struct lagom_nccl_kernel *recorded)
{
    struct lagom_nccl_kernel kernel = *recorded;
    kernel.launched_by_ns = launched_by(join, &kernel.span);
    if (kernel.from_graph) {
        emit(join, &kernel, LAGOM_JOIN_GRAPH); /* launched by graph replays, which NCCL does not report */
        return;
    }
    if (kernel.span.kind == LAGOM_SPAN_P2P && !join->launched.bracketed) {
        emit(join, &kernel, LAGOM_JOIN_NO_LAUNCH); /* the tuner is never asked about it */
        return;
    }
    if (join->launched.bracketed && lagom_unreported_is(&join->unreported, &kernel.span)) {
        hold_unreported(join, &kernel);
        return;
    }
    if (join->held_count == LAGOM_JOIN_HELD) {
        settle(join, false);
    }
    if (join->held_count == LAGOM_JOIN_HELD) {
        let_go(join, LAGOM_JOIN_NO_LAUNCH);
    }
    hold(join, &kernel);
}

void lagom_join_exact(struct lagom_join *join, const struct lagom_nccl_kernel *kernel, uint64_t serial)
{
    struct lagom_launched *launched = &join->launched;
    for (uint64_t number = lagom_launched_kept(launched); number < launched->newest; number++) {
        struct lagom_launch *launch = launch_at(join, number);
        if (launch->note.serial == serial) {
            launch->disputed = false;
            set_times(launch, &kernel->span);
            emit_joined(join, *kernel, launch);
            launched->oldest = number < launched->oldest ? launched->oldest : number + 1;
            return;
        }
    }
    emit(join, kernel, LAGOM_JOIN_NO_LAUNCH);
}

void lagom_join_settle(struct lagom_join *join)
{
    settle(join, false);
    settle_unreported(join, false);
    lagom_unreported_tidy(&join->unreported);
}

void lagom_join_lost(struct lagom_join *join, uint64_t count)
{
    const struct lagom_alignment_input input = alignment_input(join);
    uint64_t search = count + (join->in_sync ? 0 : lagom_alignment_last(&input));
    lose_sync(join, (uint32_t)(search < MOST_LOST ? search : MOST_LOST));
    join->doubtful |= search > MOST_LOST;
    forget_unreported(join);
}

void lagom_join_notes_lost(struct lagom_join *join, uint64_t newest)
{
    bool is_first = join->launched.oldest >= join->doubted_up_to;
    join->doubted_from = is_first ? newest : join->doubted_from;
    join->doubted_up_to = join->launched.newest + 1;
    join->doubtful |= !join->in_sync;
    forget_unreported(join);
}

void lagom_join_finish(struct lagom_join *join)
{
    settle(join, true);
    while (join->held_count > 0) {
        let_go(join, LAGOM_JOIN_NO_LAUNCH);
    }
    settle_unreported(join, true);
}

void lagom_join_drop(struct lagom_join *join)
{
    join->held_count = 0;
    lagom_unreported_start(&join->unreported);
}
