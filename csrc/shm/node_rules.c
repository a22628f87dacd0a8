/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/node_rules.h"

#include <string.h>

#include "plan/choose.h"
#include "plan/plan.h"
#include "protocol/lagom_atomic.h"
#include "shm/region_table.h"

static bool rule_is_sound(const struct lagom_rule *rule)
{
    return (rule->function < LAGOM_FUNCTIONS || rule->function == LAGOM_ANY_FUNCTION) &&
           rule->bytes_min <= rule->bytes_max && lagom_config_is_sound(&rule->incumbent);
}

bool lagom_node_rules_are_sound(const struct lagom_node_rules *node_rules)
{
    bool sound = node_rules->rule_count <= LAGOM_MAX_RULES;
    for (uint32_t i = 0; sound && i < node_rules->rule_count; i++) {
        sound = rule_is_sound(&node_rules->rules[i]);
    }
    return sound;
}

static bool same(const struct lagom_node_rules *one, const struct lagom_node_rules *other)
{
    return one->rule_count == other->rule_count &&
           memcmp(one->rank_counts, other->rank_counts, one->rule_count * sizeof(one->rank_counts[0])) == 0 &&
           memcmp(one->rules, other->rules, one->rule_count * sizeof(one->rules[0])) == 0;
}

static enum lagom_node_rules_result take_or_make(struct lagom_node_rules *there, struct lagom_node_rules *mine,
                                                 uint32_t process)
{
    if (lagom_load_acquire(&there->state) != LAGOM_READY) { /* a process that died while it wrote left it FREE */
        mine->process = process;
        mine->state = LAGOM_FREE;
        *there = *mine;
        lagom_store_release(&there->state, (uint32_t)LAGOM_READY);
        return LAGOM_NODE_RULES_MADE;
    }
    struct lagom_node_rules copy = *there;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* what is judged is the copy: it is not read from the region twice */
    if (!lagom_node_rules_are_sound(&copy)) {
        return LAGOM_NODE_RULES_ALONE;
    }
    enum lagom_node_rules_result result = same(&copy, mine) ? LAGOM_NODE_RULES_SAME : LAGOM_NODE_RULES_REPLACED;
    *mine = copy;
    return result;
}

enum lagom_node_rules_result lagom_node_rules_settle(const struct lagom_mapping *mapping, struct lagom_node_rules *mine)
{
    enum lagom_node_rules_result result = LAGOM_NODE_RULES_ALONE;
    lagom_attachments_begin();
    struct lagom_attachment *attachment = mapping->region == NULL ? NULL : lagom_attachment_of(mapping->region);
    if (attachment != NULL && attachment->writable && lagom_table_begin(attachment)) {
        result = take_or_make(&mapping->region->node_rules, mine, mapping->process);
        lagom_table_end(attachment);
    }
    lagom_attachments_end();
    return result;
}

struct lagom_config lagom_node_rules_find(const struct lagom_node_rules *node_rules, uint32_t ranks, uint32_t function,
                                          uint64_t bytes)
{
    for (uint32_t i = 0; i < node_rules->rule_count; i++) {
        bool ours = node_rules->rank_counts[i] == 0 || node_rules->rank_counts[i] == ranks;
        if (ours && lagom_rule_fits(&node_rules->rules[i], function, bytes)) {
            return node_rules->rules[i].incumbent;
        }
    }
    return LAGOM_CONFIG_STOCK;
}
