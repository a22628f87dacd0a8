/* SPDX-License-Identifier: Apache-2.0 */
/* reader.h - from CUPTI's buffers to spans in the ring: reads, names, joins, pushes. Our thread only. */
#ifndef LAGOM_READER_H
#define LAGOM_READER_H

#include "timeline/activity.h"
#include "timeline/join.h"
#include "timeline/kernel_name.h"
#include "timeline/liblagom_timeline.h"

#define LAGOM_EXTERNAL_IDS 1024u

struct lagom_reader {
    const struct lagom_cupti *cupti;
    struct lagom_region *region;
    uint32_t process;
    lagom_timeline_push push;
    struct lagom_activity_batch batch; /* being read; records NULL = none */
    void *record;                      /* the last one read in it */
    uint64_t full_since_ns;            /* the ring is full and nobody empties it; 0 = it is not */
    uint64_t notes_lost;
    struct lagom_join join;
    struct lagom_name_cache names;
    struct lagom_external_id {
        uint32_t correlation;
        uint64_t id;
    } external[LAGOM_EXTERNAL_IDS];
};

/* A window begins: CUPTI was switched on between the two times. */
void lagom_reader_start(struct lagom_reader *reader, uint64_t on_begin_ns, uint64_t on_end_ns);

/* Reads what there is, as far as the ring has room. */
void lagom_reader_run(struct lagom_reader *reader);

/* Whether everything that came back has been read. */
bool lagom_reader_is_done(const struct lagom_reader *reader);

/* A window ends, with everything read, or for good. */
void lagom_reader_finish(struct lagom_reader *reader);

/* A window is given up: what came back is forgotten. */
void lagom_reader_drop(struct lagom_reader *reader);

#endif
