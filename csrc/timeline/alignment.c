/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/alignment.h"

static struct lagom_launch *launch_at(const struct lagom_alignment_input *input, uint64_t number)
{
    return lagom_launched_at(input->launched, number);
}

static uint64_t waiting(const struct lagom_alignment_input *input)
{
    return lagom_launched_waiting(input->launched);
}

/* A launch is noted long before its kernel is delivered: each kernel held has its own. */
static bool all_fit(const struct lagom_alignment_input *input, uint64_t offset)
{
    if (offset + input->held_count > waiting(input)) {
        return false;
    }
    for (uint32_t i = 0; i < input->held_count; i++) {
        if (!lagom_launch_may_be(launch_at(input, input->launched->oldest + offset + i), &input->held[i])) {
            return false;
        }
    }
    return true;
}

uint64_t lagom_alignment_last(const struct lagom_alignment_input *input)
{
    if (!input->starting) {
        return input->search;
    }
    uint64_t last = 0, oldest = input->launched->oldest;
    while (last < waiting(input) && launch_at(input, oldest + last)->note.begin_ns < input->on_end_ns) {
        last++;
    }
    return last;
}

static struct lagom_alignment look_at(const struct lagom_alignment_input *input, uint64_t offset)
{
    struct lagom_timing timing = {.of = {{.pairs = 0}}};
    struct lagom_alignment alignment = {.verdict = all_fit(input, offset) ? LAGOM_TIMING_UNKNOWN : LAGOM_TIMING_UNLIKE,
                                        .by_clocks = true};
    for (uint32_t i = 0; i < input->held_count && alignment.verdict != LAGOM_TIMING_UNLIKE; i++) {
        const struct lagom_launch *launch = launch_at(input, input->launched->oldest + offset + i);
        const struct lagom_kernel_span *kernel = &input->held[i].span;
        lagom_launch_pair(launch, kernel->start_ns, kernel->end_ns, &timing);
        alignment.timed = launch->ran.end_ns != 0 ? i + 1 : alignment.timed;
        alignment.has_times |= lagom_launch_is_told(launch);
        alignment.by_clocks &= launch->ran.end_ns == 0 || kernel->start_ns == 0 ||
                               lagom_clocks_allow(input->clocks, launch->note.span.slot, kernel->start_ns,
                                                  kernel->end_ns, &launch->ran, input->tick_ns);
        alignment.verdict = lagom_timing_verdict(&timing, input->tick_ns);
    }
    alignment.pairs = lagom_timing_pairs(&timing);
    return alignment;
}

struct lagom_alignments lagom_alignments_find(const struct lagom_alignment_input *input, uint64_t last)
{
    struct lagom_alignments alignments = {.count = 0};
    for (uint64_t offset = 0; offset <= last && offset < waiting(input); offset++) {
        struct lagom_alignment alignment = look_at(input, offset);
        if (alignment.verdict != LAGOM_TIMING_UNLIKE && alignments.count++ == 0) {
            alignments.first = offset;
            alignments.there = alignment;
        }
    }
    return alignments;
}

bool lagom_alignment_is_certain(const struct lagom_alignment_input *input, const struct lagom_alignment *alignment,
                                bool no_more_to_come)
{
    if (input->doubtful) {
        return alignment->verdict == LAGOM_TIMING_ALIKE && alignment->by_clocks;
    }
    bool never_timed = input->tick_ns == 0 || (!alignment->has_times && input->held_count >= LAGOM_ALIGNMENT_KERNELS);
    bool not_timed = no_more_to_come && alignment->pairs < LAGOM_TIMING_PAIRS;
    return alignment->verdict == LAGOM_TIMING_ALIKE || never_timed || not_timed;
}
