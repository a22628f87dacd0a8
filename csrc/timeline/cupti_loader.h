/* SPDX-License-Identifier: Apache-2.0 */
/* cupti_loader.h - finds the CUPTI that this process uses, or would use, and its functions.
 *
 * First the copy that is loaded already (torch holds one), then the one that belongs to the loaded torch or CUDA
 * runtime. Two copies in one process do not get on. Only the Activity API: cuptiSubscribe and cuptiFinalize would take
 * from the user's profiler what it needs, so they are not even looked up.
 */
#ifndef LAGOM_CUPTI_LOADER_H
#define LAGOM_CUPTI_LOADER_H

#include <limits.h>
#include <stdbool.h>

#include "timeline/cupti_abi.h"

struct lagom_cupti {
    void *library; /* NULL = not open; never closed */
    uint32_t version; /* 18 = CUDA 12.0, 26 = 12.8, from 13.0 on 130000 + ... */
    char path[PATH_MAX];
    int (*get_version)(uint32_t *version);
    int (*enable)(uint32_t kind);
    int (*disable)(uint32_t kind);
    int (*register_callbacks)(cupti_buffer_requested requested, cupti_buffer_completed completed);
    int (*register_timestamp)(cupti_timestamp timestamp);
    int (*get_timestamp)(uint64_t *stamp);
    int (*flush_all)(uint32_t flag);
    int (*next_record)(uint8_t *buffer, size_t valid, void **record);
    int (*dropped)(void *context, uint32_t stream, size_t *count);
    int (*push_external)(uint32_t kind, uint64_t id);
    int (*pop_external)(uint32_t kind, uint64_t *id);
};

/* false = there is none that we know how to read; `reason` is one sentence. */
bool lagom_cupti_open(struct lagom_cupti *cupti, char *reason, size_t room);

#endif
