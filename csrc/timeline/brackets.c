/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/brackets.h"

#include "protocol/lagom_atomic.h"
#include "timeline/clock.h"
#include "timeline/profiler_conflict.h"
#include "timeline/launches.h"
#include "timeline/liblagom_timeline.h"

static const struct lagom_cupti *recording; /* atomic */
static uint64_t serials;
static _Thread_local struct lagom_note open_bracket;           /* serial 0 = none */
static _Thread_local const struct lagom_cupti *pushed_through; /* popped through the same, whatever happens between */

void lagom_brackets_use(const struct lagom_cupti *cupti)
{
    lagom_store_release(&recording, cupti);
}

void lagom_timeline_launch_begins(uint32_t slot)
{
    if (!lagom_notes_wanted()) {
        return;
    }
    lagom_profiler_conflict_note_thread();
    open_bracket = (struct lagom_note){.kind = LAGOM_NOTE_LAUNCH,
                                       .serial = lagom_fetch_add(&serials, 1) + 1,
                                       .span = {.slot = slot, .call = UINT64_MAX}};
    pushed_through = lagom_load_acquire(&recording); /* pairs with use: its functions are there */
    if (pushed_through != NULL) {
        pushed_through->push_external(CUPTI_EXTERNAL_CUSTOM2, open_bracket.serial);
    }
    open_bracket.begin_ns = lagom_now_ns();
}

void lagom_timeline_launch_ends(void)
{
    if (open_bracket.serial == 0) {
        return;
    }
    open_bracket.end_ns = lagom_now_ns();
    if (pushed_through != NULL) {
        uint64_t serial;
        pushed_through->pop_external(CUPTI_EXTERNAL_CUSTOM2, &serial);
        pushed_through = NULL;
    }
    lagom_note_add(&open_bracket);
    open_bracket.serial = 0;
}

static void note_call(enum lagom_note_kind kind, const struct lagom_kernel_span *span)
{
    if (lagom_notes_wanted()) {
        lagom_profiler_conflict_note_thread();
        uint64_t now = lagom_now_ns();
        lagom_note_add(&(struct lagom_note){.kind = kind, .begin_ns = now, .end_ns = now, .span = *span});
    }
}

void lagom_timeline_launched(const struct lagom_kernel_span *collective)
{
    note_call(LAGOM_NOTE_CALL, collective);
}

void lagom_timeline_asked(const struct lagom_kernel_span *call)
{
    note_call(LAGOM_NOTE_ASKED, call);
}

void lagom_timeline_unreported(const struct lagom_kernel_span *call)
{
    note_call(LAGOM_NOTE_UNREPORTED, call);
}

/* From a thread of NCCL's own, which nobody profiles. Nobody reads before CUPTI records, so there is no room to waste. */
void lagom_timeline_ran(const struct lagom_kernel_span *collective)
{
    if (lagom_load_acquire(&recording) != NULL) {
        lagom_note_add(&(struct lagom_note){.kind = LAGOM_NOTE_RAN, .span = *collective});
    }
}
