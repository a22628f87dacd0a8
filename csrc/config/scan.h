/* SPDX-License-Identifier: Apache-2.0 */
/* scan.h - a text line by line and word by word, without copying it. Internal to csrc/config. */
#ifndef LAGOM_SCAN_H
#define LAGOM_SCAN_H

#include "config/words.h"

struct lagom_scan {
    const char *at; /* the next line */
    const char *end;
    struct lagom_word line; /* what of the current line is unread */
    uint32_t line_number;   /* from 1 */
};

bool lagom_scan_line(struct lagom_scan *scan); /* false at the end of the text */

/* Up to the next blank; blanks between quotes belong to the word. A '#' at a word's start ends the line. */
bool lagom_scan_word(struct lagom_scan *scan, struct lagom_word *word);

#endif
