/* SPDX-License-Identifier: Apache-2.0 */
/* config_match.c - does a saved config fit this job, and which of its sections is this communicator's? */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/config_text.h"

static const char *other_count(char *reason, size_t room, const char *what, uint32_t wanted, uint32_t here)
{
    if (wanted == 0 || wanted == here) {
        return NULL;
    }
    snprintf(reason, room, "made for %" PRIu32 " %s%s, this job has %" PRIu32, wanted, what, wanted == 1 ? "" : "s", here);
    return reason;
}

static const char *other_nccl(char *reason, size_t room, uint32_t wanted, uint32_t here)
{
    if (wanted == 0 || wanted == here) {
        return NULL;
    }
    snprintf(reason, room,
             "made for NCCL %" PRIu32 ".%" PRIu32 ".%" PRIu32 ", this job runs NCCL %" PRIu32 ".%" PRIu32 ".%" PRIu32,
             wanted / 10000, wanted / 100 % 100, wanted % 100, here / 10000, here / 100 % 100, here % 100);
    return reason;
}

static const char *other_gpu(char *reason, size_t room, const char *wanted, const char *here)
{
    if (wanted[0] == '\0' || strcmp(wanted, here) == 0) {
        return NULL;
    }
    snprintf(reason, room, "made on %s, this GPU is %s", wanted,
             here[0] != '\0' ? here : "not known");
    return reason;
}

static const char *other_p2p(char *reason, size_t room, int32_t wanted, int32_t here)
{
    if (wanted < 0 || here < 0 || wanted == here) {
        return NULL;
    }
    snprintf(reason, room, "made %s GPU peer access, this job runs %s it", wanted ? "with" : "without",
             here ? "with" : "without");
    return reason;
}

const char *lagom_fingerprint_mismatch(const struct lagom_fingerprint *wanted, const struct lagom_fingerprint *here,
                                       char *reason, size_t reason_bytes)
{
    const char *why = other_count(reason, reason_bytes, "rank", wanted->ranks, here->ranks);
    if (why == NULL) {
        why = other_count(reason, reason_bytes, "node", wanted->nodes, here->nodes);
    }
    if (why == NULL) {
        why = other_nccl(reason, reason_bytes, wanted->nccl_version, here->nccl_version);
    }
    if (why == NULL) {
        why = other_gpu(reason, reason_bytes, wanted->gpu, here->gpu);
    }
    return why != NULL ? why : other_p2p(reason, reason_bytes, wanted->p2p, here->p2p);
}

/* Names are compared only if both sides have one: without the profiler plugin NCCL reports no name. */
static int same_name(const char *wanted, const char *here)
{
    return wanted[0] == '\0' || here == NULL || here[0] == '\0' || strcmp(wanted, here) == 0;
}

const struct lagom_config_section *lagom_config_file_section_for(const struct lagom_config_file *config,
                                                                 uint32_t rank_count, uint32_t node_count,
                                                                 uint32_t ordinal, const char *name)
{
    for (uint32_t i = 0; i < config->section_count; i++) {
        const struct lagom_config_section *section = &config->sections[i];
        if (section->rank_count == rank_count && section->node_count == node_count && section->ordinal == ordinal &&
            same_name(section->name, name)) {
            return section;
        }
    }
    return NULL;
}
