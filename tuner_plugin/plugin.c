#include "tuner_plugin/plugin.h"

#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "profile/profile_text.h"
#include "protocol/lagom_atomic.h"
#include "shm/job_key.h"
#include "shm/region.h"
#include "tuner_plugin/caller.h"
#include "tuner_plugin/folder.h"
#include "tuner_plugin/hardware.h"
#include "tuner_plugin/log.h"
#include "tuner_plugin/member_make.h"
#include "tuner_plugin/settings.h"
#include "tuner_plugin/spans.h"
#include "tuner_plugin/spawn.h"

#define SIZES_REMEMBERED 32u

enum standing { NOT_YET, JOINED, ASIDE };

/* How many communicators of one size this process has made. */
struct size_count {
    uint32_t ranks;
    uint32_t made;
    uint64_t last_id; /* several ranks in one process make the same communicator: that counts once */
};

static struct {
    pthread_mutex_t lock; /* of everything here; never taken on the path of a collective */
    enum standing standing;
    bool settings_read;
    bool started_controller;
    bool replaying;
    bool remarked_unknown_id;
    struct lagom_settings settings;
    struct lagom_mapping mapping;
    struct lagom_caller caller;
    struct lagom_profile profile;
    struct size_count sizes[SIZES_REMEMBERED];
    char folder[PATH_MAX];
    char remark[LAGOM_PATH_BYTES];
} plugin = {.lock = PTHREAD_MUTEX_INITIALIZER};

bool lagom_plugin_inert;

static void after_fork_in_child(void)
{
    lagom_plugin_inert = true;
}

/* ---- Settings --------------------------------------------------------------------------------------------------- */

static const struct lagom_settings *settings(void)
{
    if (!plugin.settings_read) {
        plugin.settings_read = true;
        lagom_settings_read(&plugin.settings);
        pthread_atfork(NULL, NULL, after_fork_in_child);
    }
    return &plugin.settings;
}

bool lagom_plugin_wanted(void)
{
    if (lagom_load_relaxed(&lagom_plugin_inert)) {
        return false;
    }
    pthread_mutex_lock(&plugin.lock);
    bool wanted = settings()->mode != LAGOM_MODE_OFF;
    pthread_mutex_unlock(&plugin.lock);
    return wanted;
}

/* ---- Saying things ---------------------------------------------------------------------------------------------- */

/* One process a node speaks on stderr: the first that is registered; without a region, the one with local rank 0. */
static bool speaks(void)
{
    return plugin.mapping.region != NULL ? plugin.mapping.process == 0 : lagom_local_rank() == 0;
}

/* Why something is not possible here: kept for doctor and the controller, logged by NCCL, said once a node. */
static void remark(const char *text)
{
    lagom_log(NCCL_LOG_WARN, "%s", text);
    snprintf(plugin.remark, sizeof(plugin.remark), "%s", text);
    if (plugin.mapping.region != NULL) {
        memcpy(plugin.mapping.region->processes[plugin.mapping.process].remark, plugin.remark, sizeof(plugin.remark));
    }
    if (speaks()) {
        lagom_say("%s", text);
    }
}

static void say_loaded(const struct lagom_hello *hello, const struct lagom_profiled *profiled)
{
    char rank[16] = "?"; /* only the profiler half is told */
    if (profiled != NULL) {
        snprintf(rank, sizeof(rank), "%" PRIu32, profiled->rank);
    }
    int v = plugin.caller.version;
    lagom_log(NCCL_LOG_INFO,
              "loaded v%s, tuner API v%" PRIu32 ", profiler API v%" PRIu32
              ", NCCL %d.%d.%d from %s, mode %s, rank %s of %" PRIu32 ", log %s",
              LAGOM_VERSION, hello->tuner_api, lagom_profiler_api(), v / 10000, v / 100 % 100, v % 100,
              plugin.caller.path[0] == '\0' ? "an unknown file" : plugin.caller.path,
              lagom_mode_name(plugin.settings.mode), rank, hello->ranks, plugin.folder);
}

/* ---- Joining ---------------------------------------------------------------------------------------------------- */

static uint32_t knobs_of(const struct lagom_hello *hello)
{
    uint32_t knobs = LAGOM_KNOB_CHANNELS | LAGOM_KNOB_ALGORITHM;
    knobs |= hello->tuner_api >= 6 ? LAGOM_KNOB_CHUNK : 0;
    knobs |= hello->comm_id_known ? LAGOM_KNOB_ONLINE : 0;
    return knobs; /* threads: known only at a communicator */
}

static void describe_process(const struct lagom_hello *hello)
{
    struct lagom_process *process = &plugin.mapping.region->processes[plugin.mapping.process];
    process->nccl_version = (uint32_t)plugin.caller.version;
    process->tuner_api = hello->tuner_api;
    process->profiler_api = lagom_profiler_api();
    memcpy(process->libnccl, plugin.caller.path, sizeof(process->libnccl));
    lagom_gpu_name(process->gpu);
    lagom_store_release(&process->knobs, knobs_of(hello));
}

static bool join_region(const struct lagom_hello *hello)
{
    char key[LAGOM_PATH_BYTES];
    char text[LAGOM_PATH_BYTES];
    lagom_job_key(key, hello->comm_id);
    enum lagom_clock clock = plugin.settings.simulated_clock ? LAGOM_CLOCK_SIMULATED : LAGOM_CLOCK_MONOTONIC;
    enum lagom_region_fault fault = lagom_region_join(&plugin.mapping, key, clock);
    if (fault == LAGOM_REGION_OK) {
        describe_process(hello);
        lagom_folder_name(&plugin.settings, plugin.mapping.region->header.created_ns, hello->nodes > 1, plugin.folder);
        return true;
    }
    snprintf(text, sizeof(text), "no tuning here, NCCL runs stock: %s%s%s", lagom_region_fault_text(fault),
             plugin.mapping.error == 0 ? "" : " ", plugin.mapping.error == 0 ? "" : strerror(plugin.mapping.error));
    remark(text);
    return false;
}

/* ---- Replay ----------------------------------------------------------------------------------------------------- */

static void fingerprint_here(const struct lagom_hello *hello, struct lagom_fingerprint *here)
{
    *here = (struct lagom_fingerprint){.nccl_version = (uint32_t)plugin.caller.version,
                                       .ranks = hello->ranks,
                                       .nodes = hello->nodes,
                                       .p2p = lagom_peer_access()};
    lagom_job_size(&here->ranks, &here->nodes);
    lagom_gpu_name(here->gpu);
}

/* NULL = the profile is loaded and fits; else why not. */
static const char *load_profile(const struct lagom_hello *hello, char *reason, size_t room)
{
    struct lagom_fingerprint here;
    if (lagom_profile_load(plugin.settings.profile, &plugin.profile, reason, room) != 0) {
        return reason;
    }
    fingerprint_here(hello, &here);
    const char *why = lagom_fingerprint_mismatch(&plugin.profile.fingerprint, &here, reason, room);
    if (why != NULL) {
        lagom_profile_free(&plugin.profile);
    }
    return why;
}

/* false = LAGOM_MODE=replay without a profile that fits: stock. */
static bool choose_between_replay_and_tune(const struct lagom_hello *hello)
{
    char reason[LAGOM_PATH_BYTES];
    char text[2 * LAGOM_PATH_BYTES];
    bool must = plugin.settings.mode == LAGOM_MODE_REPLAY;
    if (plugin.settings.mode == LAGOM_MODE_TUNE || (!must && plugin.settings.profile[0] == '\0')) {
        return true;
    }
    const char *why = plugin.settings.profile[0] == '\0' ? "LAGOM_MODE=replay, but LAGOM_PROFILE names no file."
                                                         : load_profile(hello, reason, sizeof(reason));
    plugin.replaying = why == NULL;
    if (why != NULL) {
        snprintf(text, sizeof(text), "profile not replayed, NCCL %s: %s", must ? "runs stock" : "starts stock and is tuned", why);
        text[LAGOM_PATH_BYTES - 1] = '\0';
        remark(text);
    }
    return plugin.replaying || !must;
}

/* ---- The controller --------------------------------------------------------------------------------------------- */

static bool controller_is_mine_to_start(void)
{
    struct lagom_header *header = &plugin.mapping.region->header;
    return plugin.settings.spawn && !plugin.replaying && !lagom_region_controller_alive(&plugin.mapping) &&
           lagom_compare_exchange(&header->spawn_claim, 0, (uint64_t)getpid());
}

static void start_controller(void)
{
    char reason[LAGOM_PATH_BYTES];
    char text[2 * LAGOM_PATH_BYTES];
    const struct lagom_spawn spawn = {.python = plugin.settings.python,
                                      .region = plugin.mapping.path,
                                      .folder = plugin.folder,
                                      .simulated_clock = plugin.mapping.region->header.clock == LAGOM_CLOCK_SIMULATED};
    int failure = lagom_folder_make(plugin.folder);
    if (failure != 0) {
        snprintf(reason, sizeof(reason), "the log folder cannot be made (%s); set LAGOM_DIR.", strerror(failure));
    }
    plugin.started_controller = failure == 0 && lagom_spawn_controller(&spawn, reason, sizeof(reason));
    if (plugin.started_controller) {
        lagom_say("tuning this job's collectives; decisions in %s (read them with `lagom log`)", plugin.folder);
    } else {
        snprintf(text, sizeof(text), "no tuning here, NCCL runs stock: %s", reason);
        text[LAGOM_PATH_BYTES - 1] = '\0';
        remark(text);
    }
}

static enum standing first_communicator(const struct lagom_hello *hello, nccl_log_function log, const void *return_address)
{
    lagom_log_open(log, plugin.settings.log_level);
    if (!plugin.settings.mode_understood) {
        remark("LAGOM_MODE is none of auto, tune, replay, off; lagom stands aside.");
    }
    if (plugin.settings.mode == LAGOM_MODE_OFF) {
        return ASIDE;
    }
    lagom_caller_find(&plugin.caller, log, return_address);
    if (!join_region(hello) || !choose_between_replay_and_tune(hello)) {
        return ASIDE;
    }
    if (controller_is_mine_to_start()) {
        start_controller();
    } else if (plugin.replaying && speaks()) {
        lagom_say("replaying %s", plugin.settings.profile);
    }
    return JOINED;
}

/* ---- Communicators ---------------------------------------------------------------------------------------------- */

/* How many communicators of this size this process had made before. */
static uint32_t ordinal_of(const struct lagom_hello *hello)
{
    for (uint32_t i = 0; i < SIZES_REMEMBERED; i++) {
        struct size_count *size = &plugin.sizes[i];
        if (size->made != 0 && size->ranks != hello->ranks) {
            continue;
        }
        if (size->made == 0 || size->last_id != hello->comm_id) {
            *size = (struct size_count){.ranks = hello->ranks, .made = size->made + 1, .last_id = hello->comm_id};
        }
        return size->made - 1;
    }
    return UINT32_MAX;
}

static struct lagom_member *make_member(const struct lagom_hello *hello, struct lagom_profiled *profiled)
{
    char reason[LAGOM_PATH_BYTES];
    const struct lagom_membership membership = {.mapping = &plugin.mapping,
                                                .profile = plugin.replaying ? &plugin.profile : NULL,
                                                .ordinal = ordinal_of(hello),
                                                .threads_wanted = plugin.settings.threads,
                                                .nccl_version = plugin.caller.version};
    struct lagom_member *member = lagom_member_make(&membership, hello, profiled, reason, sizeof(reason));
    if (member == NULL) {
        lagom_log(NCCL_LOG_INFO, "communicator %016" PRIx64 " of %" PRIu32 " ranks: %s", hello->comm_id, hello->ranks, reason);
    }
    return member;
}

/* Tuner v4 is not told the communicator's id; on 2.27 the profiler half is. An id of 0 means "none" in the region. */
static void complete(struct lagom_hello *hello, const struct lagom_profiled *profiled)
{
    if (!hello->comm_id_known && profiled != NULL) {
        hello->comm_id = profiled->comm_id;
        hello->comm_id_known = true;
    }
    hello->comm_id = hello->comm_id_known && hello->comm_id == 0 ? 1 : hello->comm_id;
}

static void remark_unknown_id(void)
{
    if (!plugin.remarked_unknown_id) {
        plugin.remarked_unknown_id = true;
        remark("NCCL does not tell this tuner the communicator's id, so ranks cannot agree and NCCL runs stock: on 2.27 set "
               "NCCL_PROFILER_PLUGIN to this library too; older releases cannot be tuned.");
    }
}

static struct lagom_member *enter(const struct lagom_hello *said, nccl_log_function log, const void *return_address)
{
    struct lagom_profiled *profiled =
        lagom_profiler_announced(said->comm_id_known, said->comm_id, said->ranks, said->nodes);
    struct lagom_hello hello = *said;
    complete(&hello, profiled);
    if (plugin.standing == NOT_YET) {
        plugin.standing = first_communicator(&hello, log, return_address);
        if (plugin.standing == JOINED) {
            say_loaded(&hello, profiled);
        }
    }
    if (plugin.standing != JOINED) {
        return NULL;
    }
    if (!hello.comm_id_known) {
        remark_unknown_id();
        return NULL;
    }
    return make_member(&hello, profiled);
}

void lagom_plugin_enter(const struct lagom_hello *hello, nccl_log_function log, const void *return_address)
{
    if (hello->context_place == NULL) {
        return;
    }
    *hello->context_place = NULL;
    if (hello->ranks < 2 || lagom_load_relaxed(&lagom_plugin_inert)) {
        return; /* NCCL never asks about a communicator of one */
    }
    pthread_mutex_lock(&plugin.lock);
    settings();
    *hello->context_place = enter(hello, log, return_address);
    pthread_mutex_unlock(&plugin.lock);
}

void lagom_plugin_leave(struct lagom_member *member)
{
    if (member == NULL || lagom_load_relaxed(&lagom_plugin_inert)) {
        return;
    }
    pthread_mutex_lock(&plugin.lock);
    lagom_member_end(member, &plugin.mapping);
    pthread_mutex_unlock(&plugin.lock);
}

void lagom_plugin_push_span(const struct lagom_kernel_span *span)
{
    lagom_span_push(plugin.mapping.region, plugin.mapping.process, span);
}

/* ---- The end ---------------------------------------------------------------------------------------------------- */

/* The job's last line, and no file left behind where no controller removes it. The mapping stays, for threads that are
 * still inside NCCL: the second reference outlives the leave. */
__attribute__((destructor)) static void at_exit(void)
{
    struct lagom_mapping reference;
    if (lagom_plugin_inert || plugin.mapping.region == NULL) {
        return;
    }
    if (plugin.started_controller) {
        lagom_say("job over; decisions in %s", plugin.folder);
    }
    if (lagom_region_inspect(&reference, plugin.mapping.path) == LAGOM_REGION_OK) {
        lagom_region_leave(&plugin.mapping, true);
    }
}
