/* SPDX-License-Identifier: Apache-2.0 */
/* cupti_control.h - the state machine behind process.timeline_wanted: when to record, to yield to another tool, to try again.
 *
 * One step is a few microseconds and is taken every 5 ms by the thread of capture_thread.c.
 */
#ifndef LAGOM_CUPTI_CONTROL_H
#define LAGOM_CUPTI_CONTROL_H

#include "timeline/reader.h"

struct lagom_cupti_control {
    struct lagom_process *process;
    struct lagom_cupti cupti;
    struct lagom_reader reader;
    uint32_t state; /* enum lagom_timeline_state; a copy is in the process entry */
    bool tried_to_open;
    bool draining;             /* off, and the last buffers are still out */
    uint64_t since_ns;         /* of this state */
    uint64_t flushed_ns;
    uint64_t retry_ns;         /* yielded or refused: not before */
    bool taken;                /* somebody took CUPTI's callbacks or clock from us */
    uint64_t completed;        /* buffers that had come back when one last did */
    uint64_t notes;            /* launches noted by then */
    uint64_t heard_ns;         /* when that was */
};

void lagom_cupti_control_init(struct lagom_cupti_control *control, struct lagom_region *region, uint32_t process,
                              lagom_timeline_push push);

/* One step. */
void lagom_cupti_control_step(struct lagom_cupti_control *control);

/* Off for good, at once. */
void lagom_cupti_control_end(struct lagom_cupti_control *control);

#endif
