/* SPDX-License-Identifier: Apache-2.0 */
/* rule_text.c - one rule of --set and LAGOM_SET: function:sizes:knobs. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plan/choose.h"
#include "config/config_text.h"
#include "config/words.h"

static bool read_interval(struct lagom_word word, struct lagom_rule *rule)
{
    struct lagom_word from, to;
    return lagom_word_split(word, '-', &from, &to) && lagom_word_bytes(from, &rule->bytes_min) &&
           lagom_word_bytes(to, &rule->bytes_max) && rule->bytes_min <= rule->bytes_max;
}

/* >=1M, <=64K, =436207616, 1M-16M, or any. */
static bool read_sizes(struct lagom_word word, struct lagom_rule *rule)
{
    rule->bytes_min = 0;
    rule->bytes_max = UINT64_MAX;
    if (lagom_word_is(word, "any")) {
        return true;
    }
    if (lagom_word_starts(&word, ">=")) {
        return lagom_word_bytes(word, &rule->bytes_min);
    }
    if (lagom_word_starts(&word, "<=")) {
        return lagom_word_bytes(word, &rule->bytes_max);
    }
    if (lagom_word_starts(&word, "=")) {
        bool read = lagom_word_bytes(word, &rule->bytes_min);
        rule->bytes_max = rule->bytes_min;
        return read;
    }
    return read_interval(word, rule);
}

static const char *read_knobs(struct lagom_word list, struct lagom_config *config)
{
    uint32_t seen = 0;
    struct lagom_word knob, rest;
    while (lagom_word_split(list, ',', &knob, &rest)) {
        const char *wrong = lagom_word_knob(knob, config, &seen);
        if (wrong != NULL) {
            return wrong;
        }
        list = rest;
    }
    return lagom_word_knob(list, config, &seen);
}

static const char *read_rule(struct lagom_word text, struct lagom_rule *rule)
{
    struct lagom_word function, sizes, rest, knobs;
    if (!lagom_word_split(text, ':', &function, &rest) || !lagom_word_split(rest, ':', &sizes, &knobs)) {
        return "a rule is written function:sizes:knobs";
    }
    if (!lagom_word_function(function, true, &rule->function)) {
        return "the function is allgather, reducescatter, allreduce, broadcast, reduce or any";
    }
    if (!read_sizes(sizes, rule)) {
        return "the sizes are >=1M, <=64K, =1048576, 1M-16M or any";
    }
    const char *wrong = read_knobs(knobs, &rule->incumbent);
    rule->candidate = rule->incumbent;
    return wrong;
}

int lagom_rule_parse(const char *text, struct lagom_rule *out, char *error, size_t error_bytes)
{
    struct lagom_rule rule = {.incumbent = LAGOM_CONFIG_STOCK, .candidate = LAGOM_CONFIG_STOCK};
    const char *wrong = read_rule((struct lagom_word){text, strlen(text)}, &rule);
    if (wrong != NULL) {
        snprintf(error, error_bytes, "\"%.80s\": %s, as in \"allgather:>=1M:nc=4,chunk=512K,nt=256\".", text, wrong);
        return -1;
    }
    *out = rule;
    return 0;
}
