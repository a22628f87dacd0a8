/* SPDX-License-Identifier: Apache-2.0 */
/* injection.c - CUDA_INJECTION64_PATH=liblagom_timeline.so: CUDA loads us into every process that uses it.
 *
 * All that is gained is an early look: CUPTI is found and loaded before the first context is made. Recording starts, as
 * always, when the plugin attaches and the controller asks. torchrun itself, data loaders and helpers are no ranks:
 * nothing happens there.
 */
#include <stdlib.h>

#include "timeline/cupti_loader.h"
#include "timeline/liblagom_timeline.h"

static int is_rank(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (getenv(names[i]) != NULL) {
            return 1;
        }
    }
    return 0;
}

int InitializeInjection(void)
{
    static struct lagom_cupti cupti; /* its path alone is 4 KiB */
    char reason[LAGOM_PATH_BYTES];
    if (is_rank()) {
        lagom_cupti_open(&cupti, reason, sizeof(reason)); /* if it fails, the plugin says so when it is asked */
    }
    return 1; /* success: anything else makes CUDA complain */
}
