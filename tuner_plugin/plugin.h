/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.h - what this process has once: settings, the mapping of the region, a saved config. Made at the first
 * communicator.
 *
 * Nothing happens before that: torchrun's own process, `python -c` helpers and DataLoader workers load or inherit this
 * library too, and must not be affected. A forked child does nothing.
 */
#ifndef LAGOM_PLUGIN_H
#define LAGOM_PLUGIN_H

#include <stdbool.h>

#include "tuner_plugin/nccl_abi.h"

#define LAGOM_VERSION "0.1.0"

/* Tuner init of one communicator: leaves its context, or NULL = NCCL goes on without us. With head-room a communicator
 * that is not joined gets a passthrough context (headroom.h) instead: every rank must go on with stock's channels. */
void lagom_plugin_enter(const struct lagom_init_info *info, nccl_log_function log, const void *return_address);
struct lagom_comm_context;
void lagom_plugin_leave(struct lagom_comm_context *comm);

/* Whether the profiler plugin may hand out contexts: not in LAGOM_MODE=off, not in a forked child. */
bool lagom_plugin_wanted(void);

/* True in a child of fork: NCCL does not work there either, and the parent's memory is not ours. */
extern bool lagom_plugin_inert;

#endif
