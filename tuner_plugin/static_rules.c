/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/static_rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/choose.h"
#include "shm/node_rules.h"
#include "tuner_plugin/apply.h"
#include "tuner_plugin/headroom.h"

#define RULE_TEXT 256

static bool refuse(struct lagom_node_rules *out, char *reason, size_t room, const char *text)
{
    *out = (struct lagom_node_rules){0};
    snprintf(reason, room, "%s", text);
    return false;
}

/* ---- From a saved config ---------------------------------------------------------------------------------------- */

static bool same_rules(const struct lagom_plan *one, const struct lagom_plan *other)
{
    return one->rule_count == other->rule_count &&
           memcmp(one->rules, other->rules, one->rule_count * sizeof(one->rules[0])) == 0;
}

/* The first section before `index` that is about communicators of its size; NULL = there is none. */
static const struct lagom_config_section *twin_of(const struct lagom_config_file *config, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++) {
        const struct lagom_config_section *section = &config->sections[i];
        if (section->node_count == 1 && section->rank_count == config->sections[index].rank_count) {
            return section;
        }
    }
    return NULL;
}

static bool add_section(struct lagom_node_rules *out, const struct lagom_config_section *section)
{
    if (out->rule_count + section->content.rule_count > LAGOM_MAX_RULES) {
        return false;
    }
    for (uint32_t i = 0; i < section->content.rule_count; i++) {
        out->rank_counts[out->rule_count] = section->rank_count;
        out->rules[out->rule_count++] = section->content.rules[i];
    }
    return true;
}

bool lagom_static_rules_from_config(const struct lagom_config_file *config, struct lagom_node_rules *out, char *reason,
                                     size_t room)
{
    *out = (struct lagom_node_rules){0};
    for (uint32_t i = 0; i < config->section_count; i++) {
        const struct lagom_config_section *section = &config->sections[i];
        const struct lagom_config_section *twin = twin_of(config, i);
        if (section->node_count != 1) {
            continue;
        }
        if (twin != NULL && !same_rules(&twin->content, &section->content)) {
            return refuse(out, reason, room,
                          "the saved config has different rules for two communicators of one size, and NCCL before 2.27 "
                          "does not distinguish them; give both the same rules.");
        }
        if (twin == NULL && !add_section(out, section)) {
            return refuse(out, reason, room, "the saved config has more than 32 size rules in all; leave some out.");
        }
    }
    return out->rule_count > 0 ||
           refuse(out, reason, room,
                  "the saved config has no size rules for one node, and NCCL before 2.27 cannot follow a program; write "
                  "`rule` lines, or take NCCL >= 2.27.");
}

/* ---- From LAGOM_SET --------------------------------------------------------------------------------------------- */

/* Cuts the next rule off *text into `rule`, blank = none; false at the end, or (with *too_long) at a rule without end.
 */
static bool next_rule(const char **text, char rule[RULE_TEXT], bool *too_long)
{
    size_t length = strcspn(*text, ";\n#");
    size_t blank = strspn(*text, " \t\r");
    blank = blank < length ? blank : length;
    size_t end = length;
    while (end > blank && strchr(" \t\r", (*text)[end - 1]) != NULL) {
        end--;
    }
    *too_long = end - blank >= RULE_TEXT;
    if (**text == '\0' || *too_long) {
        return false;
    }
    snprintf(rule, RULE_TEXT, "%.*s", (int)(end - blank), *text + blank);
    *text += length;
    *text += **text == '#' ? strcspn(*text, "\n") : 0;
    *text += **text != '\0';
    return true;
}

bool lagom_static_rules_from_text(const char *text, struct lagom_node_rules *out, char *reason, size_t room)
{
    char rule[RULE_TEXT], error[RULE_TEXT];
    bool too_long;
    *out = (struct lagom_node_rules){0};
    while (next_rule(&text, rule, &too_long)) {
        if (rule[0] == '\0') {
            continue;
        }
        if (out->rule_count == LAGOM_MAX_RULES) {
            return refuse(out, reason, room, "LAGOM_SET has more than 32 rules; leave some out.");
        }
        if (lagom_rule_parse(rule, &out->rules[out->rule_count], error, sizeof(error)) != 0) {
            return refuse(out, reason, room, error);
        }
        out->rule_count++;
    }
    if (too_long) {
        return refuse(out, reason, room, "LAGOM_SET has a rule of more than 255 characters.");
    }
    return out->rule_count > 0 || refuse(out, reason, room, "LAGOM_SET holds no rule.");
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

bool lagom_static_rules_read(const struct lagom_config_file *config, struct lagom_node_rules *out, char *reason,
                             size_t room)
{
    const char *pins = variable("LAGOM_SET");
    if (config != NULL) {
        return lagom_static_rules_from_config(config, out, reason, room);
    }
    return pins != NULL
               ? lagom_static_rules_from_text(pins, out, reason, room)
               : refuse(out, reason, room, "LAGOM_MODE=replay, but neither LAGOM_CONFIG nor LAGOM_SET is set.");
}

/* ---- What can be done with them --------------------------------------------------------------------------------- */

bool lagom_always_offered(uint32_t function, int algorithm, int protocol)
{
    bool plain = protocol == LAGOM_LL || protocol == LAGOM_SIMPLE;
    return plain && (algorithm == LAGOM_RING || (algorithm == LAGOM_TREE && function == LAGOM_ALL_REDUCE));
}

/* Who withholds the algorithm of a rule, as enum lagom_withheld; 0 = nobody. */
static uint32_t algorithm_withheld(const struct lagom_rule *rule, uint32_t tuner_api, bool user_chooses_algorithm)
{
    const struct lagom_config *config = &rule->incumbent;
    if (tuner_api > 2 || !lagom_config_names_algorithm(config)) {
        return 0; /* from v3 on NCCL's table says for each call what it offers */
    }
    if (user_chooses_algorithm) {
        return LAGOM_WITHHELD_BY_USER;
    }
    bool offered = lagom_always_offered(rule->function, config->algorithm, config->protocol);
    return offered ? 0 : LAGOM_WITHHELD_BY_NCCL;
}

uint32_t lagom_static_rules_restrict(struct lagom_node_rules *rules, uint32_t tuner_api, bool user_chooses_algorithm)
{
    uint32_t withheld = 0;
    for (uint32_t i = 0; i < rules->rule_count; i++) {
        struct lagom_config *config = &rules->rules[i].incumbent;
        withheld |= config->threads != 0 || config->chunk_bytes != 0 ? LAGOM_WITHHELD_KNOBS : 0;
        config->threads = 0;
        config->chunk_bytes = 0;
        uint32_t by = algorithm_withheld(&rules->rules[i], tuner_api, user_chooses_algorithm);
        if (by != 0) {
            *config = LAGOM_CONFIG_STOCK;
            withheld |= by;
        }
        rules->rules[i].candidate = *config;
    }
    return withheld;
}

static const char *withheld_rules(uint32_t withheld)
{
    if (withheld & LAGOM_WITHHELD_BY_USER) {
        return " all rules with an algorithm, because NCCL_ALGO or NCCL_PROTO is set;";
    }
    return withheld & LAGOM_WITHHELD_BY_NCCL
               ? " all rules with an algorithm other than plain ring or tree, because this NCCL does not report what it "
                 "offers;"
               : "";
}

bool lagom_static_rules_restrict_here(struct lagom_node_rules *rules, uint32_t tuner_api, char *text, size_t room)
{
    bool user_chooses = variable("NCCL_ALGO") != NULL || variable("NCCL_PROTO") != NULL;
    uint32_t withheld = lagom_static_rules_restrict(rules, tuner_api, user_chooses);
    if (withheld == 0) {
        return false;
    }
    snprintf(text, room, "size rules that are not used here:%s%s",
             withheld & LAGOM_WITHHELD_KNOBS ? " chunk and threads, because this NCCL accepts them from no tuner;" : "",
             withheld_rules(withheld));
    text[strlen(text) - 1] = '.';
    return true;
}

/* ---- A communicator that uses them ------------------------------------------------------------------------------- */

static bool speaks_for(const struct lagom_node_rules *rules, uint32_t ranks)
{
    for (uint32_t i = 0; i < rules->rule_count; i++) {
        if (rules->rank_counts[i] == 0 || rules->rank_counts[i] == ranks) {
            return true;
        }
    }
    return false;
}

struct lagom_static_comm *lagom_static_comm_create(const struct lagom_node_rules *rules, uint32_t ranks, uint32_t nodes)
{
    struct lagom_static_comm *comm = nodes == 1 && speaks_for(rules, ranks) ? malloc(sizeof(*comm)) : NULL;
    if (comm != NULL) {
        *comm = (struct lagom_static_comm){.mark = LAGOM_STATIC_COMM_MARK, .ranks = ranks, .rules = rules};
    }
    return comm;
}

static struct lagom_config find(const struct lagom_static_comm *comm, int function, size_t bytes)
{
    return lagom_node_rules_find(comm->rules, comm->ranks, (uint32_t)function, bytes);
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

void lagom_static_comm_decide(const struct lagom_static_comm *comm, const struct lagom_call *call)
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
    struct lagom_config config = find(comm, call->function, call->bytes);
    struct lagom_pick pick = carry_out(&table, &stock, &config, call->channels);
    if (config.channels == 0) {
        lagom_headroom_keep_stock(call, &pick, comm->ranks);
    }
}

void lagom_static_comm_decide_v2(const struct lagom_static_comm *comm, int function, size_t bytes, bool coll_net,
                                 int *algorithm, int *protocol, int *channels)
{
    if (!is_known(function) || coll_net || algorithm == NULL || protocol == NULL || channels == NULL) {
        return;
    }
    struct lagom_config config = find(comm, function, bytes);
    if (lagom_config_names_algorithm(&config)) {
        *algorithm = config.algorithm;
        *protocol = config.protocol;
    }
    if (config.channels != 0) {
        *channels = config.channels;
    }
}
