/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/comm_create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/lagom_atomic.h"
#include "tuner_plugin/gpu_times.h"
#include "tuner_plugin/hardware.h"
#include "tuner_plugin/log.h"

#define CACHE_LINE 64u

static struct lagom_comm_context *refuse(char *reason, size_t room, const char *text)
{
    snprintf(reason, room, "%s", text);
    return NULL;
}

static void *allocate(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, CACHE_LINE, bytes) != 0) {
        return NULL;
    }
    return memset(memory, 0, bytes);
}

static const char *name_of(const struct lagom_profiled *profiled)
{
    return profiled == NULL ? "" : profiled->name;
}

/* Enters the region's tables; false = they are full. */
static bool take_places(struct lagom_comm_context *comm, const struct lagom_comm_options *options,
                        const struct lagom_init_info *info)
{
    struct lagom_region *region = options->mapping->region;
    const struct lagom_identity identity = {.rank = comm->profiled == NULL ? LAGOM_UNKNOWN_RANK : comm->profiled->rank,
                                            .device = lagom_cuda_device()};
    uint32_t communicator = lagom_communicator_enter(region, info->comm_id, info->ranks, info->nodes, options->ordinal,
                                                     name_of(comm->profiled));
    if (communicator == UINT32_MAX) {
        return false;
    }
    comm->slot_index = lagom_slot_take(options->mapping, communicator, identity);
    if (comm->slot_index == UINT32_MAX) {
        return false;
    }
    comm->region = region;
    comm->shared = &region->communicators[communicator];
    comm->slot = &region->slots[comm->slot_index];
    lagom_gpu_times_forget(comm->slot_index);
    comm->process_index = options->mapping->process;
    comm->process = &region->processes[comm->process_index];
    return true;
}

/* The ranks of a node agree on the communicator's ordinal: it is the first one's. */
static const struct lagom_plan *own_plan(const struct lagom_comm_context *comm,
                                         const struct lagom_comm_options *options)
{
    const struct lagom_communicator *shared = comm->shared;
    const struct lagom_config_section *section = lagom_config_file_section_for(
        options->config, shared->rank_count, shared->node_count, shared->ordinal, name_of(comm->profiled));
    return section == NULL ? NULL : &section->content;
}

static void open_threads(struct lagom_comm_context *comm, const struct lagom_init_info *info,
                         enum lagom_build_fault fault)
{
    char reason[LAGOM_PATH_BYTES];
    if (fault == LAGOM_BUILD_HOLDS) {
        lagom_threads_open(&comm->threads, comm->channels.build, info->context_place);
        __atomic_fetch_or(&comm->process->knobs, (uint32_t)LAGOM_KNOB_THREADS, __ATOMIC_RELAXED);
    } else {
        snprintf(reason, sizeof(reason), "NT is off: %s", lagom_build_fault_text(fault));
        lagom_threads_remark(comm->process, reason);
    }
}

/* What may be read and written of NCCL's own. */
static void recognise(struct lagom_comm_context *comm, const struct lagom_comm_options *options,
                      const struct lagom_init_info *info)
{
    enum lagom_build_fault fault = lagom_build_check(options->build, info->context_place, info->comm_id, info->ranks);
    bool holds = fault == LAGOM_BUILD_HOLDS;
    lagom_built_channels_open(&comm->channels, options->nccl_version, holds ? options->build : NULL,
                              info->context_place);
    if (options->threads_wanted) {
        open_threads(comm, info, fault);
    }
}

/* A file that says for which NCCL and how many ranks it was made, and fits, has had its channels run by a tuner that
 * was held to the same bound. One that does not say is anybody's word. */
static bool was_made_here(const struct lagom_config_file *config)
{
    return config != NULL && config->fingerprint.nccl_version != 0 && config->fingerprint.ranks != 0;
}

/* A controller looks around every 0.1 s; the calls before it sees this communicator are part of the story too. */
static void record_from_the_first_call(const struct lagom_comm_context *comm, const struct lagom_comm_options *options)
{
    bool controller_is_coming = lagom_load_relaxed(&comm->region->header.spawn_claim) != 0;
    if (controller_is_coming || lagom_region_controller_alive(options->mapping)) {
        lagom_compare_exchange32(&comm->shared->capture, 0, LAGOM_CAPTURE_CALLS);
    }
}

struct lagom_comm_context *lagom_comm_create(const struct lagom_comm_options *options,
                                             const struct lagom_init_info *info, struct lagom_profiled *profiled,
                                             char *reason, size_t reason_bytes)
{
    struct lagom_comm_context *comm = allocate(sizeof(*comm));
    if (comm == NULL) {
        return refuse(reason, reason_bytes, "no memory is left for the communicator's private plan; it runs stock.");
    }
    comm->profiled = profiled;
    if (!take_places(comm, options, info)) {
        free(comm);
        return refuse(reason, reason_bytes,
                      "the shared region has no entry left for another communicator; it runs stock.");
    }
    const struct lagom_plan *plan = options->config == NULL ? NULL : own_plan(comm, options);
    if (options->config != NULL && plan == NULL && !options->may_tune) {
        lagom_slot_release(options->mapping, comm->slot_index);
        free(comm);
        return refuse(reason, reason_bytes, "the saved config has no section for this communicator; it runs stock.");
    }
    comm->ranks = info->ranks;
    comm->nodes = info->nodes;
    comm->chunk_possible = info->tuner_api >= 6;
    comm->simulated_clock = options->mapping->region->header.clock == LAGOM_CLOCK_SIMULATED;
    comm->captures_known = profiled != NULL && profiled->api >= 5;
    lagom_call_clock_open(&comm->clock);
    lagom_chunk_list_open(&comm->chunks);
    lagom_agreement_init(&comm->agreement, comm->region, (uint32_t)(comm->shared - comm->region->communicators),
                         comm->slot, plan);
    recognise(comm, options, info);
    if (was_made_here(options->config)) {
        comm->channels.most = LAGOM_ANY_CHANNELS;
    }
    comm->agreement.follows_controller = options->may_tune;
    comm->agreement.no_threads = !comm->threads.possible;
    comm->agreement.most_all_gather_channels = &comm->channels.most;
    if (plan == NULL) {
        record_from_the_first_call(comm, options);
    }
    if (plan != NULL && !lagom_replay_start(&comm->replay, &comm->agreement, comm->region, plan)) {
        lagom_log(NCCL_LOG_INFO, "a communicator over several nodes is not replayed yet; it runs stock.");
    }
    lagom_profiler_link(profiled, comm);
    return comm;
}

/* A replay has no controller that could print the result, and nothing is printed on the path of a collective. */
static void tell_outcome(const struct lagom_comm_context *comm)
{
    if (comm->replay.state == LAGOM_REPLAY_REFUSED) {
        lagom_log(NCCL_LOG_WARN, "the saved config was not applied here: %s",
                  lagom_plan_fault_text((enum lagom_plan_fault)comm->replay.refused_fault));
    } else if (comm->replay.state != LAGOM_REPLAY_OFF) {
        lagom_log(NCCL_LOG_INFO, "the saved config %s here, %llu calls in all",
                  comm->agreement.active ? "was applied" : "was not applied",
                  (unsigned long long)comm->agreement.calls);
    }
}

void lagom_comm_destroy(struct lagom_comm_context *comm, struct lagom_mapping *mapping)
{
    tell_outcome(comm);
    lagom_profiler_unlink(comm->profiled, comm->measuring);
    lagom_slot_release(mapping, comm->slot_index);
    free(comm);
}
