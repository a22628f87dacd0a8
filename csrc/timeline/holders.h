/* holders.h - who else profiles this process. CUPTI's Activity API is one for all, and tells nobody. */
#ifndef LAGOM_HOLDERS_H
#define LAGOM_HOLDERS_H

#include <stdint.h>

/* Somebody who profiles right now or holds the process for it, in words ("torch.profiler"); NULL = nobody is known. */
const char *lagom_profiling_holder(void);

/* On a launching thread: whether torch profiles it. torch keeps that by thread and hands it on to its backward threads;
 * isProfilerEnabledInMainThread tells of profiles with CPU activities alone. */
void lagom_profiling_note_thread(void);

/* When a launching thread was last seen profiled (CLOCK_MONOTONIC); 0 = never. */
uint64_t lagom_profiling_last_seen_ns(void);

#endif
