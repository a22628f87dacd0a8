/* ownership.h - whose a file is: what another user could put in its place is neither loaded nor started.
 *
 * Trusted are root, this user, whoever owns the root directory (in a user namespace the system's files belong to nobody
 * we can name), and whoever owns code that runs in this process already: the program, this library, and a library that
 * the caller names. All of them could do what they like without us. Groups are trusted by those who set them.
 */
#ifndef LAGOM_OWNERSHIP_H
#define LAGOM_OWNERSHIP_H

#include <stdbool.h>
#include <stddef.h>

/* Whether nobody but the trusted can change what `path` leads to: every folder on the way and every link belongs to one
 * of them and is not open to all (a sticky folder may be, for what is in it stays its owner's; and one that the running
 * program or this library lies in), and at the end stands a regular file of theirs. What was true stays true: only they
 * could change it. `beside`: a library in use whose owner is trusted too; NULL = none. false with one clause in
 * `reason`: what is wrong, and where. */
bool lagom_path_is_guarded(const char *path, const char *beside, char *reason, size_t reason_bytes);

/* The same of the file `name` beside the library that this very code is in; `path` has PATH_MAX bytes, and is set in any
 * case. */
bool lagom_guarded_beside(const char *name, char *path, char *reason, size_t reason_bytes);

/* Opens, or makes, the log file `name` in `folder` for appending: the folder is a trusted one's and not open to all,
 * the file a regular one of ours, reached by no link. -1 with one clause in `reason`. */
int lagom_open_guarded_log(const char *folder, const char *name, char *reason, size_t reason_bytes);

#endif
