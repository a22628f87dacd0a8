/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/reader.h"

#include <string.h>

#include "protocol/lagom_atomic.h"
#include "timeline/clock.h"
#include "timeline/kernel_record.h"

#define RING_SPARE 640u               /* what the join may let go at once, and NCCL's own events */
#define BATCH_RECORDS 2048u           /* a turn: then the thread looks around again */
#define NOBODY_READS_NS 1000000000u   /* the ring stays full: the controller is gone */

static struct lagom_process *process_of(const struct lagom_reader *reader)
{
    return &reader->region->processes[reader->process];
}

static void count(uint64_t *counter, uint64_t more)
{
    if (more != 0) {
        lagom_fetch_add(counter, more);
    }
}

/* ---- Into the ring ---------------------------------------------------------------------------------------------- */

static void emit(void *context, const struct lagom_kernel_span *span)
{
    struct lagom_reader *reader = context;
    if (span->end_ns == 0) {
        return; /* it had no times, and was counted */
    }
    reader->push(reader->region, reader->process, span);
}

static bool ring_is_full(const struct lagom_reader *reader)
{
    const struct lagom_process *process = process_of(reader);
    uint64_t used = lagom_load_relaxed(&process->kernel_head) - lagom_load_acquire(&process->kernel_tail);
    return used + RING_SPARE > LAGOM_KERNEL_RING_CAPACITY;
}

/* Wait for room, but not for ever: after a while spans are pushed all the same, and the ring counts what it drops. */
static bool must_wait(struct lagom_reader *reader)
{
    if (!ring_is_full(reader)) {
        reader->full_since_ns = 0;
        return false;
    }
    uint64_t now = lagom_now_ns();
    reader->full_since_ns = reader->full_since_ns == 0 ? now : reader->full_since_ns;
    return lagom_elapsed_ns(now, reader->full_since_ns) < NOBODY_READS_NS;
}

/* ---- One record ------------------------------------------------------------------------------------------------- */

static struct lagom_external_id *external_of(struct lagom_reader *reader, uint32_t correlation)
{
    return &reader->external[correlation & (LAGOM_EXTERNAL_IDS - 1)];
}

static void read_external(struct lagom_reader *reader, const struct cupti_external *record)
{
    if (record->external_kind == CUPTI_EXTERNAL_CUSTOM2) {
        *external_of(reader, record->correlation) = (struct lagom_external_id){record->correlation, record->id};
    }
}

static void join(struct lagom_reader *reader, const struct lagom_nccl_kernel *kernel)
{
    const struct lagom_external_id *external = external_of(reader, kernel->correlation);
    if (external->id != 0 && external->correlation == kernel->correlation && !kernel->from_graph) {
        lagom_join_exact(&reader->join, kernel, external->id);
    } else {
        lagom_join_kernel(&reader->join, kernel);
    }
}

static void read_kernel(struct lagom_reader *reader, const struct cupti_kernel *record)
{
    struct lagom_nccl_kernel kernel = {.correlation = record->correlation, .from_graph = record->graph_node != 0};
    struct lagom_known_name name = lagom_kernel_name_look_up(&reader->names, reader->region, record->name);
    count(&process_of(reader)->timeline_records, 1);
    bool usable = lagom_kernel_record_read(record, &name, lagom_now_ns(), &kernel.span);
    count(&process_of(reader)->timeline_lost, !usable);
    if (usable && kernel.span.start_ns < reader->join.launched.since_ns) {
        return; /* of a window that was given up, in a buffer that came back late */
    }
    if (kernel.span.kind == LAGOM_SPAN_COLLECTIVE || kernel.span.kind == LAGOM_SPAN_P2P) {
        join(reader, &kernel); /* also one without times: it keeps the others in step */
    } else if (usable) {
        emit(reader, &kernel.span);
    }
}

/* As Kineto calls them: lagom/timeline/communication_kernels.py knows the name of the first. */
#define BETWEEN_GPUS "Memcpy PtoP (Device -> Device)"
#define ON_ONE_GPU "Memcpy DtoD (Device -> Device)"

static void read_peer_copy(struct lagom_reader *reader, const struct cupti_peer_copy *record)
{
    struct lagom_kernel_span span;
    const char *copy = record->source == record->destination ? ON_ONE_GPU : BETWEEN_GPUS;
    struct lagom_known_name name = lagom_kernel_name_look_up(&reader->names, reader->region, copy);
    count(&process_of(reader)->timeline_records, 1);
    bool usable = lagom_peer_copy_read(record, name.index, lagom_now_ns(), &span);
    count(&process_of(reader)->timeline_lost, !usable);
    if (usable && span.start_ns >= reader->join.launched.since_ns) { /* else of a window that was given up */
        emit(reader, &span);
    }
}

static void read_record(struct lagom_reader *reader, const void *record)
{
    uint32_t kind;
    memcpy(&kind, record, sizeof(kind));
    if (kind == CUPTI_KIND_CONCURRENT_KERNEL) {
        read_kernel(reader, record);
    } else if (kind == CUPTI_KIND_PEER_COPY) {
        read_peer_copy(reader, record);
    } else if (kind == CUPTI_KIND_EXTERNAL_CORRELATION) {
        read_external(reader, record);
    }
}

/* ---- Buffers ---------------------------------------------------------------------------------------------------- */

static void close_batch(struct lagom_reader *reader)
{
    size_t dropped = 0;
    if (reader->cupti->dropped(NULL, 0, &dropped) == CUPTI_RESULT_SUCCESS && dropped > 0) {
        count(&process_of(reader)->timeline_lost, dropped);
        lagom_join_lost(&reader->join, dropped);
    }
    lagom_activity_give_back(&reader->batch);
    reader->batch.records = NULL;
    reader->record = NULL;
    lagom_join_settle(&reader->join);
}

static bool have_batch(struct lagom_reader *reader)
{
    if (reader->batch.records != NULL) {
        return true;
    }
    if (!lagom_activity_take(&reader->batch, lagom_now_ns())) {
        return false;
    }
    if (reader->batch.late || reader->batch.passed_over > 0) { /* what comes now does not follow what came before */
        lagom_join_lost(&reader->join, (uint64_t)reader->batch.passed_over * LAGOM_ACTIVITY_BUFFER_KERNELS);
    }
    return true;
}

static bool next_record(struct lagom_reader *reader)
{
    return reader->cupti->next_record(reader->batch.records, reader->batch.valid, &reader->record) ==
           CUPTI_RESULT_SUCCESS;
}

static void take_notes(struct lagom_reader *reader)
{
    struct lagom_note note;
    uint64_t newest = reader->join.launched.newest;
    while (lagom_note_take(&note)) {
        lagom_join_note(&reader->join, &note);
    }
    uint64_t lost = lagom_notes_lost();
    if (lost != reader->notes_lost) {
        lagom_join_notes_lost(&reader->join, newest);
        reader->notes_lost = lost;
    }
}

void lagom_reader_run(struct lagom_reader *reader)
{
    take_notes(reader);
    for (uint32_t i = 0; i < BATCH_RECORDS && !must_wait(reader) && have_batch(reader); i++) {
        if (next_record(reader)) {
            read_record(reader, reader->record);
        } else {
            close_batch(reader);
        }
    }
    if (reader->batch.records == NULL) { /* in the middle of one, kernels of earlier launches may still come */
        lagom_join_settle(&reader->join);
    }
}

bool lagom_reader_is_done(const struct lagom_reader *reader)
{
    return reader->batch.records == NULL;
}

/* ---- Windows ---------------------------------------------------------------------------------------------------- */

void lagom_reader_start(struct lagom_reader *reader, uint64_t on_begin_ns, uint64_t on_end_ns)
{
    reader->join.emit = emit;
    reader->join.context = reader;
    memset(reader->external, 0, sizeof(reader->external));
    lagom_join_start(&reader->join, on_begin_ns, on_end_ns);
}

void lagom_reader_finish(struct lagom_reader *reader)
{
    take_notes(reader);
    lagom_join_finish(&reader->join);
}

void lagom_reader_drop(struct lagom_reader *reader)
{
    struct lagom_note note;
    if (reader->batch.records != NULL) {
        lagom_activity_give_back(&reader->batch);
        reader->batch.records = NULL;
        reader->record = NULL;
    }
    while (lagom_activity_take(&reader->batch, UINT64_MAX)) {
        lagom_activity_give_back(&reader->batch);
        reader->batch.records = NULL;
    }
    while (lagom_note_take(&note)) {
    }
    lagom_join_drop(&reader->join);
}
