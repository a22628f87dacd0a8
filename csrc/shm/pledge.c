#include "shm/pledge.h"

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

bool lagom_pledge_is_sound(const struct lagom_pledge *pledge)
{
    bool sound = pledge->rule_count <= LAGOM_MAX_RULES;
    for (uint32_t i = 0; sound && i < pledge->rule_count; i++) {
        sound = rule_is_sound(&pledge->rules[i]);
    }
    return sound;
}

static bool same(const struct lagom_pledge *one, const struct lagom_pledge *other)
{
    return one->rule_count == other->rule_count &&
           memcmp(one->rank_counts, other->rank_counts, one->rule_count * sizeof(one->rank_counts[0])) == 0 &&
           memcmp(one->rules, other->rules, one->rule_count * sizeof(one->rules[0])) == 0;
}

static enum lagom_pledge_result take_or_make(struct lagom_pledge *there, struct lagom_pledge *mine, uint32_t process)
{
    if (lagom_load_acquire(&there->state) != LAGOM_READY) { /* a process that died while it wrote left it FREE */
        mine->process = process;
        mine->state = LAGOM_FREE;
        *there = *mine;
        lagom_store_release(&there->state, (uint32_t)LAGOM_READY);
        return LAGOM_PLEDGE_MADE;
    }
    struct lagom_pledge copy = *there;
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* what is judged is the copy: it is not read from the region twice */
    if (!lagom_pledge_is_sound(&copy)) {
        return LAGOM_PLEDGE_ALONE;
    }
    enum lagom_pledge_result result = same(&copy, mine) ? LAGOM_PLEDGE_SAME : LAGOM_PLEDGE_REPLACED;
    *mine = copy;
    return result;
}

enum lagom_pledge_result lagom_pledge_settle(const struct lagom_mapping *mapping, struct lagom_pledge *mine)
{
    enum lagom_pledge_result result = LAGOM_PLEDGE_ALONE;
    lagom_attachments_lock();
    struct lagom_attachment *attachment = mapping->region == NULL ? NULL : lagom_attachment_of(mapping->region);
    if (attachment != NULL && attachment->writable && lagom_table_begin(attachment)) {
        result = take_or_make(&mapping->region->pledge, mine, mapping->process);
        lagom_table_end(attachment);
    }
    lagom_attachments_unlock();
    return result;
}

struct lagom_config lagom_pledge_find(const struct lagom_pledge *pledge, uint32_t ranks, uint32_t function,
                                      uint64_t bytes)
{
    for (uint32_t i = 0; i < pledge->rule_count; i++) {
        bool ours = pledge->rank_counts[i] == 0 || pledge->rank_counts[i] == ranks;
        if (ours && lagom_rule_fits(&pledge->rules[i], function, bytes)) {
            return pledge->rules[i].incumbent;
        }
    }
    return LAGOM_CONFIG_STOCK;
}
