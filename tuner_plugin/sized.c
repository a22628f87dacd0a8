#include "tuner_plugin/sized.h"

#include <stdlib.h>

#include "plan/choose.h"
#include "shm/node_rules.h"
#include "tuner_plugin/apply.h"
#include "tuner_plugin/headroom.h"

static bool speaks_for(const struct lagom_node_rules *rules, uint32_t ranks)
{
    for (uint32_t i = 0; i < rules->rule_count; i++) {
        if (rules->rank_counts[i] == 0 || rules->rank_counts[i] == ranks) {
            return true;
        }
    }
    return false;
}

struct lagom_sized *lagom_sized_make(const struct lagom_node_rules *rules, uint32_t ranks, uint32_t nodes)
{
    struct lagom_sized *sized = nodes == 1 && speaks_for(rules, ranks) ? malloc(sizeof(*sized)) : NULL;
    if (sized != NULL) {
        *sized = (struct lagom_sized){.mark = LAGOM_SIZED_MARK, .ranks = ranks, .rules = rules};
    }
    return sized;
}

static struct lagom_config find(const struct lagom_sized *sized, int function, size_t bytes)
{
    return lagom_node_rules_find(sized->rules, sized->ranks, (uint32_t)function, bytes);
}

static bool is_known(int function)
{
    return function >= 0 && function < LAGOM_FUNCTIONS;
}

/* The pick NCCL will take; channels are set where the rule names them and NCCL bounds them. */
static struct lagom_pick carry_out(const struct lagom_cost_table *table, const struct lagom_pick *stock,
                                   struct lagom_config *config, int *channels)
{
    struct lagom_pick pick = lagom_pick_for(table, stock, config);
    if (pick.index < 0) {
        *config = LAGOM_CONFIG_STOCK;
        return *stock;
    }
    lagom_apply_algorithm(table, stock, &pick, config);
    lagom_apply_channels(channels, pick.algorithm, 1, config);
    return pick;
}

void lagom_sized_decide(const struct lagom_sized *sized, const struct lagom_call *call)
{
    struct lagom_cost_table table;
    if (!is_known(call->function) || call->channels == NULL ||
        !lagom_cost_table_open(&table, call->costs, call->algorithms, call->protocols)) {
        return;
    }
    struct lagom_pick stock = lagom_cost_table_stock(&table);
    if (stock.index < 0) {
        return;
    }
    struct lagom_config config = find(sized, call->function, call->bytes);
    struct lagom_pick pick = carry_out(&table, &stock, &config, call->channels);
    if (config.channels == 0) {
        lagom_headroom_keep_stock(call, &pick, sized->ranks);
    }
}

void lagom_sized_answer(const struct lagom_sized *sized, int function, size_t bytes, bool coll_net, int *algorithm,
                        int *protocol, int *channels)
{
    if (!is_known(function) || coll_net || algorithm == NULL || protocol == NULL || channels == NULL) {
        return;
    }
    struct lagom_config config = find(sized, function, bytes);
    if (lagom_config_names_algorithm(&config)) {
        *algorithm = config.algorithm;
        *protocol = config.protocol;
    }
    if (config.channels != 0) {
        *channels = config.channels;
    }
}
