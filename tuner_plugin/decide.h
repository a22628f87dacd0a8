/* decide.h - one getCollInfo: count the call, ask the agreement, change what NCCL is about to use, record.
 *
 * No lock, no allocation, no system call. A call that nothing is decided for leaves the cost table and the channel
 * count byte for byte as they were; only with head-room (headroom.h) it is given stock's channels back.
 */
#ifndef LAGOM_DECIDE_H
#define LAGOM_DECIDE_H

#include "tuner_plugin/comm_context.h"
#include "tuner_plugin/nccl_abi.h"

void lagom_decide(struct lagom_comm_context *comm, const struct lagom_call *call);

#endif
