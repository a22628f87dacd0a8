/* SPDX-License-Identifier: Apache-2.0 */
/* config_match.c - does a saved config fit this job, and which of its sections is this communicator's? */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/config_text.h"

static enum lagom_saved_config other(enum lagom_saved_config cause, const char *wanted, const char *here,
                                     struct lagom_refusal *out)
{
    *out = (struct lagom_refusal){0};
    snprintf(out->wanted, sizeof(out->wanted), "%s", wanted);
    snprintf(out->here, sizeof(out->here), "%s", here);
    return cause;
}

static enum lagom_saved_config other_count(enum lagom_saved_config cause, uint32_t wanted, uint32_t here,
                                           struct lagom_refusal *out)
{
    char ours[16], theirs[16];
    snprintf(ours, sizeof(ours), "%" PRIu32, wanted);
    snprintf(theirs, sizeof(theirs), "%" PRIu32, here);
    return other(cause, ours, theirs, out);
}

static enum lagom_saved_config other_nccl(uint32_t wanted, uint32_t here, struct lagom_refusal *out)
{
    char ours[32], theirs[32];
    snprintf(ours, sizeof(ours), "%" PRIu32 ".%" PRIu32 ".%" PRIu32, wanted / 10000, wanted / 100 % 100, wanted % 100);
    snprintf(theirs, sizeof(theirs), "%" PRIu32 ".%" PRIu32 ".%" PRIu32, here / 10000, here / 100 % 100, here % 100);
    return other(LAGOM_SAVED_CONFIG_OTHER_NCCL, ours, theirs, out);
}

/* 0 and negative: not said, so not compared. */
static bool differs(int64_t wanted, int64_t here)
{
    return wanted > 0 && wanted != here;
}

enum lagom_saved_config lagom_fingerprint_compare(const struct lagom_fingerprint *wanted,
                                                  const struct lagom_fingerprint *here, struct lagom_refusal *out)
{
    if (wanted->simulated && !here->simulated) { /* the other way round, a simulated job tries a real one's */
        return other(LAGOM_SAVED_CONFIG_SIMULATED, "simulated", "real", out);
    }
    if (differs(wanted->ranks, here->ranks)) {
        return other_count(LAGOM_SAVED_CONFIG_OTHER_RANKS, wanted->ranks, here->ranks, out);
    }
    if (differs(wanted->nodes, here->nodes)) {
        return other_count(LAGOM_SAVED_CONFIG_OTHER_NODES, wanted->nodes, here->nodes, out);
    }
    if (differs(wanted->nccl_version, here->nccl_version)) {
        return other_nccl(wanted->nccl_version, here->nccl_version, out);
    }
    if (wanted->gpu[0] != '\0' && strcmp(wanted->gpu, here->gpu) != 0) {
        return other(LAGOM_SAVED_CONFIG_OTHER_GPU, wanted->gpu, here->gpu, out);
    }
    if (wanted->p2p >= 0 && here->p2p >= 0 && wanted->p2p != here->p2p) {
        const char *const words[] = {"without", "with"};
        return other(LAGOM_SAVED_CONFIG_OTHER_PEER_ACCESS, words[wanted->p2p != 0], words[here->p2p != 0], out);
    }
    return LAGOM_SAVED_CONFIG_FITS;
}

static const char *plural(const char *count)
{
    return strcmp(count, "1") == 0 ? "" : "s";
}

void lagom_refusal_text(enum lagom_saved_config cause, const struct lagom_refusal *refusal, char *out, size_t room)
{
    const char *wanted = refusal->wanted, *here = refusal->here;
    switch (cause) {
    case LAGOM_SAVED_CONFIG_OTHER_RANKS:
        snprintf(out, room, "made for %s rank%s, this job has %s", wanted, plural(wanted), here);
        return;
    case LAGOM_SAVED_CONFIG_OTHER_NODES:
        snprintf(out, room, "made for %s node%s, this job has %s", wanted, plural(wanted), here);
        return;
    case LAGOM_SAVED_CONFIG_OTHER_NCCL:
        snprintf(out, room, "made for NCCL %s, this job runs NCCL %s", wanted, here);
        return;
    case LAGOM_SAVED_CONFIG_OTHER_GPU:
        snprintf(out, room, "made on %s, this GPU is %s", wanted, here[0] != '\0' ? here : "not known");
        return;
    case LAGOM_SAVED_CONFIG_OTHER_PEER_ACCESS:
        snprintf(out, room, "made %s GPU peer access, this job runs %s it", wanted, here);
        return;
    case LAGOM_SAVED_CONFIG_OTHER_SETTING:
        snprintf(out, room, "made with %s=%s, %s%s", refusal->setting, wanted,
                 here[0] != '\0' ? "here it is " : "which is not set here", here);
        return;
    case LAGOM_SAVED_CONFIG_SIMULATED:
        snprintf(out, room, "made in a %s job, this job is %s", wanted, here);
        return;
    case LAGOM_SAVED_CONFIG_NONE:
    case LAGOM_SAVED_CONFIG_FITS:
    case LAGOM_SAVED_CONFIG_UNREADABLE: break;
    }
    snprintf(out, room, "%s", cause == LAGOM_SAVED_CONFIG_UNREADABLE ? "it cannot be read" : "");
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
