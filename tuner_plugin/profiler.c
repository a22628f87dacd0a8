/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/profiler.h"

#include <stdio.h>
#include <string.h>

#include "protocol/lagom_atomic.h"
#include "tuner_plugin/call_clock.h"
#include "tuner_plugin/gpu_times.h"
#include "tuner_plugin/measured.h"
#include "tuner_plugin/comm_context.h"
#include "tuner_plugin/spans.h"
#include "tuner_plugin/capture_client.h"
#include "tuner_plugin/event_words.h"

#define PROFILED_PLACES 256u
#define WARP 32u

static struct lagom_profiled places[PROFILED_PLACES];
static uint32_t loaded_api;
static _Thread_local struct lagom_profiled *announced;
static uint64_t launch_bracket; /* its address is the handle of every kernel launch: they do not nest on a thread */

/* ---- Init and finalize ------------------------------------------------------------------------------------------ */

static struct lagom_profiled *take_place(void)
{
    for (uint32_t i = 0; i < PROFILED_PLACES; i++) {
        if (lagom_load_relaxed(&places[i].used) == 0 && lagom_compare_exchange32(&places[i].used, 0, 1)) {
            return &places[i];
        }
    }
    return NULL;
}

struct lagom_profiled *lagom_profiler_init(const struct lagom_profiler_init_info *info)
{
    struct lagom_profiled *profiled = take_place();
    lagom_store_relaxed(&loaded_api, info->api);
    announced = profiled;
    if (profiled == NULL) {
        return NULL;
    }
    profiled->api = info->api;
    profiled->rank = (uint32_t)info->rank;
    profiled->ranks = (uint32_t)info->ranks;
    profiled->nodes = (uint32_t)info->nodes;
    profiled->comm_id = info->comm_id;
    profiled->mask = lagom_event_mask_of(info->mask, info->api);
    lagom_store_release(&profiled->comm, NULL);
    snprintf(profiled->name, sizeof(profiled->name), "%s", info->name == NULL ? "" : info->name);
    return profiled;
}

void lagom_profiler_finalize(struct lagom_profiled *profiled)
{
    if (profiled != NULL) {
        lagom_store_release(&profiled->comm, NULL);
        lagom_store_release(&profiled->used, 0u); /* pairs with take_place */
    }
}

uint32_t lagom_profiler_api(void)
{
    return lagom_load_relaxed(&loaded_api);
}

struct lagom_profiled *lagom_profiler_announced(bool comm_id_known, uint64_t comm_id, uint32_t ranks, uint32_t nodes)
{
    struct lagom_profiled *profiled = announced;
    announced = NULL;
    bool same = profiled != NULL && profiled->ranks == ranks && profiled->nodes == nodes &&
                (!comm_id_known || profiled->comm_id == comm_id);
    return same ? profiled : NULL;
}

void lagom_profiler_link(struct lagom_profiled *profiled, struct lagom_comm_context *comm)
{
    if (profiled != NULL) {
        lagom_store_release(&profiled->comm, comm); /* pairs with the events' acquire */
        lagom_event_mask_tuned(profiled->mask, 1);
    }
}

void lagom_profiler_unlink(struct lagom_profiled *profiled, bool was_measuring)
{
    if (profiled == NULL) {
        return;
    }
    if (was_measuring) {
        lagom_event_mask_measured(profiled->mask, -1);
    }
    lagom_event_mask_tuned(profiled->mask, -1);
    lagom_store_release(&profiled->comm, NULL);
}

void lagom_profiler_measure(struct lagom_profiled *profiled, bool on)
{
    lagom_event_mask_measured(profiled->mask, on ? 1 : -1);
}

/* ---- Events ----------------------------------------------------------------------------------------------------- */

/* As getCollInfo counts: for AllGather and ReduceScatter, of all ranks. */
static uint64_t bytes_asked(const struct lagom_comm_context *comm, int function, const struct nccl_event_coll *coll)
{
    bool of_all_ranks = function == LAGOM_ALL_GATHER || function == LAGOM_REDUCE_SCATTER;
    uint64_t bytes = coll->count * lagom_type_bytes(coll->type);
    return of_all_ranks ? bytes * comm->ranks : bytes;
}

static struct lagom_measured describe(struct lagom_comm_context *comm, const struct nccl_event_coll *coll)
{
    int function = lagom_function_number(coll->function);
    uint64_t bytes = bytes_asked(comm, function, coll);
    uint64_t call = LAGOM_UNKNOWN_CALL, called_ns = 0;
    if (function >= 0 && bytes > 0) {
        call = lagom_launch_order_match(&comm->launches, (uint32_t)function, bytes, &called_ns);
    }
    const struct lagom_kernel_span span = {
        .call = call,
        .bytes = bytes,
        .slot = comm->slot_index,
        .channels = coll->channels,
        .threads = (uint16_t)(coll->warps * WARP),
        .kind = LAGOM_SPAN_COLLECTIVE,
        .function = (uint8_t)function,
        .algorithm = (int8_t)lagom_algorithm_number(coll->algorithm),
        .protocol = (int8_t)lagom_protocol_number(coll->protocol),
        .sequence = (uint32_t)coll->sequence,
        .untold = lagom_gpu_times_refuted(comm->slot_index),
    };
    return (struct lagom_measured){.span = span,
                                   .called_ns = comm->simulated_clock ? 0 : called_ns,
                                   .region = comm->region,
                                   .process = comm->process_index};
}

/* Launches come from several threads: not the context's own clock. */
static uint64_t now_for(const struct lagom_comm_context *comm)
{
    return comm->simulated_clock ? lagom_load_relaxed(&comm->process->simulated_now_ns) : lagom_monotonic_ns();
}

/* A collective is being launched: say at once what it really runs with, and wait for its channels' times. */
static void *coll_started(struct lagom_comm_context *comm, const struct nccl_event_coll *coll)
{
    struct lagom_measured of = describe(comm, coll);
    lagom_built_channels_saw(&comm->channels, of.span.algorithm, coll->channels);
    of.span.source = LAGOM_SPAN_NCCL_EVENT;
    of.span.start_ns = of.span.end_ns = now_for(comm);
    lagom_span_push(comm->region, comm->process_index, &of.span);
    lagom_capture_client_launched(&of.span);
    of.span.source = LAGOM_SPAN_NCCL_KERNEL;
    return coll->channels == 0 ? NULL : lagom_measured_begin(&of);
}

static void count_one(uint64_t *counter)
{
    lagom_fetch_add(counter, 1); /* send and receive may be launched by several threads */
}

static void note_capture(struct lagom_comm_context *comm, bool captured)
{
    if (captured) {
        lagom_store_relaxed(&comm->slot->capturing, (uint64_t)1);
    }
}

static void *handle_comm_event(struct lagom_comm_context *comm, uint64_t type, const union nccl_event_body *body)
{
    switch (type) {
    case NCCL_EVENT_COLL: return coll_started(comm, &body->coll);
    case NCCL_EVENT_P2P: /* from v5 on counted when called, not again when launched */
        if (comm->profiled->api < 5) {
            count_one(&comm->slot->untunable_p2p);
        }
        break;
    case NCCL_EVENT_P2P_API:
        count_one(&comm->slot->untunable_p2p);
        note_capture(comm, body->p2p_api.graph_captured);
        break;
    case NCCL_EVENT_COLL_API: note_capture(comm, body->coll_api.graph_captured); break;
    case NCCL_EVENT_GROUP_API: note_capture(comm, body->group_api.graph_captured); break;
    case NCCL_EVENT_CE_COLL: count_one(&comm->slot->untunable_copy_engine); break;
    default: break;
    }
    return NULL;
}

static void *channel_started(void *collective, uint64_t gpu_ns)
{
    lagom_gpu_times_arrived(lagom_measured_slot(collective), gpu_ns, lagom_monotonic_ns());
    return lagom_measured_channel_started(collective, gpu_ns);
}

/* The controller learns that NCCL's times of this communicator's kernels are not theirs. */
static void refute_times(const struct lagom_measured *of)
{
    struct lagom_slot *slot = &of->region->slots[of->span.slot];
    if (lagom_load_relaxed(&slot->process) == of->process) { /* the slot may be another process's by now */
        lagom_store_relaxed(&slot->times_refuted, (uint64_t)1);
    }
}

static void channel_stopped(void *channel, uint64_t gpu_ns)
{
    struct lagom_measured of;
    lagom_gpu_times_arrived(lagom_measured_slot(channel), gpu_ns, lagom_monotonic_ns());
    if (!lagom_measured_channel_stopped(channel, gpu_ns, &of)) {
        return;
    }
    if (lagom_gpu_times_hold(of.span.slot, of.span.start_ns, of.called_ns)) {
        lagom_capture_client_ran(&of.span);
        lagom_span_push(of.region, of.process, &of.span);
    } else if (lagom_gpu_times_refuted(of.span.slot)) {
        refute_times(&of);
    }
}

void *lagom_profiler_start(struct lagom_profiled *profiled, uint64_t type, void *parent,
                           const union nccl_event_body *body)
{
    if (type == NCCL_EVENT_KERNEL_CH) { /* late, on a proxy thread: the context may be somebody else's by now */
        return channel_started(parent, body->kernel_ch.gpu_ns);
    }
    struct lagom_comm_context *comm =
        profiled == NULL ? NULL : lagom_load_acquire(&profiled->comm); /* pairs with link */
    if (type == NCCL_EVENT_KERNEL_LAUNCH) { /* also of a communicator that is not ours: the order is everybody's */
        lagom_capture_client_launch_begins(comm == NULL ? LAGOM_UNKNOWN_RANK : comm->slot_index);
        return &launch_bracket;
    }
    return comm == NULL ? NULL : handle_comm_event(comm, type, body);
}

void lagom_profiler_symmetric(struct lagom_profiled *profiled)
{
    struct lagom_comm_context *comm =
        profiled == NULL ? NULL : lagom_load_acquire(&profiled->comm); /* pairs with link */
    if (comm != NULL) {
        count_one(&comm->slot->untunable_symmetric);
    }
}

void lagom_profiler_stop(const void *handle)
{
    if (handle == &launch_bracket) { /* a collective's kernel ends with its channels, and those say so by a state */
        lagom_capture_client_launch_ends();
    }
}

void lagom_profiler_state(void *handle, int state, const union nccl_event_state_args *args)
{
    if (handle != NULL && args != NULL && state == NCCL_STATE_KERNEL_CH_STOP) {
        channel_stopped(handle, args->kernel_ch.gpu_ns);
    }
}
