/* SPDX-License-Identifier: Apache-2.0 */
#include "config/words.h"

#include <string.h>

#include "plan/plan.h"

bool lagom_word_is(struct lagom_word word, const char *text)
{
    return strlen(text) == word.length && memcmp(word.text, text, word.length) == 0;
}

bool lagom_word_split(struct lagom_word word, char mark, struct lagom_word *before, struct lagom_word *after)
{
    const char *found = word.length > 0 ? memchr(word.text, mark, word.length) : NULL;
    if (found == NULL) {
        return false;
    }
    *before = (struct lagom_word){word.text, (size_t)(found - word.text)};
    *after = (struct lagom_word){found + 1, word.length - before->length - 1};
    return true;
}

bool lagom_word_starts(struct lagom_word *word, const char *prefix)
{
    size_t length = strlen(prefix);
    if (word->length < length || memcmp(word->text, prefix, length) != 0) {
        return false;
    }
    word->text += length;
    word->length -= length;
    return true;
}

bool lagom_word_number(struct lagom_word word, uint64_t largest, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < word.length; i++) {
        uint64_t digit = (uint64_t)(uint8_t)word.text[i] - '0';
        if (digit > 9 || value > (UINT64_MAX - digit) / 10) {
            return false;
        }
        value = value * 10 + digit;
    }
    *out = value;
    return word.length > 0 && value <= largest;
}

static unsigned suffix_shift(char last)
{
    switch (last) {
    case 'K': return 10;
    case 'M': return 20;
    case 'G': return 30;
    default: return 0;
    }
}

bool lagom_word_bytes(struct lagom_word word, uint64_t *out)
{
    unsigned shift = word.length > 0 ? suffix_shift(word.text[word.length - 1]) : 0;
    word.length -= shift > 0;
    if (!lagom_word_number(word, UINT64_MAX >> shift, out)) {
        return false;
    }
    *out <<= shift;
    return true;
}

static bool one_of(struct lagom_word word, const char *const *names, uint32_t count, uint32_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        if (lagom_word_is(word, names[i])) {
            *out = i;
            return true;
        }
    }
    return false;
}

bool lagom_word_function(struct lagom_word word, bool any, uint32_t *out)
{
    static const char *const names[LAGOM_FUNCTIONS] = {"broadcast", "reduce", "allgather", "reducescatter",
                                                       "allreduce"};
    if (any && lagom_word_is(word, "any")) {
        *out = LAGOM_ANY_FUNCTION;
        return true;
    }
    return one_of(word, names, LAGOM_FUNCTIONS, out);
}

static bool read_algorithm(struct lagom_word word, struct lagom_config *config)
{
    static const char *const names[LAGOM_ALGORITHMS] = {"tree",      "ring", "collnet_direct", "collnet_chain", "nvls",
                                                        "nvls_tree", "pat"};
    uint32_t algorithm;
    if (!one_of(word, names, LAGOM_ALGORITHMS, &algorithm)) {
        return false;
    }
    config->algorithm = (int8_t)algorithm;
    return true;
}

static bool read_protocol(struct lagom_word word, struct lagom_config *config)
{
    static const char *const names[LAGOM_PROTOCOLS] = {"ll", "ll128", "simple"};
    uint32_t protocol;
    if (!one_of(word, names, LAGOM_PROTOCOLS, &protocol)) {
        return false;
    }
    config->protocol = (int8_t)protocol;
    return true;
}

static bool read_count(struct lagom_word word, uint16_t *out)
{
    uint64_t count;
    if (!lagom_word_number(word, UINT16_MAX, &count)) {
        return false;
    }
    *out = (uint16_t)count;
    return true;
}

static bool read_channels(struct lagom_word word, struct lagom_config *config)
{
    return read_count(word, &config->channels);
}

static bool read_threads(struct lagom_word word, struct lagom_config *config)
{
    return read_count(word, &config->threads);
}

static bool read_chunk(struct lagom_word word, struct lagom_config *config)
{
    uint64_t bytes;
    if (!lagom_word_bytes(word, &bytes) || bytes > UINT32_MAX) {
        return false;
    }
    config->chunk_bytes = (uint32_t)bytes;
    return true;
}

static const struct knob {
    const char *name;
    bool (*read)(struct lagom_word word, struct lagom_config *config);
    const char *remedy;
} knobs[] = {
    {"algo", read_algorithm, "algo is tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree or pat"},
    {"proto", read_protocol, "proto is ll, ll128 or simple"},
    {"nc", read_channels, "nc is a number of channels from 1 to 64, or 0"},
    {"nt", read_threads, "nt is a multiple of 32 from 96 to 640 (512 for ll and simple), or 0"},
    {"chunk", read_chunk, "chunk is a size from 16K to 1G, or 0"},
};
#define KNOBS (sizeof(knobs) / sizeof(knobs[0]))

const char *lagom_word_knob(struct lagom_word word, struct lagom_config *config, uint32_t *seen)
{
    struct lagom_word name, value;
    if (!lagom_word_split(word, '=', &name, &value)) {
        return "a knob is written name=value";
    }
    for (uint32_t i = 0; i < KNOBS; i++) {
        if (!lagom_word_is(name, knobs[i].name)) {
            continue;
        }
        if ((*seen & (1u << i)) != 0) {
            return "a knob is named twice";
        }
        *seen |= 1u << i;
        return knobs[i].read(value, config) && lagom_config_is_sound(config) ? NULL : knobs[i].remedy;
    }
    return "the knobs are algo, proto, nc, nt and chunk";
}
