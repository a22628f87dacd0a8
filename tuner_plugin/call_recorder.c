/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/call_recorder.h"

#include "shm/ring.h"
#include "tuner_plugin/profiler.h"
#include "tuner_plugin/capture_client.h"

static uint64_t now_for(struct lagom_comm_context *comm)
{
    return comm->simulated_clock ? lagom_load_relaxed(&comm->process->simulated_now_ns)
                                 : lagom_call_clock_now(&comm->clock);
}

static uint8_t all_flags(const struct lagom_call *call, const struct lagom_decision *decision, uint8_t flags)
{
    flags |= decision->point.in_program ? LAGOM_CALL_PROGRAM : 0;
    flags |= decision->choice.candidate ? LAGOM_CALL_CANDIDATE : 0;
    flags |= decision->point.transparent ? LAGOM_CALL_TRANSPARENT : 0;
    flags |= call->registered ? LAGOM_CALL_REGISTERED : 0;
    return flags;
}

static void push_record(struct lagom_comm_context *comm, const struct lagom_call *call,
                        const struct lagom_decision *decision, const struct lagom_pick *stock, uint8_t flags)
{
    const struct lagom_call_record record = {
        .call = decision->call,
        .time_ns = now_for(comm),
        .bytes = call->bytes,
        .epoch = decision->epoch,
        .stock_us = stock->microseconds,
        .function = (uint8_t)call->function,
        .stock_algorithm = stock->algorithm,
        .stock_protocol = stock->protocol,
        .flags = all_flags(call, decision, flags),
        .chosen = decision->choice.config,
        .position = decision->point.position,
        .iteration = decision->point.iteration,
        .site = (uint16_t)decision->point.site,
        .pipe_ops = (uint16_t)call->pipe_ops,
    };
    lagom_call_ring_push(comm->region, comm->slot_index, &record);
}

/* NCCL reports no Broadcast to a profiler (seen in 2.28.9 and 2.30.7: no COLL event, no bracket around the launch). */
static bool is_unreported(const struct lagom_comm_context *comm, const struct lagom_call *call)
{
    bool captured = lagom_load_relaxed(&comm->slot->capturing) != 0; /* into a graph: nothing is launched now */
    return call->function == LAGOM_BROADCAST && !captured;
}

/* If nothing reports the launch, the tuner call just before it is noted: every call, without the profiler plugin. */
static void note_asked(const struct lagom_comm_context *comm, const struct lagom_call *call,
                       const struct lagom_decision *decision)
{
    const struct lagom_kernel_span span = {.call = decision->call,
                                           .bytes = call->bytes,
                                           .slot = comm->slot_index,
                                           .function = (uint8_t)call->function,
                                           .algorithm = LAGOM_LEAVE,
                                           .protocol = LAGOM_LEAVE};
    if (comm->profiled == NULL) {
        lagom_capture_client_asked(&span);
    } else {
        lagom_capture_client_unreported(&span);
    }
}

/* A full ring means that nobody reads it: a controller that died in a measuring window must not leave the job measured
 * for good. It goes on when there is room again. */
static bool somebody_listens(const struct lagom_process *process)
{
    uint64_t waiting = lagom_load_relaxed(&process->kernel_head) - lagom_load_relaxed(&process->kernel_tail);
    return waiting < LAGOM_KERNEL_RING_CAPACITY;
}

/* Whether the next call is to be measured. NCCL reads the event mask when a collective is called, before it asks us
 * about it: hence one call ahead. Never while graphs are captured: a measured graph carries a host node at every
 * replay. */
static bool measure_next(const struct lagom_comm_context *comm, uint32_t capture)
{
    if (comm->profiled == NULL || lagom_load_relaxed(&comm->slot->capturing) != 0 || !somebody_listens(comm->process)) {
        return false;
    }
    if ((capture & LAGOM_CAPTURE_KERNELS) != 0) {
        return true;
    }
    const struct lagom_agreement *agreement = &comm->agreement;
    bool iteration_next = agreement->active && agreement->cursor.armed && agreement->cursor.position == 0;
    return (capture & LAGOM_CAPTURE_ITERATION) != 0 && iteration_next;
}

void lagom_record_call(struct lagom_comm_context *comm, uint32_t capture, const struct lagom_call *call,
                                const struct lagom_decision *decision, const struct lagom_pick *stock, uint8_t flags)
{
    if ((capture & LAGOM_CAPTURE_CALLS) != 0) {
        push_record(comm, call, decision, stock, flags);
    }
    if (comm->profiled == NULL || is_unreported(comm, call)) {
        note_asked(comm, call, decision);
    }
    if (comm->measuring) { /* since the call before: this one was sampled */
        lagom_launch_order_ask(&comm->launches, decision->call, (uint32_t)call->function, call->bytes, now_for(comm));
    }
    bool next = measure_next(comm, capture);
    if (next != comm->measuring) {
        comm->measuring = next;
        lagom_profiler_measure(comm->profiled, next);
    }
}
