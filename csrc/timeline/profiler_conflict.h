/* profiler_conflict.h - who else profiles this process. CUPTI's Activity API is one for all, and tells nobody. */
#ifndef LAGOM_PROFILER_CONFLICT_H
#define LAGOM_PROFILER_CONFLICT_H

#include <stdint.h>

/* Somebody who profiles right now or holds the process for it, in words ("torch.profiler"); NULL = nobody is known. */
const char *lagom_profiler_conflict(void);

/* On a launching thread: whether torch profiles it. torch keeps that by thread and hands it on to its backward threads;
 * isProfilerEnabledInMainThread tells of profiles with CPU activities alone. */
void lagom_profiler_conflict_note_thread(void);

/* When a launching thread was last seen profiled (CLOCK_MONOTONIC); 0 = never. */
uint64_t lagom_profiler_conflict_last_seen_ns(void);

#endif
