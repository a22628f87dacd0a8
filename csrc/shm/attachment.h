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

#include "protocol/lagom_protocol.h"

struct lagom_attachment {
    struct lagom_region *region; /* NULL = this entry is free */
    int fd;
    dev_t device;
    ino_t inode;
    uint32_t references; /* mappings that use it */
    uint32_t joined;     /* of these, ranks */
    uint32_t process;    /* own entry, or UINT32_MAX */
    bool controller;     /* one of these is the controller */
    bool writable;
};

/* The functions below need this lock; it also excludes our own threads, which F_SETLK cannot. A fork waits for
 * it, so that a forked child finds it free. */
void lagom_attachments_lock(void);
void lagom_attachments_unlock(void);

struct lagom_attachment *lagom_attachment_at(const char *path); /* by inode, without opening the file; NULL = none */
struct lagom_attachment *lagom_attachment_of(const struct lagom_region *region);

/* How often this process has the file at `path` mapped. Where lagom_attachment_at finds none, that was another copy of this
 * code: the plugin loaded from two files. Its locks are this process's too, so it can be seen in no other way. */
uint32_t lagom_attachment_mappings(const char *path);

/* Maps the whole of fd and takes it over; NULL with errno set, then fd is still the caller's. */
struct lagom_attachment *lagom_attachment_add(int fd, bool writable);
bool lagom_attachment_make_writable(struct lagom_attachment *attachment);
void lagom_attachment_remove(struct lagom_attachment *attachment); /* unmaps and closes: drops every lock */
void lagom_attachment_unmap(struct lagom_attachment *attachment); /* leaves it open: the locks may be another copy's */

/* Whether `path` still names this very file. */
bool lagom_attachment_is_at(const struct lagom_attachment *attachment, const char *path);

#endif
