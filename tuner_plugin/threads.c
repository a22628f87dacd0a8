#include "tuner_plugin/threads.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "protocol/lagom_atomic.h"

#define END_MAGIC 0x0280028002800280ULL

/* Bytes from &comm->tunerContext to members of struct ncclComm, from the debug information of every nvidia-nccl wheel
 * of that version, cu12 and cu13 alike. A version that is not here is refused. */
struct build {
    int version_min;
    int version_max;
    int max_threads;
    int thresholds;
    int ranks;
    int comm_hash;
    int end_magic;
};

static const struct build builds[] = {
    {22703, 22703, -6736, -7744, -8324, -8336, 5816},   {22705, 22707, -6736, -7744, -8324, -8336, 5816},
    {22803, 22803, -6752, -7760, -9516, -9528, 6104},   {22807, 22807, -6752, -7760, -9516, -9528, 7248},
    {22809, 22809, -6752, -7760, -9516, -9528, 7248},   {22902, 22903, -7360, -8368, -10124, -10136, 7960},
    {22907, 22907, -7360, -8368, -10124, -10136, 8056}, {23003, 23004, -7352, -8360, -10132, -10144, 8176},
    {23007, 23007, -7352, -8360, -10132, -10144, 8176}, {23102, 23102, -8712, -8880, -12340, -12352, 2696},
    {23203, 23203, -8728, -8896, -12364, -12376, 2744},
};

static const struct build *find_build(int version)
{
    for (size_t i = 0; i < sizeof(builds) / sizeof(builds[0]); i++) {
        if (version >= builds[i].version_min && version <= builds[i].version_max) {
            return &builds[i];
        }
    }
    return NULL;
}

/* Whether a byte can be read, asked of the kernel: a wrong address costs an EFAULT, not the process. */
static bool byte_readable(const int pipe_ends[2], const char *at)
{
    char unused;
    return write(pipe_ends[1], at, 1) == 1 && read(pipe_ends[0], &unused, 1) == 1;
}

static bool readable(const char *start, size_t bytes)
{
    int pipe_ends[2];
    if (pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return false;
    }
    bool good = byte_readable(pipe_ends, start + bytes - 1);
    for (size_t at = 0; good && at < bytes; at += 4096) { /* a byte a page */
        good = byte_readable(pipe_ends, start + at);
    }
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    return good;
}

static bool refuse(char *reason, size_t room, const char *text)
{
    snprintf(reason, room, "%s", text);
    return false;
}

static bool guards_hold(const char *context, const struct build *build, uint64_t comm_id, uint32_t ranks)
{
    uint64_t magic;
    uint64_t hash;
    int32_t rank_count;
    memcpy(&magic, context + build->end_magic, sizeof(magic));
    memcpy(&hash, context + build->comm_hash, sizeof(hash));
    memcpy(&rank_count, context + build->ranks, sizeof(rank_count));
    return magic == END_MAGIC && hash == comm_id && rank_count >= 0 && (uint32_t)rank_count == ranks;
}

bool lagom_threads_open(struct lagom_threads *threads, void *context_place, int nccl_version, uint64_t comm_id,
                        uint32_t ranks, char *reason, size_t reason_bytes)
{
    *threads = (struct lagom_threads){.possible = false};
    const struct build *build = find_build(nccl_version);
    char *context = context_place;
    if (build == NULL) {
        snprintf(reason, reason_bytes, "NT is off: the layout of NCCL %d is not known to this version of lagom.",
                 nccl_version);
        return false;
    }
    size_t span = (size_t)(build->end_magic - build->comm_hash) + sizeof(uint64_t);
    if (context == NULL || !readable(context + build->comm_hash, span)) {
        return refuse(reason, reason_bytes, "NT is off: this is not a communicator of the NCCL that was expected.");
    }
    if (!guards_hold(context, build, comm_id, ranks)) {
        return refuse(reason, reason_bytes, "NT is off: this build of NCCL has another layout than NVIDIA's wheels.");
    }
    threads->max_threads = (void *)(context + build->max_threads);
    threads->thresholds = (void *)(context + build->thresholds);
    threads->possible = true;
    return true;
}

static bool row_is(const int32_t row[LAGOM_PROTOCOLS], int32_t ll, int32_t ll128, int32_t simple)
{
    return row[LAGOM_LL] == ll && row[LAGOM_LL128] == ll128 && row[LAGOM_SIMPLE] == simple;
}

/* What ncclTopoTuneModel leaves without NCCL_NTHREADS: rare enough to be a signature. */
static bool pattern_holds(int32_t (*rows)[LAGOM_PROTOCOLS])
{
    return row_is(rows[LAGOM_TREE], 512, 640, 512) &&
           (row_is(rows[LAGOM_RING], 512, 640, 512) || row_is(rows[LAGOM_RING], 512, 640, 256)) &&
           row_is(rows[LAGOM_COLLNET_DIRECT], 0, 0, 640) && row_is(rows[LAGOM_COLLNET_CHAIN], 0, 0, 640) &&
           row_is(rows[LAGOM_NVLS], 0, 0, 640) && row_is(rows[LAGOM_NVLS_TREE], 0, 0, 640);
}

bool lagom_threads_confirm(struct lagom_threads *threads, char *reason, size_t reason_bytes)
{
    threads->confirmed = true;
    if (!threads->possible) {
        return false;
    }
    if (!pattern_holds(threads->max_threads)) {
        threads->possible = false;
        return refuse(
            reason, reason_bytes,
            "NT is off: NCCL's thread table is not the usual one; is NCCL_NTHREADS or NCCL_LL128_NTHREADS set?");
    }
    memcpy(threads->default_threads, threads->max_threads[LAGOM_RING], sizeof(threads->default_threads));
    memcpy(threads->default_thresholds, threads->thresholds[LAGOM_RING], sizeof(threads->default_thresholds));
    return true;
}

void lagom_threads_remark(struct lagom_process *process, const char *reason)
{
    static uint32_t remarked; /* communicators meet their first call on different threads */
    if (lagom_compare_exchange32(&remarked, 0, 1) && process->remark[0] == '\0') {
        snprintf(process->remark, sizeof(process->remark), "%s", reason);
    }
}

static bool in_range(int protocol, uint32_t count)
{
    if (protocol < 0 || protocol >= LAGOM_PROTOCOLS || count % 32 != 0) {
        return false;
    }
    return protocol == LAGOM_LL128 ? count >= 160 && count <= 640 : count >= 96 && count <= 512;
}

bool lagom_threads_set(struct lagom_threads *threads, int protocol, uint32_t count, bool exact)
{
    if (!threads->possible || !threads->confirmed || !in_range(protocol, count)) {
        return false;
    }
    threads->max_threads[LAGOM_RING][protocol] = (int32_t)count;
    if (exact) {
        threads->thresholds[LAGOM_RING][protocol] = 0;
    }
    threads->changed = true;
    threads->changed_protocol = (uint8_t)protocol;
    return true;
}

void lagom_threads_put_back(struct lagom_threads *threads)
{
    int protocol = threads->changed_protocol;
    threads->max_threads[LAGOM_RING][protocol] = threads->default_threads[protocol];
    threads->thresholds[LAGOM_RING][protocol] = threads->default_thresholds[protocol];
    threads->changed = false;
}
