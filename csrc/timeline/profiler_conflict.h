/* SPDX-License-Identifier: Apache-2.0 */
/* profiler_conflict.h - which other tool profiles this process. CUPTI's Activity API has one user and does not say who. */
#ifndef LAGOM_PROFILER_CONFLICT_H
#define LAGOM_PROFILER_CONFLICT_H

#include <stdint.h>

/* The tool that profiles now, or keeps CUPTI for it, in words ("torch.profiler"); NULL = none is known. */
const char *lagom_profiler_conflict(void);

/* On a launching thread: whether torch profiles it. torch keeps that by thread and hands it on to its backward threads;
 * isProfilerEnabledInMainThread reports only profiles with CPU activities. */
void lagom_profiler_conflict_note_thread(void);

/* When a launching thread was last seen profiled (CLOCK_MONOTONIC); 0 = never. */
uint64_t lagom_profiler_conflict_last_seen_ns(void);

#endif
