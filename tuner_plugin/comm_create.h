/* SPDX-License-Identifier: Apache-2.0 */
/* comm_create.h - makes and frees the context of a communicator. */
#ifndef LAGOM_COMM_CREATE_H
#define LAGOM_COMM_CREATE_H

#include "config/config_text.h"
#include "shm/region.h"
#include "tuner_plugin/comm_context.h"
#include "tuner_plugin/profiler.h"

struct lagom_comm_options {
    struct lagom_mapping *mapping;
    const struct lagom_config_file *config; /* replay; NULL = a controller decides */
    bool may_tune;                       /* replay: a controller may come all the same, and decides then */
    uint32_t ordinal;                    /* among this process's communicators of that size */
    bool threads_wanted;                 /* LAGOM_NT=1 */
    int nccl_version;
    const struct lagom_nccl_build *build; /* NULL = not one we know */
};

/* NULL, with one sentence in `reason`, if there is no place in the region, no memory, or no section of the file. */
struct lagom_comm_context *lagom_comm_create(const struct lagom_comm_options *options,
                                             const struct lagom_init_info *info, struct lagom_profiled *profiled,
                                             char *reason, size_t reason_bytes);
void lagom_comm_destroy(struct lagom_comm_context *comm, struct lagom_mapping *mapping);

#endif
