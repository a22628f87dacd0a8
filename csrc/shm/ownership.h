/* SPDX-License-Identifier: Apache-2.0 */
/* ownership.h - who owns a file: a file that another user could replace is neither loaded nor started.
 *
 * Trusted users are root, this user, the owner of the root directory (in a user namespace the system's files belong to no
 * known user), and the owners of code that already runs in this process: the program, this library, and a library that
 * the caller names. All of these could do anything without our help. Groups are trusted: their owner has set them.
 */
#ifndef LAGOM_OWNERSHIP_H
#define LAGOM_OWNERSHIP_H

#include <stdbool.h>
#include <stddef.h>

/* Whether only trusted users can change what `path` leads to. Every folder and link on the way must belong to one of them
 * and must not be writable by all, except a sticky folder, whose entries only their owners can change, and a folder of the
 * running program or this library. The path must end at a regular file of theirs. The answer stays true, because only they
 * could change it. `beside`: a library in use whose owner is trusted too; NULL = none. false with one clause in `reason`:
 * what is wrong, and where. */
bool lagom_path_is_guarded(const char *path, const char *beside, char *reason, size_t reason_bytes);

/* The same of the file `name` beside the library that this very code is in; `path` has PATH_MAX bytes, and is set in any
 * case. */
bool lagom_guarded_beside(const char *name, char *path, char *reason, size_t reason_bytes);

/* Opens, or makes, the log file `name` in `folder` for appending: the folder is a trusted one's and not open to all,
 * the file a regular one of ours, reached by no link. -1 with one clause in `reason`. */
int lagom_open_guarded_log(const char *folder, const char *name, char *reason, size_t reason_bytes);

#endif
