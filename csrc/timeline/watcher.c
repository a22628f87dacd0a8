#include "timeline/watcher.h"

#include <stdio.h>
#include <string.h>

#include "protocol/lagom_atomic.h"
#include "timeline/brackets.h"
#include "timeline/clock.h"
#include "timeline/profiler_conflict.h"
#include "timeline/launches.h"

#define MILLISECOND 1000000u
#define FLUSH_EVERY_NS (20u * MILLISECOND)
#define WARM_UP_NS (100u * MILLISECOND)  /* launches are noted before the first one is recorded, */
#define NO_LAUNCH_NS (1000u * MILLISECOND) /* for longer where there are none: their threads know of torch's profiles */
#define DRAIN_NS (2000u * MILLISECOND)   /* the GPU may be some iterations behind */
#define RETRY_NS (250u * MILLISECOND)    /* somebody who tells us profiles: ask again */
#define QUIET_NS (1000u * MILLISECOND)   /* somebody took CUPTI, and no thread has been profiled for so long: over */
#define UNSEEN_NS (30000ull * MILLISECOND) /* the same, if no thread ever was: preparing, or not torch */
#define REFUSED_NS (5000ull * MILLISECOND) /* CUPTI itself said no */
#define SILENCE_NS (2000u * MILLISECOND) /* kernels are launched and nothing comes back: the callbacks are not ours */
#define LAUNCHES_HEARD 64u

/* ---- Saying how it stands --------------------------------------------------------------------------------------- */

static void enter(struct lagom_watcher *watcher, enum lagom_timeline_state state)
{
    watcher->state = state;
    watcher->since_ns = lagom_now_ns();
    lagom_store_release(&watcher->process->timeline_state, (uint32_t)state);
}

static void remark(struct lagom_watcher *watcher, const char *text)
{
    char *out = watcher->process->remark;
    if (strncmp(out, text, sizeof(watcher->process->remark) - 1) != 0) {
        snprintf(out, sizeof(watcher->process->remark), "%s", text);
    }
}

static void give_up(struct lagom_watcher *watcher, enum lagom_timeline_state state, const char *text)
{
    lagom_brackets_use(NULL);
    remark(watcher, text);
    watcher->draining = false;
    watcher->retry_ns = lagom_now_ns() + RETRY_NS;
    enter(watcher, state);
}

/* CUPTI is somebody else's now: nothing is switched off, nothing of theirs is touched, the window is forgotten. */
static void yield_to(struct lagom_watcher *watcher, const char *holder)
{
    char text[LAGOM_PATH_BYTES];
    snprintf(text, sizeof(text), "no kernel timeline while %s is at work in this process; asked for again later.",
             holder);
    lagom_activity_abandon();
    lagom_reader_drop(&watcher->reader);
    give_up(watcher, LAGOM_TIMELINE_YIELDED, text);
}

/* CUPTI's callbacks or clock are no longer ours, whoever has them; he may go on for long, and tells nobody when he ends. */
static void taken_over(struct lagom_watcher *watcher)
{
    yield_to(watcher, "another profiler that took CUPTI's buffers (torch.profiler does)");
    watcher->taken = true;
}

/* Launches go on being noted while we yield: their threads know whether torch profiles them. */
static bool taker_has_gone(const struct lagom_watcher *watcher, uint64_t now)
{
    uint64_t seen = lagom_profiler_conflict_last_seen_ns();
    if (seen >= watcher->since_ns) {
        return lagom_elapsed_ns(now, seen) > QUIET_NS;
    }
    return lagom_elapsed_ns(now, watcher->since_ns) > UNSEEN_NS;
}

/* ---- On --------------------------------------------------------------------------------------------------------- */

static bool open_cupti(struct lagom_watcher *watcher)
{
    char reason[LAGOM_PATH_BYTES];
    if (!watcher->tried_to_open) {
        watcher->tried_to_open = true;
        if (!lagom_cupti_open(&watcher->cupti, reason, sizeof(reason))) {
            remark(watcher, reason);
        }
    }
    return watcher->cupti.library != NULL;
}

/* Asked for: note launches first, so that the first kernel recorded has its note. */
static void warm_up(struct lagom_watcher *watcher)
{
    if (!open_cupti(watcher)) {
        enter(watcher, LAGOM_TIMELINE_ABSENT);
        watcher->retry_ns = UINT64_MAX;
        return;
    }
    const char *holder = lagom_profiler_conflict();
    if (holder != NULL) {
        yield_to(watcher, holder);
        return;
    }
    lagom_notes_want(true);
    watcher->notes = lagom_notes_written();
    enter(watcher, LAGOM_TIMELINE_STARTING);
}

static void record(struct lagom_watcher *watcher)
{
    const char *holder = lagom_profiler_conflict();
    if (holder != NULL) {
        yield_to(watcher, holder);
        return;
    }
    uint64_t begin = lagom_now_ns();
    const char *refused = lagom_activity_enable(&watcher->cupti);
    uint64_t end = lagom_now_ns();
    if (refused != NULL) {
        char text[LAGOM_PATH_BYTES];
        snprintf(text, sizeof(text), "no kernel timeline: %s; another tool may hold this process.", refused);
        give_up(watcher, LAGOM_TIMELINE_YIELDED, text);
        watcher->retry_ns = end + REFUSED_NS;
        return;
    }
    if (watcher->process->timeline_first_enable_ns == 0) {
        lagom_store_relaxed(&watcher->process->timeline_first_enable_ns, end - begin);
    }
    lagom_reader_start(&watcher->reader, begin, end);
    lagom_brackets_use(&watcher->cupti);
    watcher->completed = lagom_activity_completed();
    watcher->notes = lagom_notes_written();
    watcher->heard_ns = end;
    watcher->flushed_ns = end;
    enter(watcher, LAGOM_TIMELINE_ON);
}

/* ---- While on --------------------------------------------------------------------------------------------------- */

static void flush(struct lagom_watcher *watcher, uint64_t now)
{
    if (lagom_elapsed_ns(now, watcher->flushed_ns) >= FLUSH_EVERY_NS) {
        watcher->cupti.flush_all(CUPTI_FLUSH_COMPLETE);
        watcher->flushed_ns = now;
    }
}

/* A profiler that leaves the clock alone takes the callbacks, and CUPTI reports no error: kernels are launched, and
 * nothing comes back. */
static bool nothing_comes(struct lagom_watcher *watcher, uint64_t now)
{
    uint64_t completed = lagom_activity_completed();
    if (completed != watcher->completed) {
        watcher->completed = completed;
        watcher->notes = lagom_notes_written();
        watcher->heard_ns = now;
    }
    return lagom_elapsed_ns(now, watcher->heard_ns) > SILENCE_NS && lagom_notes_written() - watcher->notes >= LAUNCHES_HEARD;
}

static void stop(struct lagom_watcher *watcher)
{
    lagom_activity_disable(&watcher->cupti);
    lagom_brackets_use(NULL);
    watcher->draining = true;
    enter(watcher, LAGOM_TIMELINE_OFF);
}

static void go_on(struct lagom_watcher *watcher, bool wanted, uint64_t now)
{
    const char *holder = lagom_profiler_conflict(); /* before we flush or disable anything that may be theirs */
    if (holder != NULL) {
        yield_to(watcher, holder);
        return;
    }
    if (!lagom_activity_clock_is_ours(&watcher->cupti) || nothing_comes(watcher, now)) {
        taken_over(watcher);
        return;
    }
    lagom_reader_run(&watcher->reader);
    if (!wanted) {
        stop(watcher);
    } else {
        flush(watcher, now);
    }
}

/* ---- After ------------------------------------------------------------------------------------------------------ */

static void count_foreign(struct lagom_watcher *watcher)
{
    static uint64_t counted;
    uint64_t foreign = lagom_activity_foreign();
    if (foreign != counted) {
        lagom_fetch_add(&watcher->process->timeline_lost, foreign - counted);
        counted = foreign;
    }
}

static void end_window(struct lagom_watcher *watcher)
{
    lagom_notes_want(false);
    lagom_reader_finish(&watcher->reader);
    if (lagom_profiler_conflict() == NULL && lagom_activity_clock_is_ours(&watcher->cupti)) {
        lagom_activity_give_clock_back(&watcher->cupti);
    }
    lagom_activity_close();
    watcher->draining = false;
}

static void drain(struct lagom_watcher *watcher, uint64_t now)
{
    bool alone = lagom_profiler_conflict() == NULL && lagom_activity_clock_is_ours(&watcher->cupti);
    if (!alone) { /* their flushes bring our buffers to them: that is all there will be */
        lagom_activity_abandon();
        lagom_reader_drop(&watcher->reader);
        end_window(watcher);
        return;
    }
    bool late = lagom_elapsed_ns(now, watcher->since_ns) > DRAIN_NS;
    if (late) {
        watcher->cupti.flush_all(CUPTI_FLUSH_FORCED);
    } else {
        flush(watcher, now);
    }
    lagom_reader_run(&watcher->reader);
    if ((late || lagom_activity_out() == 0) && lagom_reader_is_done(&watcher->reader)) {
        if (late) {
            lagom_activity_abandon();
        }
        end_window(watcher);
    }
}

/* ---- From outside ----------------------------------------------------------------------------------------------- */

void lagom_watcher_init(struct lagom_watcher *watcher, struct lagom_region *region, uint32_t process,
                        lagom_timeline_push push)
{
    memset(watcher, 0, sizeof(*watcher));
    watcher->process = &region->processes[process];
    watcher->reader.cupti = &watcher->cupti;
    watcher->reader.region = region;
    watcher->reader.process = process;
    watcher->reader.push = push;
    enter(watcher, LAGOM_TIMELINE_OFF);
}

static void start_or_not(struct lagom_watcher *watcher, bool wanted, uint64_t now)
{
    bool heard = lagom_notes_written() != watcher->notes;
    if (!wanted) {
        lagom_notes_want(false);
        enter(watcher, LAGOM_TIMELINE_OFF);
    } else if (lagom_elapsed_ns(now, watcher->since_ns) >= (heard ? WARM_UP_NS : NO_LAUNCH_NS)) {
        record(watcher);
    }
}

/* Neither on nor about to be. */
static void wait(struct lagom_watcher *watcher, bool wanted, uint64_t now)
{
    bool yielded = watcher->state == LAGOM_TIMELINE_YIELDED;
    if (watcher->taken) {
        watcher->taken = !taker_has_gone(watcher, now);
    } else if (wanted && now >= watcher->retry_ns) {
        warm_up(watcher);
    } else if (!wanted && yielded) {
        lagom_notes_want(false);
        enter(watcher, LAGOM_TIMELINE_OFF);
    }
    if (yielded || watcher->taken) {
        lagom_reader_drop(&watcher->reader); /* what is noted meanwhile */
    }
}

void lagom_watcher_turn(struct lagom_watcher *watcher)
{
    uint64_t now = lagom_now_ns();
    bool wanted = lagom_load_acquire(&watcher->process->timeline_wanted) != 0; /* pairs with the controller's release */
    count_foreign(watcher);
    if (watcher->state == LAGOM_TIMELINE_ON) {
        go_on(watcher, wanted, now);
    } else if (watcher->draining) {
        drain(watcher, now);
    } else if (watcher->state == LAGOM_TIMELINE_STARTING) {
        start_or_not(watcher, wanted, now);
    } else {
        wait(watcher, wanted, now);
    }
}

void lagom_watcher_end(struct lagom_watcher *watcher)
{
    bool seized = watcher->taken || (watcher->state == LAGOM_TIMELINE_ON && !lagom_activity_clock_is_ours(&watcher->cupti));
    bool alone = lagom_profiler_conflict() == NULL && !seized;
    if (watcher->state == LAGOM_TIMELINE_ON && alone) {
        lagom_activity_disable(&watcher->cupti);
        watcher->cupti.flush_all(CUPTI_FLUSH_COMPLETE);
        lagom_reader_run(&watcher->reader);
        lagom_reader_finish(&watcher->reader); /* what waits for a next kernel has none coming */
    }
    lagom_brackets_use(NULL);
    lagom_notes_want(false);
    lagom_reader_drop(&watcher->reader);
    if (watcher->cupti.library != NULL && alone && watcher->process->timeline_first_enable_ns != 0) {
        lagom_activity_give_clock_back(&watcher->cupti);
    }
    lagom_activity_abandon();
    lagom_activity_close();
    enter(watcher, LAGOM_TIMELINE_OFF);
}
