/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/unreported.h"

#include <string.h>

/* Between two kernels of one communicator, next to each other among those joined. */
struct gap {
    const struct lagom_mark *from; /* NULL = none is known */
    const struct lagom_mark *to;
};

/* The communicators to whose calls a kernel may belong. */
struct candidates {
    uint32_t count; /* 0, 1, or several */
    uint32_t slot;
    bool open; /* the next kernel of one of them is not known yet */
    bool doubtful;
};

/* ---- What is known ---------------------------------------------------------------------------------------------- */

bool lagom_unreported_is(const struct lagom_unreported *unreported, const struct lagom_kernel_span *kernel)
{
    return !unreported->reported && kernel->kind == LAGOM_SPAN_COLLECTIVE && kernel->function == LAGOM_BROADCAST;
}

bool lagom_unreported_asked(struct lagom_unreported *unreported, const struct lagom_note *note)
{
    if (unreported->ask_count == LAGOM_UNREPORTED_ASKS) {
        return false;
    }
    unreported->asks[unreported->ask_count++] = (struct lagom_ask){.call = note->span.call,
                                                                   .bytes = note->span.bytes,
                                                                   .asked_ns = note->begin_ns,
                                                                   .slot = note->span.slot,
                                                                   .function = note->span.function};
    return true;
}

void lagom_unreported_joined(struct lagom_unreported *unreported, const struct lagom_mark *mark)
{
    if (unreported->mark_count == LAGOM_UNREPORTED_MARKS) { /* a gap that loses its beginning joins nothing */
        unreported->mark_count /= 2;
        memmove(unreported->marks, unreported->marks + unreported->mark_count,
                unreported->mark_count * sizeof(unreported->marks[0]));
    }
    unreported->marks[unreported->mark_count++] = *mark;
}

bool lagom_unreported_hold(struct lagom_unreported *unreported, const struct lagom_nccl_kernel *kernel)
{
    struct lagom_unreported_kernel *held = unreported->held;
    if (unreported->held_count == LAGOM_UNREPORTED_HELD) {
        return false;
    }
    uint32_t at = unreported->held_count++;
    while (at > 0 && lagom_launched_before(kernel->correlation, held[at - 1].kernel.correlation)) {
        held[at] = held[at - 1];
        at--;
    }
    held[at] = (struct lagom_unreported_kernel){.kernel = *kernel};
    return true;
}

void lagom_unreported_forget(struct lagom_unreported *unreported)
{
    unreported->ask_count = 0;
    unreported->mark_count = 0;
    for (uint32_t i = 0; i < unreported->held_count; i++) {
        struct lagom_unreported_kernel *held = &unreported->held[i];
        held->result = held->result == LAGOM_JOIN_NOT_TRIED ? LAGOM_JOIN_AMBIGUOUS : held->result;
    }
}

void lagom_unreported_start(struct lagom_unreported *unreported)
{
    unreported->ask_count = 0;
    unreported->mark_count = 0;
    unreported->held_count = 0;
}

/* ---- Where a kernel lies ---------------------------------------------------------------------------------------- */

/* The last one launched before. */
static const struct lagom_mark *mark_before(const struct lagom_unreported *unreported, uint32_t slot,
                                            uint32_t correlation)
{
    const struct lagom_mark *best = NULL;
    for (uint32_t i = 0; i < unreported->mark_count; i++) {
        const struct lagom_mark *mark = &unreported->marks[i];
        if (mark->slot == slot && lagom_launched_before(mark->correlation, correlation) &&
            (best == NULL || lagom_launched_before(best->correlation, mark->correlation))) {
            best = mark;
        }
    }
    return best;
}

/* The first one launched after; slot LAGOM_UNKNOWN_RANK = of any communicator. */
static const struct lagom_mark *mark_after(const struct lagom_unreported *unreported, uint32_t slot,
                                           uint32_t correlation)
{
    const struct lagom_mark *best = NULL;
    for (uint32_t i = 0; i < unreported->mark_count; i++) {
        const struct lagom_mark *mark = &unreported->marks[i];
        if ((mark->slot == slot || slot == LAGOM_UNKNOWN_RANK) &&
            lagom_launched_before(correlation, mark->correlation) &&
            (best == NULL || lagom_launched_before(mark->correlation, best->correlation))) {
            best = mark;
        }
    }
    return best;
}

static struct gap gap_around(const struct lagom_unreported *unreported, uint32_t slot, uint32_t correlation)
{
    return (struct gap){mark_before(unreported, slot, correlation), mark_after(unreported, slot, correlation)};
}

static bool in_gap(const struct gap *gap, uint64_t call)
{
    return (gap->from == NULL || call > gap->from->last_call) && (gap->to == NULL || call < gap->to->first_call);
}

/* The call came before the launch, and that before the next launch of anybody's, and before the kernel ran. */
static uint64_t asked_until(const struct lagom_unreported *unreported, const struct lagom_nccl_kernel *kernel)
{
    const struct lagom_mark *next = mark_after(unreported, LAGOM_UNKNOWN_RANK, kernel->correlation);
    return next != NULL && next->end_ns < kernel->launched_by_ns ? next->end_ns : kernel->launched_by_ns;
}

static struct candidates candidates_of(const struct lagom_unreported *unreported,
                                       const struct lagom_nccl_kernel *kernel)
{
    struct candidates found = {.slot = LAGOM_UNKNOWN_RANK};
    uint64_t until = asked_until(unreported, kernel);
    for (uint32_t i = 0; i < unreported->ask_count; i++) {
        const struct lagom_ask *ask = &unreported->asks[i];
        struct gap gap = gap_around(unreported, ask->slot, kernel->correlation);
        if (ask->asked_ns < until && in_gap(&gap, ask->call)) {
            found.count += found.count == 0 || ask->slot != found.slot;
            found.slot = ask->slot;
            found.open |= gap.to == NULL;
            found.doubtful |= ask->doubtful;
        }
    }
    return found;
}

/* ---- Questions and kernels of one gap --------------------------------------------------------------------------- */

/* Where the gap's end is not known, the calls must follow its beginning without another call in between. What was
 * asked after `until` belongs to kernels that were launched later, and not recorded any more. */
static uint32_t asks_in(struct lagom_unreported *unreported, uint32_t slot, const struct gap *gap, uint64_t until,
                        struct lagom_ask *asks[LAGOM_UNREPORTED_ASKS])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < unreported->ask_count; i++) {
        struct lagom_ask *ask = &unreported->asks[i];
        if (ask->slot != slot || !in_gap(gap, ask->call)) {
            continue;
        }
        if (gap->to != NULL || ask->call == gap->from->last_call + 1 + count) {
            asks[count++] = ask;
        } else if (ask->asked_ns < until) {
            return 0;
        }
    }
    return count;
}

/* All that may be this communicator's; UINT32_MAX = one of them may be another's too. */
static uint32_t kernels_in(struct lagom_unreported *unreported, uint32_t slot, const struct gap *gap,
                           struct lagom_unreported_kernel *kernels[LAGOM_UNREPORTED_HELD])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < unreported->held_count; i++) {
        struct lagom_unreported_kernel *held = &unreported->held[i];
        bool inside = gap->to == NULL || lagom_launched_before(held->kernel.correlation, gap->to->correlation);
        if (!inside || held->result != LAGOM_JOIN_NOT_TRIED) {
            continue;
        }
        struct candidates found = candidates_of(unreported, &held->kernel);
        if (found.count > 1) {
            return UINT32_MAX;
        }
        if (found.count == 1 && found.slot == slot) {
            kernels[count++] = held;
        }
    }
    return count;
}

static void join_with(struct lagom_unreported_kernel *held, const struct lagom_ask *ask)
{
    held->kernel.span.slot = ask->slot;
    held->kernel.span.call = ask->call;
    held->kernel.span.bytes = ask->bytes;
    held->kernel.span.function = ask->function;
    held->result = LAGOM_JOIN_CALL;
}

static void remove_ask(struct lagom_unreported *unreported, const struct lagom_ask *ask)
{
    uint32_t at = (uint32_t)(ask - unreported->asks);
    unreported->ask_count--;
    memmove(unreported->asks + at, unreported->asks + at + 1,
            (unreported->ask_count - at) * sizeof(unreported->asks[0]));
}

/* The first one held, and the others of its gap. false = they do not come out even. */
static bool join_gap(struct lagom_unreported *unreported, uint32_t slot)
{
    struct lagom_ask *asks[LAGOM_UNREPORTED_ASKS];
    struct lagom_unreported_kernel *kernels[LAGOM_UNREPORTED_HELD];
    struct gap gap = gap_around(unreported, slot, unreported->held[0].kernel.correlation);
    if (gap.from == NULL) {
        return false;
    }
    uint32_t count = asks_in(unreported, slot, &gap, asked_until(unreported, &unreported->held[0].kernel), asks);
    if (count == 0 || count != kernels_in(unreported, slot, &gap, kernels)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        join_with(kernels[i], asks[i]);
    }
    while (count > 0) { /* from the back: those in front stay where they are */
        remove_ask(unreported, asks[--count]);
    }
    return true;
}

/* It may have been any of these: so nor is it certain which of them another kernel is. */
static void doubt(struct lagom_unreported *unreported, const struct lagom_nccl_kernel *kernel)
{
    for (uint32_t i = 0; i < unreported->ask_count; i++) {
        struct gap gap = gap_around(unreported, unreported->asks[i].slot, kernel->correlation);
        unreported->asks[i].doubtful |= in_gap(&gap, unreported->asks[i].call);
    }
}

/* ---- One by one ------------------------------------------------------------------------------------------------- */

static enum lagom_join_result decide(struct lagom_unreported *unreported, bool last_chance)
{
    struct lagom_unreported_kernel *first = &unreported->held[0];
    if (first->result != LAGOM_JOIN_NOT_TRIED) {
        return first->result;
    }
    struct candidates found = candidates_of(unreported, &first->kernel);
    if (found.count == 0) {
        return LAGOM_JOIN_NO_LAUNCH;
    }
    if (found.open && !last_chance) {
        return LAGOM_JOIN_NOT_TRIED;
    }
    if (found.count == 1 && !found.doubtful && join_gap(unreported, found.slot)) {
        return LAGOM_JOIN_CALL;
    }
    doubt(unreported, &first->kernel);
    return LAGOM_JOIN_AMBIGUOUS;
}

bool lagom_unreported_take(struct lagom_unreported *unreported, struct lagom_nccl_kernel *kernel)
{
    if (unreported->held_count == 0) {
        return false;
    }
    *kernel = unreported->held[0].kernel;
    unreported->held_count--;
    memmove(unreported->held, unreported->held + 1, unreported->held_count * sizeof(unreported->held[0]));
    return true;
}

bool lagom_unreported_next(struct lagom_unreported *unreported, bool last_chance, struct lagom_nccl_kernel *kernel,
                           enum lagom_join_result *result)
{
    if (unreported->held_count == 0) {
        return false;
    }
    *result = decide(unreported, last_chance);
    return *result != LAGOM_JOIN_NOT_TRIED && lagom_unreported_take(unreported, kernel);
}

/* ---- Tidying up ------------------------------------------------------------------------------------------------- */

/* Its kernel came before one that nobody waits for any more: it was lost. */
static bool has_expired(const struct lagom_unreported *unreported, const struct lagom_ask *ask)
{
    for (uint32_t i = 0; i < unreported->mark_count; i++) {
        const struct lagom_mark *mark = &unreported->marks[i];
        bool awaited = unreported->held_count > 0 &&
                       !lagom_launched_before(mark->correlation, unreported->held[0].kernel.correlation);
        if (mark->slot == ask->slot && !awaited && ask->call < mark->last_call) {
            return true;
        }
    }
    return false;
}

/* No gap that anybody waits for, or will, begins or ends with it: a later one of its communicator stands in. */
static bool is_superseded(const struct lagom_unreported *unreported, const struct lagom_mark *mark)
{
    const struct lagom_mark *later = mark_after(unreported, mark->slot, mark->correlation);
    return later != NULL && (unreported->held_count == 0 ||
                             lagom_launched_before(later->correlation, unreported->held[0].kernel.correlation));
}

void lagom_unreported_tidy(struct lagom_unreported *unreported)
{
    for (uint32_t i = unreported->ask_count; i > 0; i--) {
        if (has_expired(unreported, &unreported->asks[i - 1])) {
            remove_ask(unreported, &unreported->asks[i - 1]);
        }
    }
    if (unreported->mark_count < LAGOM_UNREPORTED_MARKS / 2) { /* comparing each with all others is dear */
        return;
    }
    for (uint32_t i = unreported->mark_count; i > 0; i--) {
        if (is_superseded(unreported, &unreported->marks[i - 1])) {
            unreported->mark_count--;
            memmove(unreported->marks + i - 1, unreported->marks + i,
                    (unreported->mark_count - (i - 1)) * sizeof(unreported->marks[0]));
        }
    }
}
