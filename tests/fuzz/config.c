/* SPDX-License-Identifier: Apache-2.0 */
/* config.c - any bytes as a saved config, and as a rule of --set: read to the last word or refused with one sentence.
 *
 * Input: the text. Its first line is also read as a rule.
 */
#include "text.h"

#include "plan/plan.h"
#include "config/config_text.h"
#include "shm/node_rules.h"
#include "tuner_plugin/static_rules.h"

#define ROOM 160u /* of the sentences: small, so that a long one is cut */

static void expect_sentence(const char *text)
{
    size_t length = strnlen(text, ROOM);
    EXPECT(length > 0 && length < ROOM);
    EXPECT(text[length - 1] == '.' || length == ROOM - 1);
}

/* What was read can be replayed: nothing that a rank would refuse later on. */
static void expect_sound(const struct lagom_config_file *config)
{
    EXPECT(config->section_count <= LAGOM_CONFIG_MAX_SECTIONS);
    for (uint32_t i = 0; i < config->section_count; i++) {
        const struct lagom_config_section *section = &config->sections[i];
        EXPECT(strnlen(section->name, LAGOM_NAME_BYTES) < LAGOM_NAME_BYTES);
        EXPECT(lagom_plan_check_content(&section->content) == LAGOM_PLAN_SOUND);
        const struct lagom_config_section *found = lagom_config_file_section_for(
            config, section->rank_count, section->node_count, section->ordinal, section->name);
        EXPECT(found != NULL && found <= section);
    }
}

static void compare(const struct lagom_fingerprint *wanted)
{
    char reason[ROOM] = "";
    const struct lagom_fingerprint here = {.nccl_version = 23007, .ranks = 8, .nodes = 1, .gpu = "NVIDIA H200"};
    EXPECT(strnlen(wanted->gpu, LAGOM_NAME_BYTES) < LAGOM_NAME_BYTES);
    struct lagom_refusal refusal;
    enum lagom_saved_config fit = lagom_fingerprint_compare(wanted, &here, &refusal);
    if (fit != LAGOM_SAVED_CONFIG_FITS) {
        lagom_refusal_text(fit, &refusal, reason, sizeof(reason));
        size_t length = strnlen(reason, ROOM); /* a clause */
        EXPECT(length > 0 && length < ROOM);
    }
}

/* What NCCL before 2.27 makes of it. */
static void expect_sound_sizes(struct lagom_node_rules *rules, bool read, const char *reason)
{
    if (!read) {
        expect_sentence(reason);
        EXPECT(rules->rule_count == 0);
    }
    lagom_static_rules_restrict(rules, 2, false);
    EXPECT(lagom_node_rules_are_sound(rules));
    const struct lagom_config config = lagom_node_rules_find(rules, 8, LAGOM_ALL_GATHER, 1u << 20);
    EXPECT(lagom_config_is_sound(&config) && config.threads == 0 && config.chunk_bytes == 0);
}

static void read_config(const uint8_t *data, size_t size)
{
    char error[ROOM] = "";
    struct lagom_config_file config;
    if (lagom_config_file_parse((const char *)data, size, &config, error, sizeof(error)) == 0) {
        struct lagom_node_rules sizes;
        expect_sound(&config);
        compare(&config.fingerprint);
        bool read = lagom_static_rules_from_config(&config, &sizes, error, sizeof(error));
        expect_sound_sizes(&sizes, read, error);
    } else {
        expect_sentence(error);
        EXPECT(config.sections == NULL && config.section_count == 0);
    }
    lagom_config_file_free(&config);
}

static void read_rule(const uint8_t *data, size_t size)
{
    char error[ROOM] = "";
    const uint8_t *newline = size > 0 ? memchr(data, '\n', size) : NULL;
    size_t length = newline != NULL ? (size_t)(newline - data) : size;
    char *line = calloc(length + 1, 1);
    struct lagom_rule rule, before;
    memset(&rule, 0xa5, sizeof(rule));
    before = rule;
    memcpy(line, length > 0 ? (const void *)data : "", length);
    if (lagom_rule_parse(line, &rule, error, sizeof(error)) == 0) {
        EXPECT(rule.bytes_min <= rule.bytes_max && lagom_config_is_sound(&rule.incumbent));
        EXPECT(memcmp(&rule.incumbent, &rule.candidate, sizeof(rule.candidate)) == 0);
    } else {
        expect_sentence(error);
        EXPECT(memcmp(&rule, &before, sizeof(rule)) == 0);
    }
    struct lagom_node_rules sizes;
    bool read = lagom_static_rules_from_text(line, &sizes, error, sizeof(error));
    expect_sound_sizes(&sizes, read, error);
    free(line);
}

void fuzz_config(const uint8_t *data, size_t size)
{
    read_config(data, size);
    read_rule(data, size);
}
