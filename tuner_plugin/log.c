#include "tuner_plugin/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "protocol/lagom_atomic.h"

#define LINE_BYTES 1024

static nccl_log_function nccl_log;
static int nccl_log_level = NCCL_LOG_INFO;

void lagom_log_open(nccl_log_function function, int level)
{
    lagom_store_relaxed(&nccl_log_level, level);
    lagom_store_release(&nccl_log, function); /* pairs with lagom_log */
}

void lagom_log(int level, const char *format, ...)
{
    nccl_log_function log = lagom_load_acquire(&nccl_log); /* pairs with lagom_log_open */
    if (log == NULL || level > lagom_load_relaxed(&nccl_log_level)) {
        return;
    }
    char line[LINE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    log(level, NCCL_LOG_INIT | NCCL_LOG_TUNING, "lagom", 0, "lagom: %s", line);
}

/* One write(2): lines of several processes do not mix, and stdio may already be gone at exit. */
void lagom_say(const char *format, ...)
{
    char line[LINE_BYTES] = "lagom: ";
    size_t used = sizeof("lagom: ") - 1;
    va_list arguments;
    va_start(arguments, format);
    int written = vsnprintf(line + used, sizeof(line) - used - 1, format, arguments);
    va_end(arguments);
    if (written < 0) {
        return;
    }
    used += (size_t)written < sizeof(line) - used - 2 ? (size_t)written : sizeof(line) - used - 2;
    line[used++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, used);
    (void)ignored;
}
