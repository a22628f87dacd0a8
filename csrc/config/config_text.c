/* SPDX-License-Identifier: Apache-2.0 */
/* config_text.c - the saved config's document: header, fingerprint, sections. Its words are read by words.c. */
#include "config/config_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/choose.h"
#include "plan/plan.h"
#include "config/scan.h"
#include "config/words.h"

#define TITLE "lagom-config"
#define VERSION 1u

struct parser {
    struct lagom_scan scan;
    bool titled; /* the first line was read */
    struct lagom_config_section *section; /* NULL = between sections */
    struct lagom_config_file *config;
    char *error;
    size_t error_bytes;
};

__attribute__((format(printf, 2, 3))) static bool fail(struct parser *parser, const char *format, ...)
{
    char sentence[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof(sentence), format, arguments);
    va_end(arguments);
    snprintf(parser->error, parser->error_bytes, "line %u: %s.", parser->scan.line_number, sentence);
    return false;
}

/* ---- Words ------------------------------------------------------------------------------------------------------ */

static bool no_more_words(struct parser *parser)
{
    struct lagom_word extra;
    return !lagom_scan_word(&parser->scan, &extra) ||
           fail(parser, "\"%.*s\" is one word too many", (int)extra.length, extra.text);
}

/* With or without quotes; into a fixed field, whole or not at all. */
static bool read_text(struct lagom_word word, char out[LAGOM_NAME_BYTES])
{
    if (word.length >= 2 && word.text[0] == '"' && word.text[word.length - 1] == '"') {
        word = (struct lagom_word){word.text + 1, word.length - 2};
    }
    if (word.length >= LAGOM_NAME_BYTES || memchr(word.text, '"', word.length) != NULL) {
        return false;
    }
    memcpy(out, word.text, word.length);
    out[word.length] = '\0';
    return true;
}

static bool read_number(struct lagom_word word, uint32_t *out)
{
    uint64_t value;
    if (!lagom_word_number(word, UINT32_MAX, &value)) {
        return false;
    }
    *out = (uint32_t)value;
    return true;
}

/* ---- fingerprint ------------------------------------------------------------------------------------------------ */

static bool read_yes_or_no(struct lagom_word word, uint32_t *out)
{
    return read_number(word, out) && *out <= 1;
}

static bool read_p2p(struct lagom_word word, int32_t *out)
{
    uint32_t value;
    if (!read_yes_or_no(word, &value)) {
        return false;
    }
    *out = (int32_t)value;
    return true;
}

/* Keys that only Python compares (torch, driver ...) are read over; they must have one value like the others. */
static bool store_fingerprint(struct lagom_fingerprint *print, struct lagom_word key, struct lagom_word value)
{
    char ignored[LAGOM_NAME_BYTES];
    if (lagom_word_is(key, "nccl")) {
        return read_number(value, &print->nccl_version);
    }
    if (lagom_word_is(key, "ranks")) {
        return read_number(value, &print->ranks);
    }
    if (lagom_word_is(key, "nodes")) {
        return read_number(value, &print->nodes);
    }
    if (lagom_word_is(key, "p2p")) {
        return read_p2p(value, &print->p2p);
    }
    if (lagom_word_is(key, "simulated")) {
        return read_yes_or_no(value, &print->simulated);
    }
    return read_text(value, lagom_word_is(key, "gpu") ? print->gpu : ignored);
}

static bool parse_fingerprint(struct parser *parser)
{
    struct lagom_word key, value;
    if (parser->section != NULL) {
        return fail(parser, "a fingerprint stands before the first communicator, not inside one");
    }
    if (!lagom_scan_word(&parser->scan, &key) || !lagom_scan_word(&parser->scan, &value)) {
        return fail(parser, "a fingerprint is a key and a value");
    }
    if (!store_fingerprint(&parser->config->fingerprint, key, value)) {
        return fail(parser, "\"%.*s\" is no value for the fingerprint %.*s", (int)value.length, value.text,
                    (int)key.length, key.text);
    }
    return no_more_words(parser);
}

/* ---- environment ------------------------------------------------------------------------------------------------ */

static bool parse_environment(struct parser *parser)
{
    struct lagom_config_file *config = parser->config;
    struct lagom_word name, value;
    if (parser->section != NULL) {
        return fail(parser, "an environment line stands before the first communicator, not inside one");
    }
    if (!lagom_scan_word(&parser->scan, &name) || !lagom_scan_word(&parser->scan, &value)) {
        return fail(parser, "an environment line is a variable and its value");
    }
    const char *wrong = lagom_environment_add(config->environment, &config->environment_count, name, value);
    if (wrong != NULL) {
        return fail(parser, "\"%.*s\" %s", (int)name.length, name.text, wrong);
    }
    return no_more_words(parser);
}

/* ---- communicator ... end --------------------------------------------------------------------------------------- */

static struct lagom_config_section *add_section(struct lagom_config_file *config)
{
    size_t bytes = (config->section_count + 1) * sizeof(*config->sections);
    struct lagom_config_section *sections = realloc(config->sections, bytes);
    if (sections == NULL) {
        return NULL;
    }
    config->sections = sections;
    memset(&sections[config->section_count], 0, sizeof(*sections));
    return &sections[config->section_count++];
}

/* Bits: ranks 1, nodes 2, ordinal 4, name 8. 0 = no such field, or no such value. */
static uint32_t store_field(struct lagom_config_section *section, struct lagom_word key, struct lagom_word value)
{
    if (lagom_word_is(key, "ranks")) {
        return read_number(value, &section->rank_count) ? 1 : 0;
    }
    if (lagom_word_is(key, "nodes")) {
        return read_number(value, &section->node_count) ? 2 : 0;
    }
    if (lagom_word_is(key, "ordinal")) {
        return read_number(value, &section->ordinal) ? 4 : 0;
    }
    return lagom_word_is(key, "name") && read_text(value, section->name) ? 8 : 0;
}

static bool parse_communicator(struct parser *parser)
{
    struct lagom_word word, key, value;
    uint32_t seen = 0;
    if (parser->section != NULL) {
        return fail(parser, "the communicator before this one has no end");
    }
    if (parser->config->section_count == LAGOM_CONFIG_MAX_SECTIONS) {
        return fail(parser, "there are more than %u communicators", LAGOM_CONFIG_MAX_SECTIONS);
    }
    if ((parser->section = add_section(parser->config)) == NULL) {
        return fail(parser, "there is no memory for another communicator");
    }
    while (lagom_scan_word(&parser->scan, &word)) {
        bool split = lagom_word_split(word, '=', &key, &value);
        uint32_t field = split ? store_field(parser->section, key, value) : 0;
        if (field == 0 || (seen & field) != 0) {
            return fail(parser, "\"%.*s\" is not one of ranks=, nodes=, ordinal=, name=, each once", (int)word.length,
                        word.text);
        }
        seen |= field;
    }
    return (seen & 7) == 7 || fail(parser, "a communicator needs ranks=, nodes= and ordinal=");
}

/* The rest of the line; the candidate is the incumbent. */
static bool parse_knobs(struct parser *parser, struct lagom_config *incumbent, struct lagom_config *candidate)
{
    struct lagom_word word;
    uint32_t seen = 0;
    *incumbent = LAGOM_CONFIG_STOCK;
    while (lagom_scan_word(&parser->scan, &word)) {
        const char *wrong = lagom_word_knob(word, incumbent, &seen);
        if (wrong != NULL) {
            return fail(parser, "\"%.*s\": %s", (int)word.length, word.text, wrong);
        }
    }
    *candidate = *incumbent;
    return true;
}

static bool parse_site(struct parser *parser)
{
    struct lagom_plan *plan = &parser->section->content;
    struct lagom_word index, function, bytes;
    uint64_t number;
    if (plan->site_count == LAGOM_MAX_SITES) {
        return fail(parser, "there are more than %u sites", LAGOM_MAX_SITES);
    }
    if (plan->position_count > 0) {
        return fail(parser, "sites stand before the program");
    }
    if (!lagom_scan_word(&parser->scan, &index) || !lagom_word_number(index, LAGOM_MAX_SITES, &number) ||
        number != plan->site_count) {
        return fail(parser, "sites are numbered in order, and this would be %u", plan->site_count);
    }
    struct lagom_site *site = &plan->sites[plan->site_count];
    if (!lagom_scan_word(&parser->scan, &function) || !lagom_word_function(function, false, &site->function)) {
        return fail(parser, "a site's function is allgather, reducescatter, allreduce, broadcast or reduce");
    }
    if (!lagom_scan_word(&parser->scan, &bytes) || !lagom_word_bytes(bytes, &site->bytes)) {
        return fail(parser, "a site's size is a number of bytes");
    }
    plan->site_count++;
    return parse_knobs(parser, &site->incumbent, &site->candidate);
}

static bool add_positions(struct parser *parser, uint64_t count, uint64_t site)
{
    struct lagom_plan *plan = &parser->section->content;
    if (count > LAGOM_MAX_POSITIONS - plan->position_count) {
        return fail(parser, "the program has more than %u positions", LAGOM_MAX_POSITIONS);
    }
    for (uint64_t i = 0; i < count; i++) {
        plan->positions[plan->position_count++] = (uint16_t)site;
    }
    return true;
}

/* `3` or `8x3`. */
static bool parse_program(struct parser *parser)
{
    uint32_t sites = parser->section->content.site_count;
    struct lagom_word word;
    while (lagom_scan_word(&parser->scan, &word)) {
        struct lagom_word count, site = word;
        uint64_t repeat = 1, number;
        bool fits = !lagom_word_split(word, 'x', &count, &site) ||
                    (lagom_word_number(count, LAGOM_MAX_POSITIONS, &repeat) && repeat > 0);
        if (!fits || !lagom_word_number(site, UINT32_MAX, &number) || number >= sites) {
            return fail(parser, "\"%.*s\" names none of the %u sites above", (int)word.length, word.text, sites);
        }
        if (!add_positions(parser, repeat, number)) {
            return false;
        }
    }
    return true;
}

static bool read_limit(struct lagom_word word, uint64_t none, uint64_t *out)
{
    *out = none;
    return lagom_word_is(word, "-") || lagom_word_bytes(word, out);
}

static bool parse_rule(struct parser *parser)
{
    struct lagom_plan *plan = &parser->section->content;
    struct lagom_word function, smallest, largest;
    if (plan->rule_count == LAGOM_MAX_RULES) {
        return fail(parser, "there are more than %u rules", LAGOM_MAX_RULES);
    }
    struct lagom_rule *rule = &plan->rules[plan->rule_count];
    if (!lagom_scan_word(&parser->scan, &function) || !lagom_word_function(function, true, &rule->function)) {
        return fail(parser, "a rule's function is allgather, reducescatter, allreduce, broadcast, reduce or any");
    }
    if (!lagom_scan_word(&parser->scan, &smallest) || !lagom_scan_word(&parser->scan, &largest) ||
        !read_limit(smallest, 0, &rule->bytes_min) || !read_limit(largest, UINT64_MAX, &rule->bytes_max) ||
        rule->bytes_min > rule->bytes_max) {
        return fail(parser, "a rule's sizes are the smallest and the largest, or '-'");
    }
    plan->rule_count++;
    return parse_knobs(parser, &rule->incumbent, &rule->candidate);
}

static bool parse_end(struct parser *parser)
{
    enum lagom_plan_fault fault = lagom_plan_check_content(&parser->section->content);
    if (fault != LAGOM_PLAN_SOUND) {
        return fail(parser, "this communicator is refused because %s", lagom_plan_fault_text(fault));
    }
    parser->section = NULL;
    return no_more_words(parser);
}

/* ---- The whole -------------------------------------------------------------------------------------------------- */

static bool parse_title(struct parser *parser, struct lagom_word first)
{
    struct lagom_word version;
    uint32_t number;
    if (!lagom_word_is(first, TITLE) || !lagom_scan_word(&parser->scan, &version) || !read_number(version, &number)) {
        return fail(parser, "this is no saved config: it does not begin with \"%s %u\"", TITLE, VERSION);
    }
    if (number != VERSION) {
        return fail(parser, "this is a saved config of format %u, and this Lagom reads %u; write it anew", number, VERSION);
    }
    parser->titled = true;
    return no_more_words(parser);
}

static bool parse_inside(struct parser *parser, struct lagom_word first)
{
    if (lagom_word_is(first, "site")) {
        return parse_site(parser);
    }
    if (lagom_word_is(first, "program")) {
        return parse_program(parser);
    }
    if (lagom_word_is(first, "rule")) {
        return parse_rule(parser);
    }
    return lagom_word_is(first, "end")
               ? parse_end(parser)
               : fail(parser, "\"%.*s\" is no word of a communicator", (int)first.length, first.text);
}

static bool parse_line(struct parser *parser)
{
    struct lagom_word first;
    if (memchr(parser->scan.line.text, '\0', parser->scan.line.length) != NULL) {
        return fail(parser, "there is a zero byte in it");
    }
    if (!lagom_scan_word(&parser->scan, &first)) {
        return true;
    }
    if (!parser->titled) {
        return parse_title(parser, first);
    }
    if (lagom_word_is(first, "fingerprint")) {
        return parse_fingerprint(parser);
    }
    if (lagom_word_is(first, "environment")) {
        return parse_environment(parser);
    }
    if (lagom_word_is(first, "communicator")) {
        return parse_communicator(parser);
    }
    return parser->section != NULL ? parse_inside(parser, first)
                                   : fail(parser, "\"%.*s\" is no word of a saved config", (int)first.length, first.text);
}

static bool parse_lines(struct parser *parser)
{
    while (lagom_scan_line(&parser->scan)) {
        if (!parse_line(parser)) {
            return false;
        }
    }
    if (parser->section != NULL) {
        return fail(parser, "the last communicator has no end");
    }
    return parser->titled || fail(parser, "this is no saved config: it is empty");
}

int lagom_config_file_parse(const char *text, size_t length, struct lagom_config_file *out, char *error,
                            size_t error_bytes)
{
    struct lagom_config_file config = {.fingerprint = {.p2p = -1}};
    struct parser parser = {
        .scan = {.at = text, .end = text + length}, .config = &config, .error = error, .error_bytes = error_bytes};
    if (!parse_lines(&parser)) {
        lagom_config_file_free(&config);
        *out = config;
        return -1;
    }
    *out = config;
    return 0;
}

void lagom_config_file_free(struct lagom_config_file *config)
{
    free(config->sections);
    *config = (struct lagom_config_file){.fingerprint = {.p2p = -1}};
}
