/* SPDX-License-Identifier: Apache-2.0 */
/* call_recorder.h - what is recorded about a decided call, if requested (communicator.capture). */
#ifndef LAGOM_CALL_RECORDER_H
#define LAGOM_CALL_RECORDER_H

#include "protocol/lagom_atomic.h"
#include "tuner_plugin/comm_context.h"
#include "tuner_plugin/cost_table.h"
#include "tuner_plugin/nccl_abi.h"

void lagom_record_call(struct lagom_comm_context *comm, uint32_t capture, const struct lagom_call *call,
                       const struct lagom_decision *decision, const struct lagom_pick *stock, uint8_t flags);

static inline void lagom_record_call_if_wanted(struct lagom_comm_context *comm, const struct lagom_call *call,
                                               const struct lagom_decision *decision, const struct lagom_pick *stock,
                                               uint8_t flags)
{
    uint32_t capture = lagom_load_relaxed(&comm->shared->capture); /* beside the word: one cache line */
    if (capture != 0 || comm->measuring) {
        lagom_record_call(comm, capture, call, decision, stock, flags);
    }
}

#endif
