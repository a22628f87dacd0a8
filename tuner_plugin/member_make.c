#include "tuner_plugin/member_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/lagom_atomic.h"
#include "tuner_plugin/gpu_times.h"
#include "tuner_plugin/hardware.h"
#include "tuner_plugin/log.h"

#define CACHE_LINE 64u

static struct lagom_member *refuse(char *reason, size_t room, const char *text)
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
static bool take_places(struct lagom_member *member, const struct lagom_membership *membership,
                        const struct lagom_hello *hello)
{
    struct lagom_region *region = membership->mapping->region;
    const struct lagom_identity identity = {
        .rank = member->profiled == NULL ? LAGOM_UNKNOWN_RANK : member->profiled->rank, .device = lagom_cuda_device()};
    uint32_t communicator = lagom_communicator_enter(region, hello->comm_id, hello->ranks, hello->nodes,
                                                     membership->ordinal, name_of(member->profiled));
    if (communicator == UINT32_MAX) {
        return false;
    }
    member->slot_index = lagom_slot_take(membership->mapping, communicator, identity);
    if (member->slot_index == UINT32_MAX) {
        return false;
    }
    member->region = region;
    member->shared = &region->communicators[communicator];
    member->slot = &region->slots[member->slot_index];
    lagom_gpu_times_forget(member->slot_index);
    member->process_index = membership->mapping->process;
    member->process = &region->processes[member->process_index];
    return true;
}

/* The ranks of a node agree on the communicator's ordinal: it is the first one's. */
static const struct lagom_plan *own_plan(const struct lagom_member *member, const struct lagom_membership *membership)
{
    const struct lagom_communicator *shared = member->shared;
    const struct lagom_profile_section *section = lagom_profile_section_for(
        membership->profile, shared->rank_count, shared->node_count, shared->ordinal, name_of(member->profiled));
    return section == NULL ? NULL : &section->content;
}

static void open_threads(struct lagom_member *member, const struct lagom_hello *hello, enum lagom_build_fault fault)
{
    char reason[LAGOM_PATH_BYTES];
    if (fault == LAGOM_BUILD_HOLDS) {
        lagom_threads_open(&member->threads, member->channels.build, hello->context_place);
        __atomic_fetch_or(&member->process->knobs, (uint32_t)LAGOM_KNOB_THREADS, __ATOMIC_RELAXED);
    } else {
        snprintf(reason, sizeof(reason), "NT is off: %s", lagom_build_fault_text(fault));
        lagom_threads_remark(member->process, reason);
    }
}

/* What may be read and written of NCCL's own. */
static void recognise(struct lagom_member *member, const struct lagom_membership *membership,
                      const struct lagom_hello *hello)
{
    enum lagom_build_fault fault =
        lagom_build_check(membership->build, hello->context_place, hello->comm_id, hello->ranks);
    bool holds = fault == LAGOM_BUILD_HOLDS;
    lagom_built_channels_open(&member->channels, membership->nccl_version, holds ? membership->build : NULL,
                              hello->context_place);
    if (membership->threads_wanted) {
        open_threads(member, hello, fault);
    }
}

/* A profile that says for which NCCL and how many ranks it was made, and fits, has had its channels run by a tuner that
 * was held to the same bound. One that does not say is anybody's word. */
static bool was_made_here(const struct lagom_profile *profile)
{
    return profile != NULL && profile->fingerprint.nccl_version != 0 && profile->fingerprint.ranks != 0;
}

/* A controller looks around every 0.1 s; the calls before it sees this communicator are part of the story too. */
static void record_from_the_first_call(const struct lagom_member *member, const struct lagom_membership *membership)
{
    bool controller_is_coming = lagom_load_relaxed(&member->region->header.spawn_claim) != 0;
    if (controller_is_coming || lagom_region_controller_alive(membership->mapping)) {
        lagom_compare_exchange32(&member->shared->capture, 0, LAGOM_CAPTURE_CALLS);
    }
}

struct lagom_member *lagom_member_make(const struct lagom_membership *membership, const struct lagom_hello *hello,
                                       struct lagom_profiled *profiled, char *reason, size_t reason_bytes)
{
    struct lagom_member *member = allocate(sizeof(*member));
    if (member == NULL) {
        return refuse(reason, reason_bytes, "there is no memory for a communicator's private plan; it runs stock.");
    }
    member->profiled = profiled;
    if (!take_places(member, membership, hello)) {
        free(member);
        return refuse(reason, reason_bytes, "the shared region has no place for one more communicator; it runs stock.");
    }
    const struct lagom_plan *plan = membership->profile == NULL ? NULL : own_plan(member, membership);
    if (membership->profile != NULL && plan == NULL) {
        lagom_slot_release(membership->mapping, member->slot_index);
        free(member);
        return refuse(reason, reason_bytes, "the profile has no section for this communicator; it runs stock.");
    }
    member->ranks = hello->ranks;
    member->nodes = hello->nodes;
    member->chunk_possible = hello->tuner_api >= 6;
    member->simulated_clock = membership->mapping->region->header.clock == LAGOM_CLOCK_SIMULATED;
    member->captures_known = profiled != NULL && profiled->api >= 5;
    lagom_call_clock_open(&member->clock);
    lagom_chunk_list_open(&member->chunks);
    lagom_agreement_init(&member->agreement, member->region, (uint32_t)(member->shared - member->region->communicators),
                         member->slot, plan);
    recognise(member, membership, hello);
    if (was_made_here(membership->profile)) {
        member->channels.most = LAGOM_ANY_CHANNELS;
    }
    member->agreement.no_threads = !member->threads.possible;
    member->agreement.most_all_gather_channels = &member->channels.most;
    if (plan == NULL) {
        record_from_the_first_call(member, membership);
    }
    if (plan != NULL && !lagom_replay_start(&member->replay, &member->agreement, member->region, plan)) {
        lagom_log(NCCL_LOG_INFO, "a communicator over several nodes is not replayed yet; it runs stock.");
    }
    lagom_profiler_link(profiled, member);
    return member;
}

/* Replay has no controller to tell how it went, and the path of a collective is no place to talk. */
static void tell_outcome(const struct lagom_member *member)
{
    if (member->replay.state == LAGOM_REPLAY_REFUSED) {
        lagom_log(NCCL_LOG_WARN, "the profile never came into force here: %s",
                  lagom_plan_fault_text((enum lagom_plan_fault)member->replay.refused_fault));
    } else if (member->replay.state != LAGOM_REPLAY_OFF) {
        lagom_log(NCCL_LOG_INFO, "the profile %s here, %llu calls in all",
                  member->agreement.active ? "was in force" : "never came into force",
                  (unsigned long long)member->agreement.calls);
    }
}

void lagom_member_end(struct lagom_member *member, struct lagom_mapping *mapping)
{
    tell_outcome(member);
    lagom_profiler_unlink(member->profiled, member->measuring);
    lagom_slot_release(mapping, member->slot_index);
    free(member);
}
