/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/build.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define END_MAGIC 0x0280028002800280ULL
#define PAGE 4096u
#define MOST_CHANNELS 64 /* NCCL's MAXCHANNELS */

const struct lagom_nccl_build *lagom_build_of(const struct lagom_caller *caller)
{
    for (size_t i = 0; i < sizeof(lagom_nccl_builds) / sizeof(lagom_nccl_builds[0]); i++) {
        const struct lagom_nccl_build *build = &lagom_nccl_builds[i];
        if (build->version == caller->version && strcmp(build->build_id, caller->build_id) == 0) {
            return build;
        }
    }
    return NULL;
}

const char *lagom_build_fault_text(enum lagom_build_fault fault)
{
    switch (fault) {
    case LAGOM_BUILD_HOLDS: return "the layout is the known one.";
    case LAGOM_BUILD_UNKNOWN:
        return "this build of NCCL is not known to this version of lagom; NVIDIA's wheels from 2.21.5 to 2.32.3 are.";
    case LAGOM_BUILD_NO_ID:
        return "this NCCL gives no communicator id, which is needed to recognise its memory.";
    case LAGOM_BUILD_NO_MEMORY: return "this is not a communicator of the NCCL that was expected.";
    case LAGOM_BUILD_OTHER: return "this build of NCCL has another layout than NVIDIA's wheel of that version.";
    }
    return "unknown.";
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
    for (size_t at = 0; good && at < bytes; at += PAGE) { /* a byte a page */
        good = byte_readable(pipe_ends, start + at);
    }
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    return good;
}

static bool is_what_init_said(const struct lagom_nccl_build *build, const char *context, uint64_t comm_id,
                              uint32_t ranks)
{
    uint64_t magic;
    uint64_t hash;
    int32_t rank_count;
    memcpy(&magic, context + build->end_magic, sizeof(magic));
    memcpy(&hash, context + build->comm_hash, sizeof(hash));
    memcpy(&rank_count, context + build->ranks, sizeof(rank_count));
    return magic == END_MAGIC && hash == comm_id && rank_count >= 0 && (uint32_t)rank_count == ranks;
}

enum lagom_build_fault lagom_build_check(const struct lagom_nccl_build *build, const void *context_place,
                                         uint64_t comm_id, uint32_t ranks)
{
    const char *context = context_place;
    if (build == NULL) {
        return LAGOM_BUILD_UNKNOWN;
    }
    if (comm_id == 0) {
        return LAGOM_BUILD_NO_ID;
    }
    size_t span = (size_t)(build->end_magic - build->comm_hash) + sizeof(uint64_t); /* the hash comes first of all */
    if (context == NULL || !readable(context + build->comm_hash, span)) {
        return LAGOM_BUILD_NO_MEMORY;
    }
    return is_what_init_said(build, context, comm_id, ranks) ? LAGOM_BUILD_HOLDS : LAGOM_BUILD_OTHER;
}

uint32_t lagom_build_channels(const struct lagom_nccl_build *build, const void *context_place)
{
    int32_t channels;
    memcpy(&channels, (const char *)context_place + build->channels, sizeof(channels));
    return channels >= 1 && channels <= MOST_CHANNELS ? (uint32_t)channels : 0;
}
