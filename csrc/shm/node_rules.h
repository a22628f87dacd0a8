/* SPDX-License-Identifier: Apache-2.0 */
/* node_rules.h - the size rules of a node, where ranks have no other way to agree (NCCL before 2.27).
 *
 * NCCL checks nothing: if the file of one rank had another rule, or one rank found it unfit, the job would hang at its
 * first collective. So the first process writes the rules that it has read, even if there are none, and all later processes
 * use those instead of their own. They wait only for the register lock.
 */
#ifndef LAGOM_NODE_RULES_H
#define LAGOM_NODE_RULES_H

#include <stdbool.h>

#include "shm/region.h"

enum lagom_node_rules_result {
    LAGOM_NODE_RULES_MADE = 0,     /* mine is the node's */
    LAGOM_NODE_RULES_SAME = 1,     /* another process had read the same before */
    LAGOM_NODE_RULES_REPLACED = 2, /* another reading stood there: *mine is that one now */
    LAGOM_NODE_RULES_ALONE =
        3, /* the region could not be asked: *mine stays, and equals the others' only if all read alike */
};
enum lagom_node_rules_result lagom_node_rules_settle(const struct lagom_mapping *mapping,
                                                     struct lagom_node_rules *mine);

/* Whether counts and knobs are ones that could have been written: what lies in the region may be garbage. */
bool lagom_node_rules_are_sound(const struct lagom_node_rules *node_rules);

/* The first rule that fits a call on a communicator of that many ranks; all "leave" if none does. Pure. */
struct lagom_config lagom_node_rules_find(const struct lagom_node_rules *node_rules, uint32_t ranks, uint32_t function,
                                          uint64_t bytes);

#endif
