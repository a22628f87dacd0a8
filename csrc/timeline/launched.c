/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/launched.h"

#include "timeline/kernel_name.h"

#define CALL_SLACK_NS 2000000u /* a call alone says only about when its launch was */
#define THREADS_BACK 16u
#define PASSED_BACK 512u /* NCCL's times come late: also of launches that have been passed */

void lagom_launched_start(struct lagom_launched *launched, uint64_t since_ns)
{
    launched->since_ns = since_ns;
    launched->bracketed = false;
    launched->oldest = launched->newest = 0;
}

/* ---- Launches and calls ----------------------------------------------------------------------------------------- */

static bool at_once(const struct lagom_launch *launch, const struct lagom_launch *before)
{
    return launch->bracketed && before->note.thread != launch->note.thread &&
           launch->note.begin_ns < before->note.end_ns;
}

/* Launches of several threads that overlap in time: which came first is not known. */
static void dispute(struct lagom_launched *launched, struct lagom_launch *launch)
{
    for (uint64_t number = launched->newest; number > launched->oldest; number--) {
        struct lagom_launch *before = lagom_launched_at(launched, number - 1);
        if (before->note.end_ns <= launch->note.begin_ns) {
            return;
        }
        bool disputed = at_once(launch, before);
        launch->disputed |= disputed;
        before->disputed |= disputed;
    }
}

static bool add_launch(struct lagom_launched *launched, struct lagom_launch launch)
{
    if (launch.note.end_ns <= launched->since_ns) {
        return true;
    }
    bool room = lagom_launched_waiting(launched) < LAGOM_LAUNCHED;
    launched->oldest += !room; /* their kernels never came */
    dispute(launched, &launch);
    *lagom_launched_at(launched, launched->newest++) = launch;
    return room;
}

/* The launch whose plan this collective is in: the last one of the same thread and communicator. */
static struct lagom_launch *launch_of(struct lagom_launched *launched, const struct lagom_note *call)
{
    uint64_t waiting = lagom_launched_waiting(launched);
    for (uint64_t back = 1; back <= waiting && back <= THREADS_BACK; back++) {
        struct lagom_launch *launch = lagom_launched_at(launched, launched->newest - back);
        if (launch->bracketed && launch->note.thread == call->thread && launch->note.span.slot == call->span.slot) {
            return launch;
        }
    }
    return NULL;
}

static void add_call(struct lagom_launched *launched, const struct lagom_note *call)
{
    struct lagom_launch *launch = launch_of(launched, call);
    if (launch == NULL) {
        return; /* launched before we looked */
    }
    launch->last_call = call->span.call > launch->last_call ? call->span.call : launch->last_call;
    launch->ran = (struct lagom_ran){0, 0}; /* NCCL times each collective of an aggregate, which is less than its kernel */
    if (launch->collectives++ == 0) { /* the first one of an aggregate names it */
        launch->note.span = call->span;
    }
}

/* NCCL reports a collective just after it is launched, and asks the tuner just before. */
static struct lagom_launch about_when(const struct lagom_note *call)
{
    struct lagom_launch launch = {.note = *call, .collectives = 1};
    if (call->kind == LAGOM_NOTE_CALL) {
        launch.note.begin_ns -= CALL_SLACK_NS;
    } else {
        launch.note.end_ns += CALL_SLACK_NS;
    }
    return launch;
}

bool lagom_launched_note(struct lagom_launched *launched, const struct lagom_note *note)
{
    if (note->kind == LAGOM_NOTE_LAUNCH) {
        launched->bracketed = true;
        return add_launch(launched, (struct lagom_launch){.note = *note, .bracketed = true});
    }
    if (!launched->bracketed) {
        return add_launch(launched, about_when(note));
    }
    add_call(launched, note);
    return true;
}

/* ---- NCCL's own times ------------------------------------------------------------------------------------------- */

uint64_t lagom_launched_ran(struct lagom_launched *launched, const struct lagom_note *ran)
{
    uint64_t kept = lagom_launched_kept(launched);
    uint64_t number = launched->oldest - kept < PASSED_BACK ? kept : launched->oldest - PASSED_BACK;
    for (; ran->span.call != UINT64_MAX && number < launched->newest; number++) {
        struct lagom_launch *launch = lagom_launched_at(launched, number);
        if (launch->collectives == 1 && launch->note.span.slot == ran->span.slot &&
            launch->note.span.call == ran->span.call) {
            launch->ran = (struct lagom_ran){ran->span.start_ns, ran->span.end_ns};
            return number;
        }
    }
    return launched->newest;
}

/* ---- Whether a kernel may be its ------------------------------------------------------------------------------- */

static bool same_shape(const struct lagom_launch *launch, const struct lagom_kernel_span *kernel)
{
    const struct lagom_kernel_span *said = &launch->note.span;
    bool function = kernel->function == LAGOM_NO_FUNCTION || kernel->function == said->function;
    bool channels = said->channels == 0 || kernel->channels == said->channels ||
                    (launch->collectives > 1 && kernel->channels > said->channels);
    return kernel->kind == LAGOM_SPAN_COLLECTIVE && function && channels;
}

bool lagom_launch_may_be(const struct lagom_launch *launch, const struct lagom_nccl_kernel *kernel)
{
    if (kernel->launched_by_ns < launch->note.begin_ns) {
        return false;
    }
    return launch->disputed || launch->collectives == 0 || same_shape(launch, &kernel->span);
}

void lagom_launch_pair(const struct lagom_launch *launch, uint64_t start_ns, uint64_t end_ns,
                       struct lagom_timing *timing)
{
    if (!launch->disputed && launch->ran.end_ns != 0 && start_ns != 0) {
        lagom_timing_add(timing, start_ns, end_ns, launch->note.span.slot, &launch->ran);
    }
}
