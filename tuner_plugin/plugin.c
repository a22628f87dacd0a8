/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/plugin.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "agreement/publisher.h"
#include "protocol/lagom_atomic.h"
#include "tuner_plugin/headroom.h"
#include "tuner_plugin/job.h"
#include "tuner_plugin/log.h"
#include "tuner_plugin/comm_create.h"
#include "tuner_plugin/static_rules.h"
#include "tuner_plugin/capture_client.h"

#define SIZES_REMEMBERED 32u

/* How many communicators of one size this process has made. */
struct size_count {
    uint32_t ranks;
    uint32_t made;
    uint64_t last_id; /* several ranks in one process make the same communicator: that counts once */
};

static struct {
    pthread_mutex_t lock; /* of everything here; never taken on the path of a collective */
    enum lagom_standing standing;
    bool settings_read;
    bool remarked_unknown_id;
    bool remarked_no_place;
    bool remarked_double;
    uint32_t comms;
    struct lagom_job job;
    struct size_count sizes[SIZES_REMEMBERED];
} plugin = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool lagom_plugin_inert;

/* ---- Forks ------------------------------------------------------------------------------------------------------ */

static bool begun; /* set before the lock is taken for the first time */

static void lock(void)
{
    __atomic_store_n(&begun, true, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&plugin.lock);
}

static void unlock(void)
{
    pthread_mutex_unlock(&plugin.lock);
}

/* The lock may be held by a thread that the child does not have: a child of a process that has begun never takes it. */
static void after_fork_in_child(void)
{
    lagom_plugin_inert = lagom_plugin_inert || begun;
}

/* Not at the first communicator: another thread may fork in the middle of that. The library is never unloaded, and so
 * neither is the handler. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork_in_child);
}

/* ---- Settings --------------------------------------------------------------------------------------------------- */

static const struct lagom_settings *settings(void)
{
    if (!plugin.settings_read) {
        plugin.settings_read = true;
        lagom_settings_read(&plugin.job.settings);
    }
    return &plugin.job.settings;
}

bool lagom_plugin_wanted(void)
{
    if (lagom_load_relaxed(&lagom_plugin_inert) || lagom_settings_nothing_wanted()) {
        return false;
    }
    lock();
    bool wanted = settings()->mode != LAGOM_MODE_OFF;
    unlock();
    return wanted;
}

/* ---- Communicators ---------------------------------------------------------------------------------------------- */

/* How many communicators of this size this process had made before. */
static uint32_t ordinal_of(const struct lagom_init_info *info)
{
    for (uint32_t i = 0; i < SIZES_REMEMBERED; i++) {
        struct size_count *size = &plugin.sizes[i];
        if (size->made != 0 && size->ranks != info->ranks) {
            continue;
        }
        if (size->made == 0 || size->last_id != info->comm_id) {
            *size = (struct size_count){.ranks = info->ranks, .made = size->made + 1, .last_id = info->comm_id};
        }
        return size->made - 1;
    }
    return UINT32_MAX;
}

/* Another process holds the table locked, and NCCL's init waits with us, or our locks are gone: nothing is entered any
 * more. */
static void give_up(bool lost)
{
    plugin.standing = LAGOM_FALLBACK;
    if (lost) {
        lagom_job_remark(&plugin.job,
                         "this process has closed the descriptor of Lagom's shared region, which it had not opened: every "
                         "communicator made from now on falls back to NCCL. Close descriptors before the first communicator.");
        return;
    }
    lagom_job_remark(&plugin.job,
                     "another process kept the job's shared table locked for 2 s: every communicator made from now on "
                     "falls back to NCCL. Look for a stopped process of this job.");
}

/* What keeps a communicator from being tuned although everything else is there: each once a process. */
static void remark_untunable(const struct lagom_init_info *info, const struct lagom_comm_context *comm)
{
    char text[LAGOM_PATH_BYTES];
    const struct lagom_header *header = &plugin.job.mapping.region->header;
    uint64_t refused = lagom_load_relaxed(&header->places_refused);
    if (refused != 0 && !plugin.remarked_no_place) {
        plugin.remarked_no_place = true;
        snprintf(text, sizeof(text),
                 "the shared region has no more room: %" PRIu64 " times so far a rank found no entry in which a "
                 "communicator can be tuned (at most %u communicators and %u ranks a node); these fall back to NCCL.",
                 refused, LAGOM_MAX_PLANS, LAGOM_MAX_CALL_RINGS);
        lagom_job_remark_also(&plugin.job, text);
    }
    if (comm != NULL && !plugin.remarked_double &&
        lagom_publish_has_double(plugin.job.mapping.region, lagom_load_relaxed(&comm->slot->communicator))) {
        plugin.remarked_double = true;
        snprintf(text, sizeof(text),
                 "a rank of communicator %016" PRIx64 " (%" PRIu32
                 " ranks) is registered twice, or looks the same as another rank of its "
                 "process; the communicator falls back to NCCL.",
                 info->comm_id, info->ranks);
        lagom_job_remark_also(&plugin.job, text);
    }
}

static struct lagom_comm_context *create_comm(const struct lagom_init_info *info, struct lagom_profiled *profiled)
{
    char reason[LAGOM_PATH_BYTES];
    bool may_tune = plugin.job.settings.mode == LAGOM_MODE_REPLAY_OR_TUNE;
    bool replays = plugin.job.replaying && !(may_tune && lagom_region_controller_alive(&plugin.job.mapping));
    const struct lagom_comm_options options = {.mapping = &plugin.job.mapping,
                                               .config = replays ? &plugin.job.config : NULL,
                                               .may_tune = may_tune,
                                               .ordinal = ordinal_of(info),
                                               .threads_wanted = plugin.job.settings.threads,
                                               .nccl_version = plugin.job.caller.version,
                                               .build = lagom_build_of(&plugin.job.caller)};
    struct lagom_comm_context *comm = lagom_comm_create(&options, info, profiled, reason, sizeof(reason));
    bool lost = comm == NULL && lagom_region_is_lost(&plugin.job.mapping);
    if (lost || (comm == NULL && lagom_region_gave_up())) {
        give_up(lost);
        return NULL;
    }
    remark_untunable(info, comm);
    if (comm == NULL) {
        lagom_log(NCCL_LOG_INFO, "communicator %016" PRIx64 " of %" PRIu32 " ranks: %s", info->comm_id, info->ranks,
                  reason);
    }
    return comm;
}

static bool wants_timeline(void)
{
    const struct lagom_job *job = &plugin.job;
    return job->settings.timeline && !job->replaying && job->mapping.region->header.clock != LAGOM_CLOCK_SIMULATED;
}

/* The timeline's thread lives as long as there is a communicator: NCCL may let go of the plugin with the last one. */
static struct lagom_comm_context *count_in(struct lagom_comm_context *comm)
{
    if (comm != NULL && plugin.comms++ == 0 && wants_timeline()) {
        const struct lagom_mapping *mapping = &plugin.job.mapping;
        const char *missing = lagom_capture_client_open(mapping->region, mapping->process);
        if (missing != NULL) {
            lagom_job_remark_also(&plugin.job, missing);
        }
    }
    return comm;
}

/* Tuner v4 does not get the communicator's id; on 2.27 the profiler plugin does. An id of 0 means "none" in the region. */
static void complete(struct lagom_init_info *info, const struct lagom_profiled *profiled)
{
    if (!info->comm_id_known && profiled != NULL) {
        info->comm_id = profiled->comm_id;
        info->comm_id_known = true;
    }
    info->comm_id = info->comm_id_known && info->comm_id == 0 ? 1 : info->comm_id;
}

static void say_loaded(const struct lagom_init_info *info, const struct lagom_profiled *profiled)
{
    char rank[16] = "?"; /* only the profiler plugin gets it */
    if (profiled != NULL) {
        snprintf(rank, sizeof(rank), "%" PRIu32, profiled->rank);
    }
    int v = plugin.job.caller.version;
    lagom_log(NCCL_LOG_INFO,
              "loaded v%s, tuner API v%" PRIu32 ", profiler API v%" PRIu32
              ", NCCL %d.%d.%d from %s, mode %s, rank %s of %" PRIu32 ", log %s",
              LAGOM_VERSION, info->tuner_api, lagom_profiler_api(), v / 10000, v / 100 % 100, v % 100,
              plugin.job.caller.path[0] == '\0' ? "an unknown file" : plugin.job.caller.path,
              lagom_mode_name(plugin.job.settings.mode), rank, info->ranks, plugin.job.folder);
}

static void remark_unknown_id(void)
{
    if (!plugin.remarked_unknown_id) {
        plugin.remarked_unknown_id = true;
        lagom_job_remark(
            &plugin.job,
            "NCCL does not give this tuner the communicator's id, so ranks cannot agree and NCCL runs stock; "
            "set NCCL_PROFILER_PLUGIN to this library too.");
    }
}

/* The context of a tuned communicator, of one that goes by size rules, or NULL. */
static void *enter(const struct lagom_init_info *said, nccl_log_function log, const void *return_address)
{
    struct lagom_profiled *profiled =
        lagom_profiler_announced(said->comm_id_known, said->comm_id, said->ranks, said->nodes);
    struct lagom_init_info info = *said;
    complete(&info, profiled);
    if (plugin.standing == LAGOM_NOT_YET) {
        plugin.standing = lagom_job_join(&plugin.job, &info, log, return_address);
        if (plugin.standing != LAGOM_FALLBACK) {
            say_loaded(&info, profiled);
        }
    }
    if (plugin.standing == LAGOM_STATIC_RULES && !info.comm_id_known) {
        return lagom_static_comm_create(&plugin.job.static_rules, info.ranks, info.nodes);
    }
    if (plugin.standing != LAGOM_JOINED) {
        return NULL;
    }
    if (!info.comm_id_known) {
        remark_unknown_id();
        return NULL;
    }
    return count_in(create_comm(&info, profiled));
}

void lagom_plugin_enter(const struct lagom_init_info *info, nccl_log_function log, const void *return_address)
{
    if (info->context_place == NULL) {
        return;
    }
    *info->context_place = NULL;
    if (info->ranks < 2 || lagom_load_relaxed(&lagom_plugin_inert) || lagom_settings_nothing_wanted()) {
        return; /* NCCL never asks about a communicator of one */
    }
    lock();
    settings();
    void *context = enter(info, log, return_address);
    *info->context_place = context != NULL ? context : lagom_passthrough_for(info->ranks);
    unlock();
    lagom_log_flush();
}

void lagom_plugin_leave(struct lagom_comm_context *comm)
{
    if (comm == NULL || lagom_is_passthrough(comm) || lagom_load_relaxed(&lagom_plugin_inert)) {
        return;
    }
    lock();
    lagom_comm_destroy(comm, &plugin.job.mapping);
    if (--plugin.comms == 0) {
        lagom_capture_client_close();
    }
    unlock();
    lagom_log_flush();
}

/* ---- The end ---------------------------------------------------------------------------------------------------- */

/* The job's last line, and no file left behind where no controller removes it. The mapping stays, for threads that are
 * still inside NCCL. It may be a signal handler that has called exit(), in the middle of anything: nothing is waited for. */
__attribute__((destructor)) static void at_exit(void)
{
    if (lagom_plugin_inert || plugin.job.mapping.region == NULL) {
        return;
    }
    if (plugin.job.started_controller && !plugin.job.settings.launcher_tells) {
        lagom_log_open(NULL, 0); /* NCCL's may be gone */
        lagom_say_at_exit("ended; log %s", plugin.job.folder);
    }
    lagom_region_exit(&plugin.job.mapping);
}
