/* SPDX-License-Identifier: Apache-2.0 */
/* event_words.h - NCCL's event strings as numbers. Unknown words are -1, never something else. */
#ifndef LAGOM_EVENT_WORDS_H
#define LAGOM_EVENT_WORDS_H

#include <stdint.h>

int lagom_function_number(const char *word);  /* "AllGather" -> enum lagom_function */
int lagom_algorithm_number(const char *word); /* "RING" -> enum lagom_algorithm */
int lagom_protocol_number(const char *word);  /* "SIMPLE" -> enum lagom_protocol_kind */
uint64_t lagom_type_bytes(const char *word);  /* "ncclBfloat16" -> 2; 0 = unknown */

#endif
