/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/built_channels.h"

#include <stdlib.h>

#include "protocol/lagom_atomic.h"

#define FIRST_UNCHECKED 22902
#define FIRST_BOUNDED 23100

static bool switched_off(void)
{
    const char *enable = getenv("NCCL_ALLGATHERV_ENABLE");
    return enable != NULL && enable[0] != '\0' && atoi(enable) == 0;
}

void lagom_built_channels_open(struct lagom_built_channels *channels, int nccl_version,
                               const struct lagom_nccl_build *build, const void *context_place)
{
    bool unchecked = nccl_version >= FIRST_UNCHECKED && nccl_version < FIRST_BOUNDED && !switched_off();
    *channels = (struct lagom_built_channels){.build = build,
                                              .context_place = context_place,
                                              .most = unchecked && build == NULL ? 1 : LAGOM_ANY_CHANNELS,
                                              .unchecked = unchecked};
}

void lagom_built_channels_look(struct lagom_built_channels *channels)
{
    if (channels->build == NULL) {
        return;
    }
    channels->built = lagom_build_channels(channels->build, channels->context_place);
    if (channels->built == 0 && channels->unchecked) {
        lagom_store_relaxed(&channels->most, 1u);
    }
}

void lagom_built_channels_saw(struct lagom_built_channels *channels, int algorithm, uint32_t count)
{
    bool of_the_ring = algorithm == LAGOM_RING || algorithm == LAGOM_TREE;
    uint32_t before = lagom_load_relaxed(&channels->most);
    while (of_the_ring && count > before && !lagom_compare_exchange32(&channels->most, before, count)) {
        before = lagom_load_relaxed(&channels->most);
    }
}
