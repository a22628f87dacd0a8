/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - the small words of saved configs and --set rules: numbers, sizes, functions, knobs. Internal to csrc/config.
 *
 * A word is a piece of somebody else's text and has no terminating zero. Every reader checks the whole of it.
 */
#ifndef LAGOM_WORDS_H
#define LAGOM_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/lagom_protocol.h"

struct lagom_word {
    const char *text;
    size_t length;
};

bool lagom_word_is(struct lagom_word word, const char *text);
/* The part before the first `mark`, and the rest behind it; false if there is none. */
bool lagom_word_split(struct lagom_word word, char mark, struct lagom_word *before, struct lagom_word *after);
bool lagom_word_starts(struct lagom_word *word, const char *prefix); /* and steps over it */

bool lagom_word_number(struct lagom_word word, uint64_t largest, uint64_t *out); /* decimal digits only */
bool lagom_word_bytes(struct lagom_word word, uint64_t *out);                    /* with K, M or G behind them */
bool lagom_word_function(struct lagom_word word, bool any, uint32_t *out);

/* One knob=value into the config. NULL, or one clause saying what is wrong with it. `seen` collects a bit a knob. */
const char *lagom_word_knob(struct lagom_word word, struct lagom_config *config, uint32_t *seen);

#endif
