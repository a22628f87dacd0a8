/* SPDX-License-Identifier: Apache-2.0 */
/* measured.h - collectives whose kernels are being timed, from their launch until their last channel has stopped.
 *
 * A KERNEL_CH event carries GPU time (globaltimer) for one channel, and arrives late, on a proxy thread: a kernel is
 * the smallest start and the largest stop over its channels. Entries come from a fixed pool; handles name an entry and
 * its generation, never memory, so an event that comes too late, or twice, or for a communicator that is gone, finds
 * nothing instead of something else. An entry whose events never come (an aborted communicator) is reused later.
 */
#ifndef LAGOM_MEASURED_H
#define LAGOM_MEASURED_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/lagom_protocol.h"

#define LAGOM_MEASURED_ENTRIES 1024u /* the host runs a few iterations ahead of the GPU */

/* A launched collective, and in the end its kernel. */
struct lagom_measured {
    struct lagom_kernel_span span;
    uint64_t called_ns; /* CLOCK_MONOTONIC, before it was launched; 0 = not known */
    struct lagom_region *region; /* where the span goes; mapped for good, whatever becomes of the communicator */
    uint32_t process;            /* this one's entry there */
};

/* For a launched collective with span.channels channels. NULL when no entry is free. `of` is what will be pushed, less
 * its times. */
void *lagom_measured_begin(const struct lagom_measured *of);

/* A channel of that collective started. The handle for its stop; NULL if the collective is not known any more. */
void *lagom_measured_channel_started(void *collective, uint64_t gpu_ns);

/* A channel stopped. true when it was the last one: *of is complete, and the entry is free again. */
bool lagom_measured_channel_stopped(void *channel, uint64_t gpu_ns, struct lagom_measured *of);

/* The communicator's slot of such a handle; UINT32_MAX if its collective is not known any more. */
uint32_t lagom_measured_slot(const void *handle);

#endif
