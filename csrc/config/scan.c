/* SPDX-License-Identifier: Apache-2.0 */
#include "config/scan.h"

#include <string.h>

bool lagom_scan_line(struct lagom_scan *scan)
{
    if (scan->at == scan->end) {
        return false;
    }
    size_t left = (size_t)(scan->end - scan->at);
    const char *newline = memchr(scan->at, '\n', left);
    size_t length = newline != NULL ? (size_t)(newline - scan->at) : left;
    scan->line = (struct lagom_word){scan->at, length};
    scan->at += length + (newline != NULL);
    scan->line_number++;
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

bool lagom_scan_word(struct lagom_scan *scan, struct lagom_word *word)
{
    const char *at = scan->line.text, *end = at + scan->line.length;
    while (at < end && is_blank(*at)) {
        at++;
    }
    if (at == end || *at == '#') {
        scan->line.length = 0;
        return false;
    }
    const char *start = at;
    for (bool quoted = false; at < end && (quoted || !is_blank(*at)); at++) {
        quoted ^= *at == '"';
    }
    *word = (struct lagom_word){start, (size_t)(at - start)};
    scan->line = (struct lagom_word){at, (size_t)(end - at)};
    return true;
}
