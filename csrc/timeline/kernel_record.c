/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/kernel_record.h"

#define CLOCK_SLACK_NS 1000000000u /* CUPTI interpolates: a stamp may lie a little ahead */

static uint16_t cut16(int64_t value)
{
    return value < 0 ? 0 : value > UINT16_MAX ? UINT16_MAX : (uint16_t)value;
}

static int64_t volume(const int32_t size[3])
{
    int64_t volume = 1;
    for (int i = 0; i < 3; i++) {
        volume *= size[i] > 0 ? size[i] : 1;
        volume = volume > UINT32_MAX ? UINT32_MAX : volume;
    }
    return volume;
}

/* Sets the span's times, 0 where the record's cannot be used. */
static bool timed(struct lagom_kernel_span *span, uint64_t start, uint64_t end, uint64_t now_ns)
{
    bool usable = start != 0 && end >= start && end <= now_ns + CLOCK_SLACK_NS;
    span->start_ns = usable ? start : 0;
    span->end_ns = usable ? end : 0;
    return usable;
}

bool lagom_kernel_record_read(const struct cupti_kernel *record, const struct lagom_known_name *name, uint64_t now_ns,
                              struct lagom_kernel_span *span)
{
    *span = (struct lagom_kernel_span){
        .call = UINT64_MAX,
        .slot = LAGOM_UNKNOWN_RANK,
        .stream = record->stream,
        .name = name->index,
        .channels = cut16(record->grid[0]),
        .threads = cut16(volume(record->block)),
        .blocks = (uint32_t)volume(record->grid),
        .source = LAGOM_SPAN_CUPTI,
        .kind = name->class.kind,
        .function = name->class.function,
        .algorithm = LAGOM_LEAVE,
        .protocol = LAGOM_LEAVE,
    };
    return timed(span, record->start, record->end, now_ns);
}

bool lagom_peer_copy_read(const struct cupti_peer_copy *record, uint32_t name, uint64_t now_ns,
                          struct lagom_kernel_span *span)
{
    *span = (struct lagom_kernel_span){
        .call = UINT64_MAX,
        .bytes = record->bytes,
        .slot = LAGOM_UNKNOWN_RANK,
        .stream = record->stream,
        .name = name,
        .source = LAGOM_SPAN_CUPTI,
        .kind = record->source == record->destination ? LAGOM_SPAN_OTHER : LAGOM_SPAN_P2P,
        .function = LAGOM_NO_FUNCTION,
        .algorithm = LAGOM_LEAVE,
        .protocol = LAGOM_LEAVE,
    };
    return timed(span, record->start, record->end, now_ns);
}
