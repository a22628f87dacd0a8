/* SPDX-License-Identifier: Apache-2.0 */
/* decide.h - one getCollInfo: counts the call, gets its config from the agreement, applies and records it.
 *
 * No lock, no allocation, no system call. A call without a config leaves the cost table and the channel count
 * byte for byte as they were; only with head-room (headroom.h) does it get stock's channels back.
 */
#ifndef LAGOM_DECIDE_H
#define LAGOM_DECIDE_H

#include "tuner_plugin/comm_context.h"
#include "tuner_plugin/nccl_abi.h"

void lagom_decide(struct lagom_comm_context *comm, const struct lagom_call *call);

#endif
