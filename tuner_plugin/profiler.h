/* SPDX-License-Identifier: Apache-2.0 */
/* profiler.h - the profiler plugin: names and ranks, effective channels and threads, GPU times, and what never reaches
 * the tuner. NCCL loads it only if NCCL_PROFILER_PLUGIN names this library; the tuner plugin works without it.
 *
 * NCCL calls the profiler's init before the tuner's, on the same thread, for the same communicator: a thread-local
 * variable passes on what only the profiler plugin gets (rank, name; on 2.27 even the communicator's id).
 */
#ifndef LAGOM_PROFILER_H
#define LAGOM_PROFILER_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/lagom_protocol.h"
#include "tuner_plugin/event_mask.h"
#include "tuner_plugin/nccl_abi.h"

struct lagom_comm_context;

/* One communicator as the profiler plugin sees it. From a fixed table, never freed: an event may come late. */
struct lagom_profiled {
    uint32_t used;
    uint32_t api; /* 4..7 */
    uint32_t rank;
    uint32_t ranks;
    uint32_t nodes;
    uint64_t comm_id;
    struct lagom_event_mask *mask;
    struct lagom_comm_context *comm; /* atomic; NULL before tuner init and after its finalize */
    char name[LAGOM_NAME_BYTES]; /* process-group name; empty = none */
};

/* NULL when the table is full: NCCL then sends this communicator's events with a NULL context. */
struct lagom_profiled *lagom_profiler_init(const struct lagom_profiler_init_info *info);
void lagom_profiler_finalize(struct lagom_profiled *profiled);

/* Version 4..7 of the profiler plugin as loaded; 0 = it is not. */
uint32_t lagom_profiler_api(void);

/* What profiler init on this thread left for the tuner init that follows it; NULL if there is none, or it is about
 * another communicator. Given out once. */
struct lagom_profiled *lagom_profiler_announced(bool comm_id_known, uint64_t comm_id, uint32_t ranks, uint32_t nodes);

/* Tuner init and finalize: events reach the communicator's context in between. */
void lagom_profiler_link(struct lagom_profiled *profiled, struct lagom_comm_context *comm);
void lagom_profiler_unlink(struct lagom_profiled *profiled, bool was_measuring);

/* Starts and stops the timing of collectives called from now on. */
void lagom_profiler_measure(struct lagom_profiled *profiled, bool on);

/* Events, whatever their version. Handles may be NULL. */
void *lagom_profiler_start(struct lagom_profiled *profiled, uint64_t type, void *parent,
                           const union nccl_event_body *body);
void lagom_profiler_symmetric(struct lagom_profiled *profiled); /* v7: a collective by symmetric-memory kernels */
void lagom_profiler_stop(const void *handle);
void lagom_profiler_state(void *handle, int state, const union nccl_event_state_args *args);

#endif
