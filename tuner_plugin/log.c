/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "protocol/lagom_atomic.h"
#include "tuner_plugin/message_stream.h"

#define LINE_BYTES 1024
#define NOTE_BYTES 96
#define TO_STDERR (-1) /* in place of a level */

struct line {
    struct line *next;
    int level;
    char text[LINE_BYTES];
};

static nccl_log_function nccl_log;
static int nccl_log_level = NCCL_LOG_INFO;
static uint32_t dropped; /* lines that did not get to stderr since the last that did */
static _Thread_local struct line *collected;

void lagom_log_open(nccl_log_function function, int level)
{
    lagom_store_relaxed(&nccl_log_level, level);
    lagom_store_release(&nccl_log, function); /* pairs with log_of */
}

static nccl_log_function log_of(int level)
{
    nccl_log_function log = lagom_load_acquire(&nccl_log); /* pairs with lagom_log_open */
    return level > lagom_load_relaxed(&nccl_log_level) ? NULL : log;
}

/* ---- Collecting ------------------------------------------------------------------------------------------------- */

static void collect(int level, const char *format, va_list arguments)
{
    struct line **end = &collected;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = malloc(sizeof(**end));
    if (*end == NULL) {
        __atomic_fetch_add(&dropped, level == TO_STDERR, __ATOMIC_RELAXED);
        return;
    }
    (*end)->next = NULL;
    (*end)->level = level;
    vsnprintf((*end)->text, sizeof((*end)->text), format, arguments);
}

void lagom_log(int level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (log_of(level) != NULL) {
        collect(level, format, arguments);
    }
    va_end(arguments);
}

void lagom_say(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    collect(TO_STDERR, format, arguments);
    va_end(arguments);
}

/* ---- Writing ---------------------------------------------------------------------------------------------------- */

static void write_to_log(int level, const char *text)
{
    nccl_log_function log = log_of(level);
    if (log != NULL) {
        log(level, NCCL_LOG_INIT | NCCL_LOG_TUNING, "lagom", 0, "lagom: %s", text);
    }
}

/* One write: lines of several processes do not mix, and stdio may already be gone at exit. */
static bool write_to_stderr(const char *text)
{
    char out[NOTE_BYTES + LINE_BYTES + sizeof("lagom: \n")], note[NOTE_BYTES] = "";
    uint32_t before = __atomic_exchange_n(&dropped, 0, __ATOMIC_RELAXED);
    if (before > 0) {
        snprintf(note, sizeof(note), "lagom: lines dropped before this one, because stderr could not take them: %u\n", before);
    }
    int bytes = snprintf(out, sizeof(out), "%slagom: %s\n", note, text);
    bool written = bytes > 0 && lagom_message_write(out, (size_t)bytes);
    __atomic_fetch_add(&dropped, written ? 0 : before + 1, __ATOMIC_RELAXED);
    return written;
}

static void write_line(const struct line *line)
{
    if (line->level != TO_STDERR) {
        write_to_log(line->level, line->text);
    } else if (!write_to_stderr(line->text)) {
        char text[NOTE_BYTES + LINE_BYTES];
        snprintf(text, sizeof(text), "not written to stderr: %s", line->text);
        write_to_log(NCCL_LOG_INFO, text);
    }
}

void lagom_say_at_exit(const char *format, ...)
{
    struct lagom_held_signals held;
    struct line line = {.level = TO_STDERR};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line.text, sizeof(line.text), format, arguments);
    va_end(arguments);
    lagom_signals_hold(&held);
    write_line(&line);
    lagom_signals_release(&held);
}

void lagom_log_flush(void)
{
    struct lagom_held_signals held;
    struct line *line = collected;
    if (line == NULL) {
        return;
    }
    collected = NULL;
    lagom_signals_hold(&held);
    while (line != NULL) {
        struct line *next = line->next;
        write_line(line);
        free(line);
        line = next;
    }
    lagom_signals_release(&held);
}
