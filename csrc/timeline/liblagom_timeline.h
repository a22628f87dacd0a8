/* SPDX-License-Identifier: Apache-2.0 */
/* liblagom_timeline.h - what the library of that name offers: the kernel timeline of this process. README.md says how it
 * behaves.
 *
 * One thread of ours watches process.timeline_wanted and does everything; the launching threads only leave notes.
 * Nothing here ever fails the job: what does not work ends as LAGOM_TIMELINE_ABSENT or _YIELDED with a remark.
 */
#ifndef LAGOM_TIMELINE_LIBRARY_H
#define LAGOM_TIMELINE_LIBRARY_H

#include <stdint.h>

#include "protocol/lagom_protocol.h"

#define LAGOM_TIMELINE_ENTRY __attribute__((visibility("default")))

/* How a span gets into the process's kernel ring: it has one producer, so whoever else pushes lends his function. */
typedef void (*lagom_timeline_push)(struct lagom_region *region, uint32_t process,
                                    const struct lagom_kernel_span *span);

/* Starts the thread. push NULL = nobody else pushes in this process. 0 = started; attached already counts as started. */
LAGOM_TIMELINE_ENTRY int lagom_timeline_attach(struct lagom_region *region, uint32_t process,
                                               lagom_timeline_push push);

/* Ends recording and the thread; returns when it is gone. The region may be unmapped then. */
LAGOM_TIMELINE_ENTRY void lagom_timeline_detach(void);

/* Notes of a launching thread: around the launch of one NCCL kernel, for each collective in it, or, where NCCL does not
 * report launches, when it asks the tuner; where it reports others, when it asks about one of those that it may not
 * (unreported.h). A load and a branch while nobody records. */
LAGOM_TIMELINE_ENTRY void lagom_timeline_launch_begins(uint32_t slot);
LAGOM_TIMELINE_ENTRY void lagom_timeline_launch_ends(void);
LAGOM_TIMELINE_ENTRY void lagom_timeline_launched(const struct lagom_kernel_span *collective);
LAGOM_TIMELINE_ENTRY void lagom_timeline_asked(const struct lagom_kernel_span *call);
LAGOM_TIMELINE_ENTRY void lagom_timeline_unreported(const struct lagom_kernel_span *call);

/* NCCL timed the kernel of a collective itself (KernelCh): call, slot, and when it ran by the GPU's clock. Any thread. */
LAGOM_TIMELINE_ENTRY void lagom_timeline_ran(const struct lagom_kernel_span *collective);

/* CUDA calls it in every process if CUDA_INJECTION64_PATH names this library. */
LAGOM_TIMELINE_ENTRY int InitializeInjection(void);

#endif
