/* SPDX-License-Identifier: Apache-2.0 */
/* profiler_harness.h - ranks with a profiler plugin, v4..v7, and the events that NCCL would send them. */
#ifndef LAGOM_PROFILER_HARNESS_H
#define LAGOM_PROFILER_HARNESS_H

#include "tests/native/plugin_harness.h"

#define COMM 0xfeedULL
#define COLL 2
#define P2P 4
#define KERNEL_CH 64
#define COLL_API 512
#define P2P_API 1024
#define CE_COLL 4096
#define STOP 22

static struct plugin plugin;
static struct lagom_region *region;
static uint32_t communicator;
static int mask;

struct profiled_rank {
    struct rank rank;
    int api;
    void *context;
};

static inline struct profiled_rank make_profiled(int api, int rank, const char *name)
{
    struct profiled_rank made = {.api = api};
    if (api == 4) {
        CHECK(plugin.profiler_v4->init(&made.context, &mask, name, COMM, 1, 2, rank, NULL) == 0);
    } else if (api == 7) {
        CHECK(plugin.profiler_v7->init(&made.context, COMM, &mask, name, 1, 2, rank, NULL) == 0);
    } else {
        const struct nccl_profiler_v5 *profiler = api == 5 ? plugin.profiler_v5 : plugin.profiler_v6;
        CHECK(profiler->init(&made.context, COMM, &mask, name, 1, 2, rank, NULL) == 0);
    }
    CHECK(made.context != NULL);
    made.rank = make_rank(&plugin, api, COMM, 2, 1);
    CHECK(made.rank.context != NULL);
    return made;
}

static inline void pair_of(struct profiled_rank pair[2], int api)
{
    plugin = load_plugin();
    pair[0] = make_profiled(api, 0, "fsdp");
    pair[1] = make_profiled(api, 1, "fsdp");
    region = map_region();
    communicator = find_communicator_of(region, COMM);
    CHECK(communicator != UINT32_MAX);
}

/* v7's collective is longer; whether symmetric kernels do it lies in the part that is new. */
static inline void *start_v7(const struct profiled_rank *from, uint64_t type, void *parent, const union nccl_event_body *body,
                      bool symmetric)
{
    void *handle = (void *)(uintptr_t)0x1;
    struct nccl_event_v7 event = {.type = type, .parent = parent, .body = *body};
    if (type == COLL) {
        event.coll = (struct nccl_event_coll_v7){.head = body->coll, .kernel = "", .symmetric = symmetric};
    }
    CHECK(plugin.profiler_v7->start_event(from->context, &handle, &event) == 0);
    return handle;
}

/* A start event as that NCCL would send it; 0xcd where we must not look. */
static inline void *start(const struct profiled_rank *from, uint64_t type, void *parent, const union nccl_event_body *body)
{
    char space[512];
    void *handle = (void *)(uintptr_t)0x1;
    memset(space, 0xcd, sizeof(space));
    if (from->api == 7) {
        return start_v7(from, type, parent, body, false);
    }
    if (from->api == 4) {
        struct nccl_event_v4 *event = (void *)space;
        *event = (struct nccl_event_v4){.type = (uint8_t)type, .parent = parent, .rank = 0, .body = *body};
        CHECK(plugin.profiler_v4->start_event(from->context, &handle, event) == 0);
    } else {
        struct nccl_event_v5 *event = (void *)space;
        *event = (struct nccl_event_v5){.type = type, .parent = parent, .rank = 0, .body = *body};
        CHECK((from->api == 5 ? plugin.profiler_v5 : plugin.profiler_v6)->start_event(from->context, &handle, event) ==
              0);
    }
    return handle;
}

static inline void stop_at(const struct profiled_rank *from, void *handle, uint64_t gpu_ns)
{
    union nccl_event_state_args args = {.kernel_ch = {.gpu_ns = gpu_ns}};
    const struct nccl_profiler_v5 *tail = from->api == 5 ? plugin.profiler_v5 : plugin.profiler_v6;
    if (from->api == 4) {
        CHECK(plugin.profiler_v4->record_event_state(handle, STOP, &args) == 0);
        CHECK(plugin.profiler_v4->stop_event(handle) == 0);
    } else if (from->api == 7) {
        CHECK(plugin.profiler_v7->record_event_state(handle, STOP, &args) == 0);
        CHECK(plugin.profiler_v7->stop_event(handle) == 0);
    } else {
        CHECK(tail->record_event_state(handle, STOP, &args) == 0);
        CHECK(tail->stop_event(handle) == 0);
    }
}

static inline union nccl_event_body coll_of(const char *function, size_t count, uint8_t channels, uint64_t sequence)
{
    return (union nccl_event_body){.coll = {.sequence = sequence,
                                            .function = function,
                                            .count = count,
                                            .type = "ncclBfloat16",
                                            .channels = channels,
                                            .warps = 17,
                                            .algorithm = "RING",
                                            .protocol = "SIMPLE"}};
}

/* Channels start one after the other and stop in any order. */
static inline void run_kernel(const struct profiled_rank *from, void *coll, int channels, uint64_t first_ns)
{
    void *handles[64];
    for (int c = 0; c < channels; c++) {
        union nccl_event_body body = {.kernel_ch = {.channel = (uint8_t)c, .gpu_ns = first_ns + (uint64_t)c * 10}};
        handles[c] = start(from, KERNEL_CH, coll, &body);
    }
    for (int c = channels - 1; c >= 0; c--) {
        stop_at(from, handles[c], first_ns + 1000 + (uint64_t)c);
    }
}

static inline uint32_t drain(struct lagom_kernel_span *spans, uint32_t room)
{
    return lagom_kernel_ring_drain(region, 0, spans, room);
}

static inline void measure(struct profiled_rank *rank, uint32_t capture)
{
    lagom_capture_set(region, communicator, capture);
    call(&rank->rank, LAGOM_ALL_REDUCE, 1024);
}

#endif
