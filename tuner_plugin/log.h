/* SPDX-License-Identifier: Apache-2.0 */
/* log.h - messages of the plugin: through NCCL's log (NCCL_DEBUG shows it), and once to stderr.
 *
 * Never on stdout, never on the path of a collective, and never under the plugin's lock: the output may be slow or
 * block. So lines are only collected, by thread, and written by lagom_log_flush. */
#ifndef LAGOM_LOG_H
#define LAGOM_LOG_H

#include "tuner_plugin/nccl_abi.h"

/* The first communicator's log function; NULL = silent. Level: enum nccl_log_level, the most that is said. */
void lagom_log_open(nccl_log_function function, int level);

__attribute__((format(printf, 2, 3))) void lagom_log(int level, const char *format, ...);

/* One line on stderr, where people look who have NCCL_DEBUG off. For the one process a node that speaks. What stderr does
 * not take at once, or is not meant for (message_stream.h), is dropped there and counted: the next line that is taken
 * says how many, and NCCL's log gets the text. */
__attribute__((format(printf, 1, 2))) void lagom_say(const char *format, ...);

/* The same, at once and without memory of its own: for the end of the process, which may come in a signal handler. */
__attribute__((format(printf, 1, 2))) void lagom_say_at_exit(const char *format, ...);

/* Writes what this thread has collected; no lock is held. */
void lagom_log_flush(void);

#endif
