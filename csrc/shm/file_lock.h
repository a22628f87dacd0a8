/* SPDX-License-Identifier: Apache-2.0 */
/* file_lock.h - byte locks (F_SETLK, one byte each) that show whether a process is alive.
 *
 * Freed by the kernel when the process dies, seen across PID namespaces, not inherited by fork; and dropped when the
 * process closes any descriptor of the file, hence one descriptor a region and process (attachment.h).
 */
#ifndef LAGOM_FILE_LOCK_H
#define LAGOM_FILE_LOCK_H

#include <stdbool.h>
#include <stdint.h>

uint64_t lagom_milliseconds_now(void); /* of the monotonic clock, that waiting here is bounded by */

bool lagom_lock_try(int fd, uint32_t byte);
void lagom_lock_drop(int fd, uint32_t byte);

/* Whether another process holds a lock in [first, first + count), count 0 = from first on; never true of our own. */
bool lagom_lock_elsewhere(int fd, uint32_t first, uint32_t count);

#endif
