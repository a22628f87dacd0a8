/* SPDX-License-Identifier: Apache-2.0 */
/* apply.h - from a config to NCCL's cost table and channel count, for both deciders: an agreed plan (decide.c) or
 * size rules (static_rules.c). Pure: nothing but its arguments. */
#ifndef LAGOM_APPLY_H
#define LAGOM_APPLY_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/lagom_protocol.h"
#include "tuner_plugin/cost_table.h"

static inline bool lagom_config_names_algorithm(const struct lagom_config *config)
{
    return config->algorithm != LAGOM_LEAVE || config->protocol != LAGOM_LEAVE;
}

static inline bool lagom_config_is_stock(const struct lagom_config *config)
{
    return !lagom_config_names_algorithm(config) && config->channels == 0 && config->threads == 0 &&
           config->chunk_bytes == 0;
}

/* Whether NCCL limits our answer to the channels it has built. On CollNet, and NVLS over several nodes, it does not, and
 * would use an uninitialised channel; NCCL never reports how many there are. */
static inline bool lagom_channels_are_bounded(int algorithm, uint32_t nodes)
{
    switch (algorithm) {
    case LAGOM_TREE:
    case LAGOM_RING:
    case LAGOM_PAT: return true;
    case LAGOM_NVLS:
    case LAGOM_NVLS_TREE: return nodes == 1;
    default: return false;
    }
}

/* What NCCL will use under that config: the stock pick where it names no algorithm; index < 0 = it names something that
 * is not offered, and then nothing of it may be done: a config is one thing. */
static inline struct lagom_pick lagom_pick_for(const struct lagom_cost_table *table, const struct lagom_pick *stock,
                                               const struct lagom_config *config)
{
    return lagom_config_names_algorithm(config) ? lagom_cost_table_find(table, config->algorithm, config->protocol)
                                                : *stock;
}

/* true = NCCL will now take another entry. */
static inline bool lagom_apply_algorithm(const struct lagom_cost_table *table, const struct lagom_pick *stock,
                                         const struct lagom_pick *pick, const struct lagom_config *config)
{
    return lagom_config_names_algorithm(config) && lagom_cost_table_choose(table, pick, stock);
}

/* Takes the channels out of the config where they cannot be given. true = *channels was written. */
static inline bool lagom_apply_channels(int *channels, int algorithm, uint32_t nodes, struct lagom_config *config)
{
    if (config->channels == 0 || !lagom_channels_are_bounded(algorithm, nodes)) {
        config->channels = 0;
        return false;
    }
    *channels = config->channels;
    return true;
}

#endif
