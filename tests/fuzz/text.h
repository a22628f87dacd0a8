/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - the two kinds of text that are read in C. */
#ifndef LAGOM_FUZZ_TEXT_H
#define LAGOM_FUZZ_TEXT_H

#include "fuzz.h"

void fuzz_config(const uint8_t *data, size_t size);
void fuzz_environment(const uint8_t *data, size_t size);

#endif
