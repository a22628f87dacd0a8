/* SPDX-License-Identifier: Apache-2.0 */
/* choose.h - (plan, point, call) -> config. Pure; no memory but its arguments. */
#ifndef LAGOM_CHOOSE_H
#define LAGOM_CHOOSE_H

#include <stdbool.h>

#include "plan/cursor.h"
#include "protocol/lagom_protocol.h"

static inline bool lagom_rule_fits(const struct lagom_rule *rule, uint32_t function, uint64_t bytes)
{
    return (rule->function == function || rule->function == LAGOM_ANY_FUNCTION) && bytes >= rule->bytes_min &&
           bytes <= rule->bytes_max;
}

struct lagom_choice {
    struct lagom_config config; /* all "leave" = stock */
    bool candidate;             /* the candidate's turn, and the call is before the lease's end */
};

/* Order: the program's site; else the first rule that fits; else nothing.
 * The candidate is in force where the plan has one, call < end_call, the program is armed, and the block
 * (iteration / alternate_iterations) modulo 4 is 1 or 2: incumbent, candidate, candidate, incumbent cancels linear
 * drift. With position_count 0 there are no iterations: the candidate holds for the whole lease. */
struct lagom_choice lagom_choose(const struct lagom_plan *plan, const struct lagom_program_point *point, uint64_t call,
                                 uint32_t function, uint64_t bytes);

#define LAGOM_CONFIG_STOCK ((struct lagom_config){.algorithm = LAGOM_LEAVE, .protocol = LAGOM_LEAVE})

#endif
