/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/job.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "protocol/lagom_atomic.h"
#include "shm/job_key.h"
#include "shm/node_rules.h"
#include "tuner_plugin/adopter.h"
#include "tuner_plugin/folder.h"
#include "tuner_plugin/hardware.h"
#include "tuner_plugin/log.h"
#include "tuner_plugin/profiler.h"
#include "tuner_plugin/static_rules.h"
#include "tuner_plugin/spawn.h"

/* ---- Saying things ---------------------------------------------------------------------------------------------- */

/* One process a node speaks on stderr: the first that is registered; without a region, the one with local rank 0. What
 * `lagom run` reads from the region it prints itself. */
static bool speaks(const struct lagom_job *job)
{
    if (job->mapping.region == NULL) {
        return lagom_local_rank() == 0;
    }
    return job->mapping.process == 0 && !job->settings.launcher_tells;
}

void lagom_job_remark(struct lagom_job *job, const char *format, ...)
{
    char text[LAGOM_PATH_BYTES]; /* cut where the process's own is */
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    lagom_log(NCCL_LOG_WARN, "%s", text);
    if (job->mapping.region != NULL) {
        struct lagom_process *process = &job->mapping.region->processes[job->mapping.process];
        snprintf(process->remark, sizeof(process->remark), "%s", text);
    }
    if (speaks(job)) {
        lagom_say("%s", text);
    }
}

void lagom_job_remark_also(struct lagom_job *job, const char *text)
{
    struct lagom_process *process = &job->mapping.region->processes[job->mapping.process];
    lagom_log(NCCL_LOG_INFO, "%s", text);
    if (process->remark[0] == '\0') {
        snprintf(process->remark, sizeof(process->remark), "%s", text);
    }
}

/* ---- Joining ---------------------------------------------------------------------------------------------------- */

static uint32_t knobs_of(const struct lagom_init_info *info)
{
    uint32_t knobs = LAGOM_KNOB_CHANNELS | LAGOM_KNOB_ALGORITHM;
    knobs |= info->tuner_api >= 6 ? LAGOM_KNOB_CHUNK : 0;
    knobs |= info->comm_id_known ? LAGOM_KNOB_ONLINE : 0;
    return knobs; /* threads: known only at a communicator */
}

static void describe_process(struct lagom_job *job, const struct lagom_init_info *info)
{
    struct lagom_process *process = &job->mapping.region->processes[job->mapping.process];
    process->nccl_version = (uint32_t)job->caller.version;
    process->tuner_api = info->tuner_api;
    process->profiler_api = lagom_profiler_api();
    memcpy(process->libnccl, job->caller.path, sizeof(process->libnccl));
    lagom_environment_digest(process->start_settings);
    lagom_gpu_name(process->gpu);
    process->traits = lagom_peer_access() ? LAGOM_TRAIT_PEER_ACCESS : 0;
    process->traits |= job->settings.simulated_clock ? LAGOM_TRAIT_SIMULATED : 0;
    lagom_store_release(&process->knobs, knobs_of(info));
}

static bool find_region(struct lagom_job *job, const struct lagom_init_info *info, char *reason, size_t room)
{
    char key[LAGOM_PATH_BYTES];
    lagom_job_key(key, info->comm_id);
    enum lagom_clock clock = job->settings.simulated_clock ? LAGOM_CLOCK_SIMULATED : LAGOM_CLOCK_MONOTONIC;
    enum lagom_region_fault fault = lagom_region_join(&job->mapping, key, clock);
    if (fault == LAGOM_REGION_OK) {
        describe_process(job, info);
        lagom_folder_name(&job->settings, job->mapping.region->header.created_ns, info->nodes > 1, job->folder);
        return true;
    }
    snprintf(reason, room, "%s%s%s", lagom_region_fault_text(fault), job->mapping.error == 0 ? "" : " ",
             job->mapping.error == 0 ? "" : strerror(job->mapping.error));
    return false;
}

static bool join_region(struct lagom_job *job, const struct lagom_init_info *info)
{
    char reason[LAGOM_PATH_BYTES];
    bool joined = find_region(job, info, reason, sizeof(reason));
    if (!joined) {
        lagom_job_remark(job, "this job is not tuned, NCCL runs stock: %s", reason);
    }
    return joined;
}

/* ---- Replay ----------------------------------------------------------------------------------------------------- */

static void fingerprint_here(const struct lagom_job *job, const struct lagom_init_info *info,
                             struct lagom_fingerprint *here)
{
    *here = (struct lagom_fingerprint){.nccl_version = (uint32_t)job->caller.version,
                                       .ranks = info->ranks,
                                       .nodes = info->nodes,
                                       .p2p = lagom_peer_access(),
                                       .simulated = job->settings.simulated_clock};
    lagom_job_size(&here->ranks, &here->nodes);
    lagom_gpu_name(here->gpu);
}

/* Before the remark about it: who finds the remark must find this. `refusal` is read only where it is for another job. */
static void note_saved_config(struct lagom_job *job, enum lagom_saved_config fit, const struct lagom_refusal *refusal)
{
    if (job->mapping.region == NULL) {
        return; /* under NCCL before 2.27 a rank that could not join follows its saved config all the same */
    }
    struct lagom_process *process = &job->mapping.region->processes[job->mapping.process];
    if (fit > LAGOM_SAVED_CONFIG_UNREADABLE) {
        process->refusal = *refusal;
    }
    __atomic_store_n(&process->saved_config, (uint32_t)fit, __ATOMIC_SEQ_CST);
}

/* NULL = it is loaded and fits; else one sentence or clause. */
static const char *load_config(struct lagom_job *job, const struct lagom_init_info *info, char *reason, size_t room)
{
    struct lagom_fingerprint here;
    if (lagom_config_file_load(job->settings.config, &job->config, reason, room) != 0) {
        note_saved_config(job, LAGOM_SAVED_CONFIG_UNREADABLE, NULL);
        return reason;
    }
    fingerprint_here(job, info, &here);
    struct lagom_refusal refusal;
    enum lagom_saved_config fit = lagom_fingerprint_compare(&job->config.fingerprint, &here, &refusal);
    if (fit == LAGOM_SAVED_CONFIG_FITS) {
        fit = lagom_environment_compare(job->config.environment, job->config.environment_count, &refusal);
    }
    if (fit != LAGOM_SAVED_CONFIG_FITS) {
        lagom_refusal_text(fit, &refusal, reason, room);
        lagom_config_file_free(&job->config);
    }
    note_saved_config(job, fit, &refusal);
    return fit == LAGOM_SAVED_CONFIG_FITS ? NULL : reason;
}

/* What becomes of a job whose saved config is refused. It is not tuned where no rank may start a controller and none
 * runs already, nor without ids: then nothing is ever agreed. */
static const char *instead_of_replay(const struct lagom_job *job, const struct lagom_init_info *info, bool must)
{
    if (must || !info->comm_id_known) {
        return "NCCL chooses";
    }
    bool has_controller = job->settings.spawn || lagom_region_controller_alive(&job->mapping);
    return has_controller ? "the job is tuned instead"
                          : "LAGOM_CONTROLLER=none: no controller will start, so nothing is tuned";
}

/* Length of a sentence without its full stop: it becomes a clause. */
static int clause_length(const char *sentence)
{
    size_t length = strlen(sentence);
    return (int)(length > 0 && sentence[length - 1] == '.' ? length - 1 : length);
}

/* false = mode replay without a saved config that fits: NCCL chooses. */
static bool choose_between_replay_and_tune(struct lagom_job *job, const struct lagom_init_info *info)
{
    char reason[LAGOM_PATH_BYTES];
    bool must = job->settings.mode == LAGOM_MODE_REPLAY;
    if (job->settings.mode == LAGOM_MODE_TUNE || (!must && job->settings.config[0] == '\0')) {
        return true;
    }
    const char *why = "LAGOM_MODE=replay, but LAGOM_CONFIG names no file";
    if (job->settings.config[0] == '\0') {
        note_saved_config(job, LAGOM_SAVED_CONFIG_UNREADABLE, NULL);
    } else {
        why = load_config(job, info, reason, sizeof(reason));
    }
    job->replaying = why == NULL;
    if (why != NULL) {
        lagom_job_remark(job, "saved config refused: %.*s; %s", clause_length(why), why,
                         instead_of_replay(job, info, must));
    }
    return job->replaying || !must;
}

/* ---- Size rules, before NCCL 2.27 ------------------------------------------------------------------------------- */

/* What this process has read; false = no rules, and why. */
static bool read_rules(struct lagom_job *job, const struct lagom_init_info *info, char *reason, size_t room)
{
    job->static_rules = (struct lagom_node_rules){0};
    if (job->settings.mode != LAGOM_MODE_REPLAY) {
        snprintf(reason, room, "%s",
                 "NCCL before 2.27 does not distinguish communicators, so nothing can be tuned here; size rules can "
                 "be replayed: LAGOM_MODE=replay with LAGOM_CONFIG or LAGOM_SET.");
        return false;
    }
    bool has_config = job->settings.config[0] != '\0';
    char why[LAGOM_PATH_BYTES];
    if (has_config && load_config(job, info, why, sizeof(why)) != NULL) {
        snprintf(reason, room, "saved config refused: %.200s", why);
        return false;
    }
    return lagom_static_rules_read(has_config ? &job->config : NULL, &job->static_rules, reason, room);
}

static void say_what_holds(struct lagom_job *job, enum lagom_node_rules_result result)
{
    switch (result) {
    case LAGOM_NODE_RULES_REPLACED:
        lagom_job_remark(job, "another process of this node read %u other size rules first; this process uses those.",
                         job->static_rules.rule_count);
        break;
    case LAGOM_NODE_RULES_ALONE:
        lagom_job_remark(job, "the size rules could not be compared with those of the other ranks of this node.");
        break;
    case LAGOM_NODE_RULES_MADE:
        lagom_say("in force: %u size rules from the first call on", job->static_rules.rule_count);
        break;
    case LAGOM_NODE_RULES_SAME: break;
    }
}

static enum lagom_standing fall_back(struct lagom_job *job, const char *reason)
{
    lagom_job_remark(job, "no size rules are used, NCCL runs stock: %s", reason);
    return LAGOM_FALLBACK;
}

/* A rank that cannot use the region still follows what it has read: the others do, and read the same. Only a job without
 * a name is left alone as a whole: every rank of it sees that it has none. */
static enum lagom_standing join_with_static_rules(struct lagom_job *job, const struct lagom_init_info *info)
{
    char key[LAGOM_PATH_BYTES], reason[LAGOM_PATH_BYTES], text[LAGOM_PATH_BYTES];
    if (!lagom_job_key(key, 0)) {
        return fall_back(job, "the job has no name by which its ranks find each other; set LAGOM_JOB_ID.");
    }
    find_region(job, info, text, sizeof(text));
    bool has_rules = read_rules(job, info, reason, sizeof(reason));
    if (lagom_static_rules_restrict_here(&job->static_rules, info->tuner_api, text, sizeof(text))) {
        lagom_job_remark(job, "%s", text);
    }
    enum lagom_node_rules_result result = lagom_node_rules_settle(&job->mapping, &job->static_rules);
    if (job->static_rules.rule_count == 0) {
        return fall_back(job, has_rules ? "another process of this node read no rules first." : reason);
    }
    say_what_holds(job, result);
    return LAGOM_STATIC_RULES;
}

/* ---- The controller --------------------------------------------------------------------------------------------- */

/* One claim a region: process entry + 1. That of a rank which has died with its controller counts no longer: ranks that
 * come under the same name, after an elastic restart, start their own. */
static bool claim(const struct lagom_job *job)
{
    uint64_t *claimed = &job->mapping.region->header.spawn_claim;
    uint64_t before = lagom_load_acquire(claimed);
    bool is_free = before == 0 || !lagom_region_process_alive(&job->mapping, (uint32_t)(before - 1));
    return is_free && lagom_compare_exchange(claimed, before, (uint64_t)job->mapping.process + 1);
}

/* Before the claim: another rank may be one that can. */
static bool job_would_not_wait_for_it(struct lagom_job *job)
{
    const char *why = lagom_controller_adopter(job->mapping.region);
    if (why != NULL) {
        lagom_job_remark(job,
                         "no controller is started here: %s, and if it waits for all its children, it would wait for the "
                         "controller for ever; start the job with `lagom run`, or nothing is tuned.",
                         why);
    }
    return why == NULL;
}

/* Not where no rank could follow it: without ids nothing is ever agreed. */
static bool controller_is_mine_to_start(struct lagom_job *job, const struct lagom_init_info *info)
{
    return info->comm_id_known && job->settings.spawn && !job->replaying &&
           !lagom_region_controller_alive(&job->mapping) && job_would_not_wait_for_it(job) && claim(job);
}

static void start_controller(struct lagom_job *job)
{
    char reason[LAGOM_PATH_BYTES];
    const struct lagom_spawn spawn = {.python = job->settings.python,
                                      .region = job->mapping.path,
                                      .folder = job->folder,
                                      .simulated_clock = job->mapping.region->header.clock == LAGOM_CLOCK_SIMULATED};
    int failure = lagom_folder_make(job->folder);
    if (failure != 0) {
        snprintf(reason, sizeof(reason), "the log folder cannot be written to (%s); set LAGOM_DIR.", strerror(failure));
    }
    job->started_controller = failure == 0 && lagom_spawn_controller(&spawn, reason, sizeof(reason));
    if (job->started_controller) {
        const char *rules = getenv("LAGOM_SET");
        const char *plan = rules != NULL && rules[0] != '\0' ? "pin the rules of LAGOM_SET, no search" : "tune while it runs";
        lagom_log(NCCL_LOG_INFO, "plan: %s; log %s", plan, job->folder);
        if (!job->settings.launcher_tells) {
            lagom_say("plan: %s; log %s", plan, job->folder);
        }
    } else {
        lagom_job_remark(job, "this job is not tuned, NCCL runs stock: %s", reason);
    }
}

enum lagom_standing lagom_job_join(struct lagom_job *job, const struct lagom_init_info *info, nccl_log_function log,
                                   const void *return_address)
{
    lagom_log_open(log, job->settings.log_level);
    if (!job->settings.mode_understood) {
        lagom_job_remark(job, "LAGOM_MODE must be auto, tune, replay, replay-or-tune or off; Lagom falls back to NCCL.");
    }
    if (!job->settings.headroom_understood) {
        lagom_job_remark(
            job, "LAGOM_HEADROOM must be <channels built>:<channels of stock>, for example 32:24; it is ignored, "
                 "and calls may use every channel that NCCL builds.");
    }
    if (job->settings.mode == LAGOM_MODE_OFF) {
        return LAGOM_FALLBACK;
    }
    lagom_caller_find(&job->caller, log, return_address);
    if (!info->comm_id_known && lagom_has_static_rules_only(job->caller.version)) {
        return join_with_static_rules(job, info);
    }
    if (!join_region(job, info) || !choose_between_replay_and_tune(job, info)) {
        return LAGOM_FALLBACK;
    }
    if (controller_is_mine_to_start(job, info)) {
        start_controller(job);
    } else if (job->replaying && speaks(job)) {
        lagom_say("plan: replay saved config %s, no search; in force once every rank has agreed", job->settings.config);
    }
    return LAGOM_JOINED;
}
