/* watch.h - what is written down about a decided call, if somebody asked for it (communicator.capture). */
#ifndef LAGOM_WATCH_H
#define LAGOM_WATCH_H

#include "protocol/lagom_atomic.h"
#include "tuner_plugin/cost_table.h"
#include "tuner_plugin/decide.h"

void lagom_watch_call(struct lagom_comm_context *comm, uint32_t capture, const struct lagom_question *question,
                      const struct lagom_decision *decision, const struct lagom_pick *stock, uint8_t flags);

static inline void lagom_watch(struct lagom_comm_context *comm, const struct lagom_question *question,
                               const struct lagom_decision *decision, const struct lagom_pick *stock, uint8_t flags)
{
    uint32_t capture = lagom_load_relaxed(&comm->shared->capture); /* beside the word: one cache line */
    if (capture != 0 || comm->measuring) {
        lagom_watch_call(comm, capture, question, decision, stock, flags);
    }
}

#endif
