/* SPDX-License-Identifier: Apache-2.0 */
/* message_stream.h - a line on stderr, which is not ours: it may be closed, full, nobody's any more, or a file of the
 * program's that has nothing to do with messages. Nothing here waits (but for a regular file on a file system that is
 * slow: whether a write to one would wait cannot be asked), raises a signal, or changes how the program's own descriptor
 * behaves.
 */
#ifndef LAGOM_MESSAGE_STREAM_H
#define LAGOM_MESSAGE_STREAM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

/* true = the whole line is there, or in /dev/null. At most 4096 bytes: they do not mix with other processes' lines. */
bool lagom_message_write(const char *line, size_t bytes);

/* Between these two a write of this thread raises neither SIGPIPE (nobody reads), SIGXFSZ (file size limit) nor SIGTTOU
 * (a terminal that is another job's): it only fails. */
struct lagom_held_signals {
    sigset_t mask;    /* as it was */
    sigset_t pending; /* before: those are the program's */
};
void lagom_signals_hold(struct lagom_held_signals *held);
void lagom_signals_release(const struct lagom_held_signals *held);

#endif
