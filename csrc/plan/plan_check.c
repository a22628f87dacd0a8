/* SPDX-License-Identifier: Apache-2.0 */
/* plan_check.c - whether a plan is valid. Reads nothing outside the struct, even if its counts are wrong. */
#include "plan/plan.h"

#define MAX_CHANNELS 64u /* NCCL's MAXCHANNELS */
#define MIN_THREADS 96u  /* three warps: with fewer no protocol is set (tuner_plugin/threads.c) */
#define MAX_THREADS 640u /* NCCL_MAX_NTHREADS */
#define WARP 32u
#define MAX_CHUNK_BYTES (1u << 30)

#define KNOWN_FLAGS (LAGOM_PLAN_HAS_CANDIDATE | LAGOM_PLAN_START_SEARCHING | LAGOM_PLAN_LAST_ACK_COMMITS)

static int threads_fit(uint16_t threads)
{
    return threads == 0 || (threads >= MIN_THREADS && threads <= MAX_THREADS && threads % WARP == 0);
}

static int chunk_fits(uint32_t bytes)
{
    return bytes == 0 || (bytes >= LAGOM_CHUNK_FLOOR && bytes <= MAX_CHUNK_BYTES);
}

int lagom_config_is_sound(const struct lagom_config *config)
{
    return config->algorithm >= LAGOM_LEAVE && config->algorithm < LAGOM_ALGORITHMS &&
           config->protocol >= LAGOM_LEAVE && config->protocol < LAGOM_PROTOCOLS && config->channels <= MAX_CHANNELS &&
           threads_fit(config->threads) && chunk_fits(config->chunk_bytes) && config->reserved == 0;
}

static int site_fits(const struct lagom_site *site)
{
    return site->function < LAGOM_FUNCTIONS && lagom_config_is_sound(&site->incumbent) &&
           lagom_config_is_sound(&site->candidate);
}

static int rule_fits(const struct lagom_rule *rule)
{
    return (rule->function < LAGOM_FUNCTIONS || rule->function == LAGOM_ANY_FUNCTION) &&
           rule->bytes_min <= rule->bytes_max && lagom_config_is_sound(&rule->incumbent) &&
           lagom_config_is_sound(&rule->candidate);
}

static enum lagom_plan_fault check_counts(const struct lagom_plan *plan)
{
    int fits = plan->position_count <= LAGOM_MAX_POSITIONS && plan->site_count <= LAGOM_MAX_SITES &&
               plan->rule_count <= LAGOM_MAX_RULES;
    return fits ? LAGOM_PLAN_SOUND : LAGOM_PLAN_BAD_COUNT;
}

static enum lagom_plan_fault check_positions(const struct lagom_plan *plan)
{
    for (uint32_t i = 0; i < plan->position_count; i++) {
        if (plan->positions[i] >= plan->site_count) {
            return LAGOM_PLAN_BAD_POSITION;
        }
        const struct lagom_site *site = &plan->sites[plan->positions[i]];
        if (lagom_is_transparent(site->function, site->bytes)) {
            return LAGOM_PLAN_BAD_TRANSPARENT;
        }
    }
    return LAGOM_PLAN_SOUND;
}

static enum lagom_plan_fault check_configs(const struct lagom_plan *plan)
{
    for (uint32_t i = 0; i < plan->site_count; i++) {
        if (!site_fits(&plan->sites[i])) {
            return LAGOM_PLAN_BAD_CONFIG;
        }
    }
    for (uint32_t i = 0; i < plan->rule_count; i++) {
        if (!rule_fits(&plan->rules[i])) {
            return LAGOM_PLAN_BAD_CONFIG;
        }
    }
    return LAGOM_PLAN_SOUND;
}

enum lagom_plan_fault lagom_plan_check_content(const struct lagom_plan *plan)
{
    enum lagom_plan_fault fault = check_counts(plan);
    if (fault == LAGOM_PLAN_SOUND) {
        fault = check_positions(plan);
    }
    return fault == LAGOM_PLAN_SOUND ? check_configs(plan) : fault;
}

/* A candidate is a lease: it must end. A plan without one may end too; that changes nothing. */
static enum lagom_plan_fault check_lease(const struct lagom_plan *plan)
{
    int has_candidate = (plan->flags & LAGOM_PLAN_HAS_CANDIDATE) != 0;
    if ((plan->flags & ~(uint32_t)KNOWN_FLAGS) != 0 || plan->history_call >= plan->start_call) {
        return LAGOM_PLAN_BAD_LEASE;
    }
    if ((has_candidate || plan->end_call != 0) && plan->end_call <= plan->start_call) {
        return LAGOM_PLAN_BAD_LEASE;
    }
    if (has_candidate && plan->position_count != 0 && plan->alternate_iterations == 0) {
        return LAGOM_PLAN_BAD_COUNT;
    }
    return LAGOM_PLAN_SOUND;
}

enum lagom_plan_fault lagom_plan_check(const struct lagom_plan *plan, uint64_t comm_id)
{
    enum lagom_plan_fault fault = check_counts(plan);
    if (fault != LAGOM_PLAN_SOUND) {
        return fault;
    }
    if (plan->hash != lagom_plan_hash(plan)) {
        return LAGOM_PLAN_BAD_HASH;
    }
    if (comm_id != 0 && plan->comm_id != comm_id) {
        return LAGOM_PLAN_BAD_COMMUNICATOR;
    }
    fault = check_lease(plan);
    return fault == LAGOM_PLAN_SOUND ? lagom_plan_check_content(plan) : fault;
}

int lagom_plan_sets_threads(const struct lagom_plan *plan)
{
    unsigned threads = 0;
    for (uint32_t i = 0; i < plan->site_count && i < LAGOM_MAX_SITES; i++) {
        threads |= (unsigned)plan->sites[i].incumbent.threads | plan->sites[i].candidate.threads;
    }
    for (uint32_t i = 0; i < plan->rule_count && i < LAGOM_MAX_RULES; i++) {
        threads |= (unsigned)plan->rules[i].incumbent.threads | plan->rules[i].candidate.threads;
    }
    return threads != 0;
}

static uint32_t larger(uint32_t one, uint32_t other)
{
    return one > other ? one : other;
}

uint32_t lagom_plan_most_channels(const struct lagom_plan *plan, uint32_t function)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < plan->site_count && i < LAGOM_MAX_SITES; i++) {
        const struct lagom_site *site = &plan->sites[i];
        if (site->function == function) {
            most = larger(most, larger(site->incumbent.channels, site->candidate.channels));
        }
    }
    for (uint32_t i = 0; i < plan->rule_count && i < LAGOM_MAX_RULES; i++) {
        const struct lagom_rule *rule = &plan->rules[i];
        if (rule->function == function || rule->function == LAGOM_ANY_FUNCTION) {
            most = larger(most, larger(rule->incumbent.channels, rule->candidate.channels));
        }
    }
    return most;
}

const char *lagom_plan_fault_text(enum lagom_plan_fault fault)
{
    switch (fault) {
    case LAGOM_PLAN_SOUND: return "the plan is sound.";
    case LAGOM_PLAN_BAD_HASH:
        return "the plan's bytes do not match its hash; it was damaged or torn, publish it again.";
    case LAGOM_PLAN_BAD_COUNT:
        return "the plan has more positions, sites or rules than there is room for, or a candidate that never "
               "alternates.";
    case LAGOM_PLAN_BAD_POSITION: return "a position of the program names a site that the plan does not have.";
    case LAGOM_PLAN_BAD_CONFIG:
        return "a knob is out of range: nc is at most 64, nt a multiple of 32 from 96 to 640, chunk 16K to 1 "
               "GiB.";
    case LAGOM_PLAN_BAD_LEASE:
        return "the plan's calls are out of order: they must be history < start < end, and a candidate needs an end.";
    case LAGOM_PLAN_BAD_COMMUNICATOR: return "the plan is for another communicator.";
    case LAGOM_PLAN_NOT_MINE:
        return "the plan differs from the saved config that this rank has read; give every rank the same file.";
    case LAGOM_PLAN_LATE_HISTORY: return "the plan came too many calls after its history; publish it again.";
    case LAGOM_PLAN_BAD_TRANSPARENT:
        return "the program names a call under 64 KiB, a Broadcast or a Reduce; those do not advance it.";
    case LAGOM_PLAN_NO_THREADS:
        return "the plan sets threads (NT), which this rank cannot do; set LAGOM_NT=1 on all ranks, or leave nt out.";
    case LAGOM_PLAN_MANY_CHANNELS:
        return "the plan gives AllGather more channels than are known to be built, and this NCCL would not check "
               "(2.29.2 to 2.30); NCCL_ALLGATHERV_ENABLE=0 lifts that, or NCCL_PROFILER_PLUGIN while tuning.";
    }
    return "the plan was refused for a reason this version does not know.";
}
