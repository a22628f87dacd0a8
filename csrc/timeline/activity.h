/* SPDX-License-Identifier: Apache-2.0 */
/* activity.h - CUPTI's activity buffers: switched on and off, handed out and taken back.
 *
 * CUPTI asks for buffers and returns them on threads of the job or of its own; there we only move table entries under
 * the one lock of this library. Reading happens on our thread. A buffer that is not in our table belongs to another
 * profiler: it is neither read nor freed.
 */
#ifndef LAGOM_ACTIVITY_H
#define LAGOM_ACTIVITY_H

#include <stdbool.h>

#include "timeline/cupti_loader.h"

/* About 75 kernels: a buffer fills and returns quickly, and another profiler that takes over finds little in it. */
#define LAGOM_ACTIVITY_BUFFER_BYTES (16u << 10)
#define LAGOM_ACTIVITY_BUFFER_KERNELS 80u /* at most: CUPTI 12 writes 208 bytes for one, CUPTI 13 216 */
#define LAGOM_ACTIVITY_BUFFERS 512u /* 8 MiB if all are out; then CUPTI drops, and says how many */
#define LAGOM_ACTIVITY_PATIENCE_NS 2000000000u /* some steps through host memory or sockets */

struct lagom_activity_batch {
    uint8_t *records;
    size_t valid;
    uint32_t entry;
    uint32_t passed_over; /* earlier buffers that are still out, and are waited for no longer */
    bool late;            /* it was passed over itself */
};

/* NULL = it worked; else what CUPTI refused, in words. */
const char *lagom_activity_enable(const struct lagom_cupti *cupti);
void lagom_activity_disable(const struct lagom_cupti *cupti);

/* CUPTI stamps by the system's clock again, as it does by itself: for the tools that come after us. */
void lagom_activity_give_clock_back(const struct lagom_cupti *cupti);

/* Somebody else took the callbacks: what is out may never come back, is not waited for, and is not handed out again
 * until it does. */
void lagom_activity_abandon(void);

/* Whether CUPTI still stamps by our clock. Kineto registers its own whenever it prepares a trace, so one check finds
 * it; no other interface reports it. true if this CUPTI does not show which clock is registered. */
bool lagom_activity_clock_is_ours(const struct lagom_cupti *cupti);

/* The filled buffer that CUPTI asked for first; false = none waits, or an earlier one is still out: CUPTI returns a
 * buffer when its last kernel has ended, which is not the order of the launches. An earlier one is waited for as long as
 * LAGOM_ACTIVITY_PATIENCE_NS. Each one taken is given back. */
bool lagom_activity_take(struct lagom_activity_batch *batch, uint64_t now_ns);
void lagom_activity_give_back(const struct lagom_activity_batch *batch);

uint32_t lagom_activity_out(void);      /* buffers in CUPTI's hands, abandoned ones aside */
uint64_t lagom_activity_completed(void); /* buffers of ours that ever came back */
uint64_t lagom_activity_foreign(void);   /* buffers that came to us and were not ours */

/* Frees every buffer that is not out. */
void lagom_activity_close(void);

#endif
