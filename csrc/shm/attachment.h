/* SPDX-License-Identifier: Apache-2.0 */
/* attachment.h - the regions this process has mapped: one descriptor and one mapping each, for life.
 *
 * Needed because POSIX locks belong to (process, file): a second descriptor of the same file would drop them when
 * closed, and a second lock by the same process would always succeed. Internal to csrc/shm.
 */
#ifndef LAGOM_ATTACHMENT_H
#define LAGOM_ATTACHMENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "protocol/lagom_protocol.h"

struct lagom_attachment {
    struct lagom_region *region; /* NULL = this entry is free */
    int fd; /* -1 = the host has closed it, and with it every lock */
    dev_t device;
    ino_t inode;
    uint32_t references; /* mappings that use it */
    uint32_t joined;     /* of these, ranks */
    uint32_t process;    /* own entry, or UINT32_MAX */
    bool controller;     /* one of these is the controller */
    bool writable;
};

/* The functions below need this lock, to look or to change what nobody waits for. Nobody sleeps under it. */
void lagom_attachments_lock(void);
void lagom_attachments_unlock(void);

/* The same with a turn, which one thread of this process has at a time: for whoever adds or removes an attachment, or waits
 * for a byte lock, because F_SETLK does not exclude our own threads. Only lagom_attachments_sleep sleeps in it, and lets
 * go of the lock, but not of the turn. So fork() and exit() wait for nobody, not in a signal handler either: fork() takes
 * the lock if it is free, and exit() the turn, or does without. A forked child finds both free. */
void lagom_attachments_begin(void);
bool lagom_attachments_try_begin(void); /* false: somebody has it, perhaps this very thread */
void lagom_attachments_end(void);
void lagom_attachments_sleep(const struct timespec *pause);

/* Whether this is a child that a signal handler forked in the middle of these functions, and returned. It holds no lock and
 * has no part in any region: what its parent was about to make, link or remove is the parent's business. */
bool lagom_attachments_adrift(void);

/* Both look first whether the descriptor is still ours: a host may close all descriptors, and reuse the number for a file of
 * its own, whose locks we would drop. */
struct lagom_attachment *lagom_attachment_at(const char *path); /* by inode, without opening the file; NULL = none */
struct lagom_attachment *lagom_attachment_of(const struct lagom_region *region);

/* How often this process has the file at `path` mapped. Where lagom_attachment_at finds none, that was another copy of this
 * code: the plugin loaded from two files. Its locks are this process's too, so it can be seen in no other way. */
uint32_t lagom_attachment_mappings(const char *path);

/* The same for many files by one look: what is mapped under names with `part_of_name` in them. */
#define LAGOM_MOST_MAPPED 64u
struct lagom_mapped {
    uint32_t count; /* more than there is room for: then everything counts as mapped */
    ino_t inodes[LAGOM_MOST_MAPPED];
};
void lagom_attachments_mapped(const char *part_of_name, struct lagom_mapped *mapped);
bool lagom_is_mapped(const struct lagom_mapped *mapped, ino_t inode);

/* Maps the whole of fd and takes it over; NULL with errno set, then fd is still the caller's. */
struct lagom_attachment *lagom_attachment_add(int fd, bool writable);
bool lagom_attachment_make_writable(struct lagom_attachment *attachment);
void lagom_attachment_remove(struct lagom_attachment *attachment); /* unmaps and closes: drops every lock */
void lagom_attachment_unmap(struct lagom_attachment *attachment); /* leaves it open: the locks may be another copy's */

/* Whether `path` still names this very file. */
bool lagom_attachment_is_at(const struct lagom_attachment *attachment, const char *path);

#endif
