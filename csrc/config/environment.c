/* SPDX-License-Identifier: Apache-2.0 */
#include "config/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/known_variables.h"

#define KNOWN (sizeof(known) / sizeof(known[0]))
_Static_assert(KNOWN <= LAGOM_START_SETTINGS, "every variable has its place");
_Static_assert(KNOWN <= LAGOM_CONFIG_MAX_ENVIRONMENT, "a saved config can ask for all of them");

bool lagom_environment_is_known(struct lagom_word name)
{
    for (size_t i = 0; i < KNOWN; i++) {
        if (lagom_word_is(name, known[i])) {
            return true;
        }
    }
    return false;
}

uint8_t lagom_environment_value_digest(const char *value)
{
    if (value == NULL || value[0] == '\0') {
        return 0;
    }
    uint32_t hash = 0x811c9dc5u; /* FNV-1a */
    for (; *value != '\0'; value++) {
        hash = (hash ^ (uint8_t)*value) * 0x01000193u;
    }
    return (uint8_t)(1 + hash % 255);
}

void lagom_environment_digest(uint8_t out[LAGOM_START_SETTINGS])
{
    memset(out, 0, LAGOM_START_SETTINGS);
    for (size_t i = 0; i < KNOWN; i++) {
        out[i] = lagom_environment_value_digest(getenv(known[i]));
    }
}

static bool is_there(const struct lagom_environment *list, uint32_t count, struct lagom_word name)
{
    for (uint32_t i = 0; i < count; i++) {
        if (lagom_word_is(name, list[i].name)) {
            return true;
        }
    }
    return false;
}

static struct lagom_word unquoted(struct lagom_word word)
{
    bool quoted = word.length >= 2 && word.text[0] == '"' && word.text[word.length - 1] == '"';
    return quoted ? (struct lagom_word){word.text + 1, word.length - 2} : word;
}

/* Printable, not empty, and short enough to be kept whole. */
static bool is_value(struct lagom_word word)
{
    for (size_t i = 0; i < word.length; i++) {
        if (word.text[i] < ' ' || word.text[i] > '~' || word.text[i] == '"') {
            return false;
        }
    }
    return word.length > 0 && word.length < LAGOM_NAME_BYTES;
}

static void keep(char out[LAGOM_NAME_BYTES], struct lagom_word word)
{
    memcpy(out, word.text, word.length);
    out[word.length] = '\0';
}

const char *lagom_environment_add(struct lagom_environment *list, uint32_t *count, struct lagom_word name,
                                  struct lagom_word value)
{
    value = unquoted(value);
    if (!lagom_environment_is_known(name)) {
        return "is no variable that a saved config may ask for";
    }
    if (is_there(list, *count, name)) {
        return "is asked for twice";
    }
    if (*count == LAGOM_CONFIG_MAX_ENVIRONMENT) {
        return "is one variable too many";
    }
    if (!is_value(value)) {
        return "has no value that could be exported";
    }
    keep(list[*count].name, name);
    keep(list[*count].value, value);
    ++*count;
    return NULL;
}

enum lagom_saved_config lagom_environment_compare(const struct lagom_environment *wanted, uint32_t count,
                                                  struct lagom_refusal *out)
{
    for (uint32_t i = 0; i < count; i++) {
        const char *here = getenv(wanted[i].name);
        if (here == NULL || strcmp(here, wanted[i].value) != 0) {
            *out = (struct lagom_refusal){0};
            snprintf(out->setting, sizeof(out->setting), "%s", wanted[i].name);
            snprintf(out->wanted, sizeof(out->wanted), "%s", wanted[i].value);
            snprintf(out->here, sizeof(out->here), "%s", here != NULL ? here : "");
            return LAGOM_SAVED_CONFIG_OTHER_SETTING;
        }
    }
    return LAGOM_SAVED_CONFIG_FITS;
}
