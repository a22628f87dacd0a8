/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/cupti_control.h"

#include <stdio.h>
#include <string.h>

#include "protocol/lagom_atomic.h"
#include "timeline/brackets.h"
#include "timeline/clock.h"
#include "timeline/profiler_conflict.h"
#include "timeline/launches.h"

#define MILLISECOND 1000000u
#define FLUSH_EVERY_NS (20u * MILLISECOND)
#define WARM_UP_NS (100u * MILLISECOND)    /* launches are noted before the first one is recorded, */
#define NO_LAUNCH_NS (1000u * MILLISECOND) /* for longer where there are none: their threads know of torch's profiles */
#define DRAIN_NS (2000u * MILLISECOND)     /* the GPU may be some iterations behind */
#define RETRY_NS (250u * MILLISECOND)      /* another tool reports that it profiles: ask again */
#define QUIET_NS (1000u * MILLISECOND)     /* another tool took CUPTI, and for so long no thread was profiled: it has ended */
#define UNSEEN_NS (30000ull * MILLISECOND) /* the same, if no thread ever was profiled: it prepares, or it is not torch */
#define REFUSED_NS (5000ull * MILLISECOND) /* CUPTI itself said no */
#define SILENCE_NS (2000u * MILLISECOND)   /* kernels are launched and nothing comes back: the callbacks are not ours */
#define LAUNCHES_HEARD 64u

/* ---- Saying how it stands --------------------------------------------------------------------------------------- */

static void enter(struct lagom_cupti_control *control, enum lagom_timeline_state state)
{
    control->state = state;
    control->since_ns = lagom_now_ns();
    lagom_store_release(&control->process->timeline_state, (uint32_t)state);
}

static void remark(struct lagom_cupti_control *control, const char *text)
{
    snprintf(control->process->timeline_remark, sizeof(control->process->timeline_remark), "%s", text);
}

static void give_up(struct lagom_cupti_control *control, enum lagom_timeline_state state, const char *text)
{
    lagom_brackets_use(NULL);
    remark(control, text);
    control->draining = false;
    control->retry_ns = lagom_now_ns() + RETRY_NS;
    enter(control, state);
}

/* CUPTI is somebody else's now: nothing is switched off, nothing of theirs is touched, the window is forgotten. */
static void yield_to(struct lagom_cupti_control *control, const char *holder)
{
    char text[LAGOM_PATH_BYTES];
    snprintf(text, sizeof(text), "no kernel timeline while %s is active in this process; Lagom tries again later.",
             holder);
    lagom_activity_abandon();
    lagom_reader_drop(&control->reader);
    give_up(control, LAGOM_TIMELINE_YIELDED, text);
}

/* CUPTI's callbacks or clock are no longer ours, whichever tool has them. It may run for long, and does not report its end. */
static void taken_over(struct lagom_cupti_control *control)
{
    yield_to(control, "another profiler that took CUPTI's buffers (torch.profiler does)");
    control->taken = true;
}

/* Launches go on being noted while we yield: their threads know whether torch profiles them. */
static bool taker_has_gone(const struct lagom_cupti_control *control, uint64_t now)
{
    uint64_t seen = lagom_profiler_conflict_last_seen_ns();
    if (seen >= control->since_ns) {
        return lagom_elapsed_ns(now, seen) > QUIET_NS;
    }
    return lagom_elapsed_ns(now, control->since_ns) > UNSEEN_NS;
}

/* ---- On --------------------------------------------------------------------------------------------------------- */

static bool open_cupti(struct lagom_cupti_control *control)
{
    char reason[LAGOM_PATH_BYTES];
    if (!control->tried_to_open) {
        control->tried_to_open = true;
        if (!lagom_cupti_open(&control->cupti, reason, sizeof(reason))) {
            remark(control, reason);
        }
    }
    return control->cupti.library != NULL;
}

/* Asked for: note launches first, so that the first kernel recorded has its note. */
static void warm_up(struct lagom_cupti_control *control)
{
    if (!open_cupti(control)) {
        enter(control, LAGOM_TIMELINE_ABSENT);
        control->retry_ns = UINT64_MAX;
        return;
    }
    const char *holder = lagom_profiler_conflict();
    if (holder != NULL) {
        yield_to(control, holder);
        return;
    }
    lagom_notes_want(true);
    control->notes = lagom_notes_written();
    enter(control, LAGOM_TIMELINE_STARTING);
}

static void record(struct lagom_cupti_control *control)
{
    const char *holder = lagom_profiler_conflict();
    if (holder != NULL) {
        yield_to(control, holder);
        return;
    }
    uint64_t begin = lagom_now_ns();
    const char *refused = lagom_activity_enable(&control->cupti);
    uint64_t end = lagom_now_ns();
    if (refused != NULL) {
        char text[LAGOM_PATH_BYTES];
        snprintf(text, sizeof(text), "no kernel timeline: %s; another tool may use CUPTI in this process.", refused);
        give_up(control, LAGOM_TIMELINE_YIELDED, text);
        control->retry_ns = end + REFUSED_NS;
        return;
    }
    if (control->process->timeline_first_enable_ns == 0) {
        lagom_store_relaxed(&control->process->timeline_first_enable_ns, end - begin);
    }
    lagom_reader_start(&control->reader, begin, end);
    lagom_brackets_use(&control->cupti);
    control->completed = lagom_activity_completed();
    control->notes = lagom_notes_written();
    control->heard_ns = end;
    control->flushed_ns = end;
    enter(control, LAGOM_TIMELINE_ON);
}

/* ---- While on --------------------------------------------------------------------------------------------------- */

static void flush(struct lagom_cupti_control *control, uint64_t now)
{
    if (lagom_elapsed_ns(now, control->flushed_ns) >= FLUSH_EVERY_NS) {
        control->cupti.flush_all(CUPTI_FLUSH_COMPLETE);
        control->flushed_ns = now;
    }
}

/* A profiler that leaves the clock alone takes the callbacks, and CUPTI reports no error: kernels are launched, and
 * nothing comes back. */
static bool nothing_comes(struct lagom_cupti_control *control, uint64_t now)
{
    uint64_t completed = lagom_activity_completed();
    if (completed != control->completed) {
        control->completed = completed;
        control->notes = lagom_notes_written();
        control->heard_ns = now;
    }
    return lagom_elapsed_ns(now, control->heard_ns) > SILENCE_NS &&
           lagom_notes_written() - control->notes >= LAUNCHES_HEARD;
}

static void stop(struct lagom_cupti_control *control)
{
    lagom_activity_disable(&control->cupti);
    lagom_brackets_use(NULL);
    control->draining = true;
    enter(control, LAGOM_TIMELINE_OFF);
}

static void go_on(struct lagom_cupti_control *control, bool wanted, uint64_t now)
{
    const char *holder = lagom_profiler_conflict(); /* before we flush or disable anything that may be theirs */
    if (holder != NULL) {
        yield_to(control, holder);
        return;
    }
    if (!lagom_activity_clock_is_ours(&control->cupti) || nothing_comes(control, now)) {
        taken_over(control);
        return;
    }
    lagom_reader_run(&control->reader);
    if (!wanted) {
        stop(control);
    } else {
        flush(control, now);
    }
}

/* ---- After ------------------------------------------------------------------------------------------------------ */

static void count_foreign(struct lagom_cupti_control *control)
{
    static uint64_t counted;
    uint64_t foreign = lagom_activity_foreign();
    if (foreign != counted) {
        lagom_fetch_add(&control->process->timeline_lost, foreign - counted);
        counted = foreign;
    }
}

static void end_window(struct lagom_cupti_control *control)
{
    lagom_notes_want(false);
    lagom_reader_finish(&control->reader);
    if (lagom_profiler_conflict() == NULL && lagom_activity_clock_is_ours(&control->cupti)) {
        lagom_activity_give_clock_back(&control->cupti);
    }
    lagom_activity_close();
    control->draining = false;
}

static void drain(struct lagom_cupti_control *control, uint64_t now)
{
    bool alone = lagom_profiler_conflict() == NULL && lagom_activity_clock_is_ours(&control->cupti);
    if (!alone) { /* their flushes bring our buffers to them: that is all there will be */
        lagom_activity_abandon();
        lagom_reader_drop(&control->reader);
        end_window(control);
        return;
    }
    bool late = lagom_elapsed_ns(now, control->since_ns) > DRAIN_NS;
    if (late) {
        control->cupti.flush_all(CUPTI_FLUSH_FORCED);
    } else {
        flush(control, now);
    }
    lagom_reader_run(&control->reader);
    if ((late || lagom_activity_out() == 0) && lagom_reader_is_done(&control->reader)) {
        if (late) {
            lagom_activity_abandon();
        }
        end_window(control);
    }
}

/* ---- From outside ----------------------------------------------------------------------------------------------- */

void lagom_cupti_control_init(struct lagom_cupti_control *control, struct lagom_region *region, uint32_t process,
                              lagom_timeline_push push)
{
    memset(control, 0, sizeof(*control));
    control->process = &region->processes[process];
    control->reader.cupti = &control->cupti;
    control->reader.region = region;
    control->reader.process = process;
    control->reader.push = push;
    enter(control, LAGOM_TIMELINE_OFF);
}

static void start_or_not(struct lagom_cupti_control *control, bool wanted, uint64_t now)
{
    bool heard = lagom_notes_written() != control->notes;
    if (!wanted) {
        lagom_notes_want(false);
        enter(control, LAGOM_TIMELINE_OFF);
    } else if (lagom_elapsed_ns(now, control->since_ns) >= (heard ? WARM_UP_NS : NO_LAUNCH_NS)) {
        record(control);
    }
}

/* Neither on nor about to be. */
static void wait(struct lagom_cupti_control *control, bool wanted, uint64_t now)
{
    bool yielded = control->state == LAGOM_TIMELINE_YIELDED;
    if (control->taken) {
        control->taken = !taker_has_gone(control, now);
    } else if (wanted && now >= control->retry_ns) {
        warm_up(control);
    } else if (!wanted && yielded) {
        lagom_notes_want(false);
        enter(control, LAGOM_TIMELINE_OFF);
    }
    if (yielded || control->taken) {
        lagom_reader_drop(&control->reader); /* what is noted meanwhile */
    }
}

void lagom_cupti_control_step(struct lagom_cupti_control *control)
{
    uint64_t now = lagom_now_ns();
    bool wanted = lagom_load_acquire(&control->process->timeline_wanted) != 0; /* pairs with the controller's release */
    count_foreign(control);
    if (control->state == LAGOM_TIMELINE_ON) {
        go_on(control, wanted, now);
    } else if (control->draining) {
        drain(control, now);
    } else if (control->state == LAGOM_TIMELINE_STARTING) {
        start_or_not(control, wanted, now);
    } else {
        wait(control, wanted, now);
    }
}

void lagom_cupti_control_end(struct lagom_cupti_control *control)
{
    bool seized =
        control->taken || (control->state == LAGOM_TIMELINE_ON && !lagom_activity_clock_is_ours(&control->cupti));
    bool alone = lagom_profiler_conflict() == NULL && !seized;
    if (control->state == LAGOM_TIMELINE_ON && alone) {
        lagom_activity_disable(&control->cupti);
        control->cupti.flush_all(CUPTI_FLUSH_COMPLETE);
        lagom_reader_run(&control->reader);
        lagom_reader_finish(&control->reader); /* what waits for a next kernel has none coming */
    }
    lagom_brackets_use(NULL);
    lagom_notes_want(false);
    lagom_reader_drop(&control->reader);
    if (control->cupti.library != NULL && alone && control->process->timeline_first_enable_ns != 0) {
        lagom_activity_give_clock_back(&control->cupti);
    }
    lagom_activity_abandon();
    lagom_activity_close();
    enter(control, LAGOM_TIMELINE_OFF);
}
