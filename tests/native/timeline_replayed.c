/* SPDX-License-Identifier: Apache-2.0 */
/* Windows as H200s gave them, through the join: on eight of them CUPTI took 0.45 s to be switched on, eight iterations. Before
 * NCCL's times were used, not one of its kernels could be joined; with notes lost, all were joined wrongly.
 * tests/data/README.md says what is in the files. */
#include "join_harness.h"

#define SLOT 3u

/* A line of the file: launched, ran (by the GPU's clock), or recorded. */
struct line {
    char kind;
    unsigned long long from_ns, to_ns, call;
    unsigned int function, channels;
};

static struct lagom_kernel_span span_of(const struct line *line)
{
    return (struct lagom_kernel_span){.call = line->call,
                                      .slot = SLOT,
                                      .function = (uint8_t)line->function,
                                      .channels = (uint16_t)line->channels,
                                      .kind = LAGOM_SPAN_COLLECTIVE};
}

static void launched(const struct line *line)
{
    lagom_join_note(&join, &(struct lagom_note){.kind = LAGOM_NOTE_LAUNCH,
                                                .thread = 1,
                                                .serial = ++serial,
                                                .begin_ns = line->from_ns,
                                                .end_ns = line->to_ns,
                                                .span = {.slot = SLOT, .call = UINT64_MAX}});
    lagom_join_note(&join, &(struct lagom_note){.kind = LAGOM_NOTE_CALL,
                                                .thread = 1,
                                                .begin_ns = line->to_ns,
                                                .end_ns = line->to_ns,
                                                .span = span_of(line)});
}

static void ran(const struct line *line)
{
    struct lagom_kernel_span span = span_of(line);
    span.start_ns = line->from_ns;
    span.end_ns = line->to_ns;
    lagom_join_note(&join, &(struct lagom_note){.kind = LAGOM_NOTE_RAN, .span = span});
}

/* Its stream says which call it really is. */
static void recorded(const struct line *line)
{
    struct lagom_nccl_kernel kernel = {.span = span_of(line), .correlation = ++correlation};
    kernel.span.start_ns = line->from_ns;
    kernel.span.end_ns = line->to_ns;
    kernel.span.call = UINT64_MAX;
    kernel.span.slot = LAGOM_UNKNOWN_RANK;
    kernel.span.stream = (uint32_t)line->call;
    deliver(kernel);
    lagom_join_settle(&join);
}

static uint32_t replay(const char *path, bool with_times)
{
    FILE *file = fopen(path, "r");
    CHECK(file != NULL);
    unsigned long long on_begin_ns, on_end_ns;
    CHECK(fscanf(file, "%llu %llu", &on_begin_ns, &on_end_ns) == 2);
    forget_everything();
    begin_between(on_begin_ns, on_end_ns);
    struct line line;
    while (fscanf(file, " %c %llu %llu %llu %u %u", &line.kind, &line.from_ns, &line.to_ns, &line.call, &line.function,
                  &line.channels) == 6) {
        if (line.kind == 'L') {
            launched(&line);
        } else if (line.kind == 'K') {
            recorded(&line);
        } else if (with_times) {
            ran(&line);
        }
    }
    lagom_join_finish(&join);
    fclose(file);
    uint32_t right = 0;
    for (uint32_t i = 0; i < out_count; i++) {
        right += out[i].call == out[i].stream;
        CHECK(!with_times || out[i].join != LAGOM_JOIN_CALL || out[i].call == out[i].stream);
    }
    return right;
}

static void each_kernel_finds_its_call(void)
{
    CHECK_EQUAL(replay("tests/data/first_window_h200x8_rank0.txt", true), 253);
    CHECK_EQUAL(out_count, 253);
}

/* The notes of two launches were lost: their kernels are joined with none, and no other goes wrong. */
static void notes_are_missing(void)
{
    CHECK_EQUAL(replay("tests/data/first_window_h200x8_rank5.txt", true), 246);
    CHECK_EQUAL(out_count, 248);
    CHECK_EQUAL(join.counts[LAGOM_JOIN_CALL], 246);
}

/* Nothing but equal calls, and switched on over several iterations; one note was lost. */
static void tensor_parallel(void)
{
    CHECK_EQUAL(replay("tests/data/window_tp_h200x1_rank1.txt", true), 263);
    CHECK_EQUAL(out_count, 264);
    CHECK_EQUAL(join.counts[LAGOM_JOIN_CALL], 263);
}

static void without_times(void)
{
    CHECK_EQUAL(replay("tests/data/first_window_h200x8_rank0.txt", false), 0);
}

int main(void)
{
    RUN(each_kernel_finds_its_call);
    RUN(notes_are_missing);
    RUN(tensor_parallel);
    RUN(without_times);
    return 0;
}
