/* SPDX-License-Identifier: Apache-2.0 */
/* environment.h - what a job must have been started with for a saved config to mean what was measured: variables
 * that NCCL (or our plugin) reads once, when it builds a communicator, and that no plan can change afterwards.
 *
 *   environment NCCL_MIN_NCHANNELS 32
 *
 * A saved config can only ask for names of a short list: it is a file that somebody may have sent, and
 * `lagom run --config` exports these lines.
 */
#ifndef LAGOM_CONFIG_ENVIRONMENT_H
#define LAGOM_CONFIG_ENVIRONMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/words.h"
#include "protocol/lagom_protocol.h"

#define LAGOM_CONFIG_MAX_ENVIRONMENT 48u

struct lagom_environment {
    char name[LAGOM_NAME_BYTES];
    char value[LAGOM_NAME_BYTES];
};

/* Whether a saved config may name that variable. */
bool lagom_environment_is_known(struct lagom_word name);

/* 0 = not set (NCCL takes an empty value for that too); else 1 to 255. Two values can share one, by chance. */
uint8_t lagom_environment_value_digest(const char *value);

/* Of every known variable of this process, in the table's order; 0 in the places behind it. */
void lagom_environment_digest(uint8_t out[LAGOM_START_SETTINGS]);

/* One more line, with or without quotes around the value; room for LAGOM_CONFIG_MAX_ENVIRONMENT. NULL, or one clause
 * about the variable that says what is wrong. */
const char *lagom_environment_add(struct lagom_environment *list, uint32_t *count, struct lagom_word name,
                                  struct lagom_word value);

/* LAGOM_SAVED_CONFIG_FITS = this process has all of them so; else the first that differs is in `out`. */
enum lagom_saved_config lagom_environment_compare(const struct lagom_environment *wanted, uint32_t count,
                                                  struct lagom_refusal *out);

#endif
