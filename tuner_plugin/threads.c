/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/threads.h"

#include <stdio.h>
#include <string.h>

#include "protocol/lagom_atomic.h"

static bool refuse(char *reason, size_t room, const char *text)
{
    snprintf(reason, room, "%s", text);
    return false;
}

void lagom_threads_open(struct lagom_threads *threads, const struct lagom_nccl_build *build, void *context_place)
{
    char *context = context_place;
    *threads = (struct lagom_threads){.possible = true,
                                      .max_threads = (void *)(context + build->max_threads),
                                      .thresholds = (void *)(context + build->thresholds)};
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
