/* plan_words.c - plan.c and plan_check.c for GenMC, which knows no access to a field in two sizes.
 *
 * The shipped functions take a plan by words of 8 bytes, two fields of 4 bytes in some. Here each field is taken in its own
 * size, by the same relaxed atomics, in the same order; and only the fields that the scenarios use. */
#include "plan/plan.h"

#include "protocol/lagom_atomic.h"

#define COPY(field) lagom_store_relaxed(&to->field, lagom_load_relaxed(&from->field))

void lagom_plan_copy(struct lagom_plan *to, const struct lagom_plan *from)
{
    COPY(epoch);
    COPY(hash);
    COPY(comm_id);
    COPY(start_call);
    COPY(end_call);
    COPY(history_call);
    COPY(flags);
    COPY(rule_count);
    COPY(rules[0].bytes_max);
    COPY(rules[0].incumbent.channels);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * 0x9e3779b97f4a7c15ULL;
}

uint64_t lagom_plan_content_hash(const struct lagom_plan *plan)
{
    return mix(mix(mix(1, plan->rule_count), plan->rules[0].bytes_max), plan->rules[0].incumbent.channels);
}

uint64_t lagom_plan_hash(const struct lagom_plan *plan)
{
    uint64_t hash = mix(mix(lagom_plan_content_hash(plan), plan->epoch), plan->comm_id);
    return mix(mix(mix(mix(hash, plan->start_call), plan->end_call), plan->history_call), plan->flags);
}

enum lagom_plan_fault lagom_plan_check_content(const struct lagom_plan *plan)
{
    return plan->rule_count <= LAGOM_MAX_RULES ? LAGOM_PLAN_SOUND : LAGOM_PLAN_BAD_COUNT;
}

enum lagom_plan_fault lagom_plan_check(const struct lagom_plan *plan, uint64_t comm_id)
{
    if (plan->hash != lagom_plan_hash(plan)) {
        return LAGOM_PLAN_BAD_HASH;
    }
    if (plan->comm_id != comm_id) {
        return LAGOM_PLAN_BAD_COMMUNICATOR;
    }
    return plan->history_call < plan->start_call ? lagom_plan_check_content(plan) : LAGOM_PLAN_BAD_LEASE;
}

int lagom_plan_sets_threads(const struct lagom_plan *plan)
{
    (void)plan;
    return 0;
}

uint32_t lagom_plan_most_channels(const struct lagom_plan *plan, uint32_t function)
{
    (void)function;
    return plan->rules[0].incumbent.channels;
}
