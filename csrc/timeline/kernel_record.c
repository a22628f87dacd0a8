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

static bool timed(const struct cupti_kernel *record, uint64_t now_ns)
{
    return record->start != 0 && record->end >= record->start && record->end <= now_ns + CLOCK_SLACK_NS;
}

bool lagom_kernel_record_read(const struct cupti_kernel *record, const struct lagom_known_name *name, uint64_t now_ns,
                              struct lagom_kernel_span *span)
{
    *span = (struct lagom_kernel_span){
        .start_ns = record->start,
        .end_ns = record->end,
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
    if (!timed(record, now_ns)) {
        span->start_ns = span->end_ns = 0;
        return false;
    }
    return true;
}
