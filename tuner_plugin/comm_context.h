/* SPDX-License-Identifier: Apache-2.0 */
/* comm_context.h - this process's context of one communicator: what NCCL gives back to us with every call.
 *
 * Made at tuner init, freed at finalize; about 70 KiB. NCCL uses a communicator from one thread at a time, so nothing
 * here is locked. What other threads may use meanwhile (the profiler plugin's events) is atomic.
 */
#ifndef LAGOM_COMM_CONTEXT_H
#define LAGOM_COMM_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "agreement/agreement.h"
#include "agreement/replay.h"
#include "protocol/lagom_protocol.h"
#include "tuner_plugin/built_channels.h"
#include "tuner_plugin/chunk.h"
#include "tuner_plugin/call_clock.h"
#include "tuner_plugin/launch_order.h"
#include "tuner_plugin/threads.h"

struct lagom_profiled;

struct lagom_comm_context {
    struct lagom_region *region; /* first, and never NULL, unlike in a passthrough context (headroom.h) */
    struct lagom_communicator *shared;
    struct lagom_slot *slot;
    struct lagom_process *process;
    uint32_t slot_index;
    uint32_t process_index;
    uint32_t ranks;
    uint32_t nodes;
    bool chunk_possible; /* tuner v6 asks for chunk sizes */
    bool simulated_clock;
    bool captures_known;             /* the profiler plugin (v5) says which calls are captured into a graph */
    bool measuring;                  /* this communicator's want of COLL and KERNEL_CH events is counted in the mask */
    struct lagom_profiled *profiled; /* its profiler plugin; NULL = not loaded */
    struct lagom_call_clock clock;
    struct lagom_threads threads;
    struct lagom_built_channels channels;
    struct lagom_chunk_list chunks;
    struct lagom_launch_order launches;
    struct lagom_replay replay; /* OFF unless a saved config is replayed */
    struct lagom_agreement agreement;
};

#endif
