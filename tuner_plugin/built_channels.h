/* SPDX-License-Identifier: Apache-2.0 */
/* built_channels.h - how many channels a communicator has, where NCCL does not check our answer.
 *
 * Grouped Broadcasts with several roots (NCCL 2.29.2 to 2.30.x, unless NCCL_ALLGATHERV_ENABLE=0) call the tuner as an
 * AllGather, look the same as one, and run on as many channels as we answer. A channel that was never built is a null
 * pointer in NCCL. From 2.31 on the answer is an upper bound there too, and before 2.29.2 each Broadcast asks for itself.
 *
 * So with these versions an AllGather gets at most the channels known to be built. On a known build that is a member of the communicator
 * (build.h). On other builds it is what the profiler plugin has seen run, one channel until then. All ranks
 * must use the same number, so this rank refuses a plan with more, and then all ranks do. A saved config whose
 * fingerprint fits this NCCL and these ranks is accepted: it comes from a run under the same bound.
 */
#ifndef LAGOM_BUILT_CHANNELS_H
#define LAGOM_BUILT_CHANNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/lagom_protocol.h"
#include "tuner_plugin/build.h"

#define LAGOM_ANY_CHANNELS UINT32_MAX

struct lagom_built_channels {
    const struct lagom_nccl_build *build; /* recognised; NULL = not */
    const void *context_place;
    uint32_t built; /* comm->nChannels; 0 = not looked at yet, or not known */
    uint32_t most;  /* that an AllGather of a plan may say here; LAGOM_ANY_CHANNELS = it is bounded elsewhere. Atomic */
    bool unchecked; /* an AllGather of this NCCL may be one of these */
};

void lagom_built_channels_open(struct lagom_built_channels *channels, int nccl_version,
                               const struct lagom_nccl_build *build, const void *context_place);

/* At the first call: NCCL has built them by now. */
void lagom_built_channels_look(struct lagom_built_channels *channels);

/* The profiler plugin saw a collective of that algorithm run on so many; from any thread. */
void lagom_built_channels_saw(struct lagom_built_channels *channels, int algorithm, uint32_t count);

/* NC for a call with what is known taken into account. */
static inline uint16_t lagom_built_channels_bound(const struct lagom_built_channels *channels, int function,
                                                  uint16_t wanted)
{
    bool beyond = function == LAGOM_ALL_GATHER && channels->unchecked && channels->built != 0 &&
                  wanted > channels->built;
    return beyond ? (uint16_t)channels->built : wanted;
}

#endif
