/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/choose.h"

static bool leased(const struct lagom_plan *plan, uint64_t call)
{
    return (plan->flags & LAGOM_PLAN_HAS_CANDIDATE) != 0 && call < plan->end_call;
}

/* Blocks 1 and 2 of incumbent, candidate, candidate, incumbent. */
static bool candidates_turn(const struct lagom_plan *plan, const struct lagom_program_point *point)
{
    return plan->position_count == 0 || (point->armed && (point->block == 1 || point->block == 2));
}

static struct lagom_config by_rule(const struct lagom_plan *plan, bool candidate, uint32_t function, uint64_t bytes)
{
    for (uint32_t i = 0; i < plan->rule_count; i++) {
        const struct lagom_rule *rule = &plan->rules[i];
        if (lagom_rule_fits(rule, function, bytes)) {
            return candidate ? rule->candidate : rule->incumbent;
        }
    }
    return LAGOM_CONFIG_STOCK;
}

struct lagom_choice lagom_choose(const struct lagom_plan *plan, const struct lagom_program_point *point, uint64_t call,
                                 uint32_t function, uint64_t bytes)
{
    bool candidate = leased(plan, call) && candidates_turn(plan, point);
    if (!point->in_program) {
        return (struct lagom_choice){.config = by_rule(plan, candidate, function, bytes), .candidate = candidate};
    }
    const struct lagom_site *site = &plan->sites[point->site];
    return (struct lagom_choice){.config = candidate ? site->candidate : site->incumbent, .candidate = candidate};
}
