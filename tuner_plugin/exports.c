/* SPDX-License-Identifier: Apache-2.0 */
/* exports.c - the nine tables NCCL looks up, and nothing else. Each adapter only translates its version's arguments. */
#include <stdlib.h>

#include "tuner_plugin/chunk.h"
#include "tuner_plugin/decide.h"
#include "tuner_plugin/headroom.h"
#include "tuner_plugin/nccl_abi.h"
#include "tuner_plugin/plugin.h"
#include "tuner_plugin/profiler.h"
#include "tuner_plugin/static_rules.h"

#define EXPORT __attribute__((visibility("default")))
#define NAME "lagom"

static bool inert(void)
{
    return __builtin_expect(__atomic_load_n(&lagom_plugin_inert, __ATOMIC_RELAXED), false);
}

/* ---- Tuner ------------------------------------------------------------------------------------------------------ */

/* The arguments of every version from 2.22 on; 2.22 and 2.23 do not pass `registered`. */
static inline struct lagom_call call_of(int function, size_t bytes, int pipe_ops, float **costs, int algorithms,
                                        int protocols, int registered, int *channels)
{
    return (struct lagom_call){.function = function,
                               .bytes = bytes,
                               .pipe_ops = pipe_ops,
                               .costs = costs,
                               .algorithms = algorithms,
                               .protocols = protocols,
                               .registered = registered,
                               .channels = channels};
}

static int get_coll_info(void *context, int function, size_t bytes, int pipe_ops, float **costs, int algorithms,
                         int protocols, int registered, int *channels)
{
    if (context != NULL && !inert()) {
        const struct lagom_call call =
            call_of(function, bytes, pipe_ops, costs, algorithms, protocols, registered, channels);
        if (__builtin_expect(lagom_is_passthrough(context), false)) {
            lagom_passthrough_decide(context, &call);
        } else {
            lagom_decide(context, &call);
        }
    }
    return NCCL_SUCCESS;
}

static int get_chunk_size(void *context, int function, size_t bytes, int algorithm, int protocol, int channels,
                          size_t *chunk)
{
    (void)bytes; /* one channel's share: see chunk.h */
    (void)channels;
    struct lagom_comm_context *comm = context;
    if (comm != NULL && chunk != NULL && !inert() && !lagom_is_passthrough(comm)) {
        lagom_chunk_list_apply(&comm->chunks, function, algorithm, protocol, chunk);
        if (comm->measuring) {
            lagom_launch_order_launching(&comm->launches);
        }
    }
    return NCCL_SUCCESS;
}

static int leave(void *context)
{
    lagom_plugin_leave(context);
    return NCCL_SUCCESS;
}

/* 2.21 .. 2.27: no communicator id. */
static int init_without_id(size_t ranks, size_t nodes, nccl_log_function log, void **context, uint32_t api,
                           const void *return_address)
{
    const struct lagom_init_info info = {
        .context_place = context, .ranks = (uint32_t)ranks, .nodes = (uint32_t)nodes, .tuner_api = api};
    lagom_plugin_enter(&info, log, return_address);
    return NCCL_SUCCESS;
}

/* 2.21. */
static int init_v2(size_t ranks, size_t nodes, nccl_log_function log, void **context)
{
    return init_without_id(ranks, nodes, log, context, 2, __builtin_return_address(0));
}

/* 2.22, 2.23. */
static int init_v3(size_t ranks, size_t nodes, nccl_log_function log, void **context)
{
    return init_without_id(ranks, nodes, log, context, 3, __builtin_return_address(0));
}

/* 2.24 .. 2.27. */
static int init_v4(size_t ranks, size_t nodes, nccl_log_function log, void **context)
{
    return init_without_id(ranks, nodes, log, context, 4, __builtin_return_address(0));
}

/* No cost table: what is left untouched is NCCL's to choose. */
static int get_coll_info_v2(void *context, int function, size_t bytes, int coll_net, int nvls, int pipe_ops,
                            int *algorithm, int *protocol, int *channels)
{
    (void)nvls;
    (void)pipe_ops;
    if (context != NULL && !inert() && lagom_is_static_comm(context)) {
        lagom_static_comm_decide_v2(context, function, bytes, coll_net != 0, algorithm, protocol, channels);
    }
    return NCCL_SUCCESS;
}

/* Where NCCL gives no communicator id, rules apply by message size. */
static int get_coll_info_v4(void *context, int function, size_t bytes, int pipe_ops, float **costs, int algorithms,
                            int protocols, int registered, int *channels)
{
    if (context == NULL || inert() || !lagom_is_static_comm(context)) {
        return get_coll_info(context, function, bytes, pipe_ops, costs, algorithms, protocols, registered, channels);
    }
    const struct lagom_call call =
        call_of(function, bytes, pipe_ops, costs, algorithms, protocols, registered, channels);
    lagom_static_comm_decide(context, &call);
    return NCCL_SUCCESS;
}

static int get_coll_info_v3(void *context, int function, size_t bytes, int pipe_ops, float **costs, int algorithms,
                            int protocols, int *channels)
{
    return get_coll_info_v4(context, function, bytes, pipe_ops, costs, algorithms, protocols, 0, channels);
}

static int leave_v4(void *context)
{
    if (context == NULL || !lagom_is_static_comm(context)) {
        return leave(context);
    }
    if (!inert()) {
        free(context);
    }
    return NCCL_SUCCESS;
}

static int init_with_id(void **context, uint64_t comm_id, size_t ranks, size_t nodes, nccl_log_function log,
                        uint32_t api, const void *return_address)
{
    const struct lagom_init_info info = {.context_place = context,
                                         .comm_id = comm_id,
                                         .comm_id_known = true,
                                         .ranks = (uint32_t)ranks,
                                         .nodes = (uint32_t)nodes,
                                         .tuner_api = api};
    lagom_plugin_enter(&info, log, return_address);
    return NCCL_SUCCESS;
}

/* 2.28, 2.29. */
static int init_v5(void **context, uint64_t comm_id, size_t ranks, size_t nodes, nccl_log_function log,
                   void *nvl_domain, void *constants)
{
    (void)nvl_domain;
    (void)constants; /* of NCCL's cost model: ours to read and edit, and left alone */
    return init_with_id(context, comm_id, ranks, nodes, log, 5, __builtin_return_address(0));
}

/* From 2.30.3. */
static int init_v6(void **context, uint64_t comm_id, size_t ranks, size_t nodes, nccl_log_function log,
                   void *nvl_domain, void *constants)
{
    (void)nvl_domain;
    (void)constants;
    return init_with_id(context, comm_id, ranks, nodes, log, 6, __builtin_return_address(0));
}

EXPORT const struct nccl_tuner_v2 ncclTunerPlugin_v2 = {NAME, init_v2, get_coll_info_v2, leave_v4};
EXPORT const struct nccl_tuner_v3 ncclTunerPlugin_v3 = {NAME, init_v3, get_coll_info_v3, leave_v4};
EXPORT const struct nccl_tuner_v4 ncclTunerPlugin_v4 = {NAME, init_v4, get_coll_info_v4, leave_v4};
EXPORT const struct nccl_tuner_v5 ncclTunerPlugin_v5 = {NAME, init_v5, get_coll_info, leave};
EXPORT const struct nccl_tuner_v6 ncclTunerPlugin_v6 = {NAME, init_v6, get_coll_info, leave, get_chunk_size};

/* ---- Profiler --------------------------------------------------------------------------------------------------- */

static int profiler_init(void **context, const struct lagom_profiler_init_info *info)
{
    if (context != NULL) {
        *context = lagom_plugin_wanted() ? lagom_profiler_init(info) : NULL;
    }
    return NCCL_SUCCESS;
}

/* 2.27, 2.28.0: the id comes after the name. */
static int profiler_init_v4(void **context, int *mask, const char *name, uint64_t comm_id, int nodes, int ranks,
                            int rank, nccl_log_function log)
{
    (void)log;
    return profiler_init(context, &(struct lagom_profiler_init_info){4, comm_id, mask, name, nodes, ranks, rank});
}

static int profiler_init_v5(void **context, uint64_t comm_id, int *mask, const char *name, int nodes, int ranks,
                            int rank, nccl_log_function log)
{
    (void)log;
    return profiler_init(context, &(struct lagom_profiler_init_info){5, comm_id, mask, name, nodes, ranks, rank});
}

static int profiler_init_v6(void **context, uint64_t comm_id, int *mask, const char *name, int nodes, int ranks,
                            int rank, nccl_log_function log)
{
    (void)log;
    return profiler_init(context, &(struct lagom_profiler_init_info){6, comm_id, mask, name, nodes, ranks, rank});
}

/* From 2.31. */
static int profiler_init_v7(void **context, uint64_t comm_id, int *mask, const char *name, int nodes, int ranks,
                            int rank, nccl_log_function log)
{
    (void)log;
    return profiler_init(context, &(struct lagom_profiler_init_info){7, comm_id, mask, name, nodes, ranks, rank});
}

static int start_event(void *context, void **handle, uint64_t type, void *parent, const union nccl_event_body *body)
{
    void *started = inert() ? NULL : lagom_profiler_start(context, type, parent, body);
    if (handle != NULL) {
        *handle = started;
    }
    return NCCL_SUCCESS;
}

static int start_event_v4(void *context, void **handle, struct nccl_event_v4 *event)
{
    return start_event(context, handle, event->type, event->parent, &event->body);
}

static int start_event_v5(void *context, void **handle, struct nccl_event_v5 *event)
{
    return start_event(context, handle, event->type, event->parent, &event->body);
}

/* A symmetric kernel's collective never asked the tuner: it is counted, and is no launch that a call is waiting for. */
static int start_event_v7(void *context, void **handle, struct nccl_event_v7 *event)
{
    if (event->type != NCCL_EVENT_COLL || !event->coll.symmetric) {
        return start_event(context, handle, event->type, event->parent, &event->body);
    }
    if (handle != NULL) {
        *handle = NULL;
    }
    if (!inert()) {
        lagom_profiler_symmetric(context);
    }
    return NCCL_SUCCESS;
}

static int stop_event(void *handle)
{
    if (!inert()) {
        lagom_profiler_stop(handle);
    }
    return NCCL_SUCCESS;
}

static int record_event_state(void *handle, int state, union nccl_event_state_args *args)
{
    if (!inert()) {
        lagom_profiler_state(handle, state, args);
    }
    return NCCL_SUCCESS;
}

static int profiler_finalize(void *context)
{
    lagom_profiler_finalize(context);
    return NCCL_SUCCESS;
}

EXPORT const struct nccl_profiler_v4 ncclProfiler_v4 = {NAME,       profiler_init_v4,   start_event_v4,
                                                        stop_event, record_event_state, profiler_finalize};
EXPORT const struct nccl_profiler_v5 ncclProfiler_v5 = {NAME,       profiler_init_v5,   start_event_v5,
                                                        stop_event, record_event_state, profiler_finalize};
EXPORT const struct nccl_profiler_v5 ncclProfiler_v6 = {NAME,       profiler_init_v6,   start_event_v5,
                                                        stop_event, record_event_state, profiler_finalize};
EXPORT const struct nccl_profiler_v7 ncclProfiler_v7 = {NAME,       profiler_init_v7,   start_event_v7,
                                                        stop_event, record_event_state, profiler_finalize};
