/* SPDX-License-Identifier: Apache-2.0 */
/* region_file.c - the file itself: what lies there and whether it may be used, removing what nobody holds, making a new
 * one. */
#include "shm/region_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "protocol/lagom_atomic.h"
#include "shm/file_lock.h"
#include "shm/job_key.h"
#include "shm/wait_budget.h"

#define REGION_BYTES sizeof(struct lagom_region)
#define SHARE_OF_FREE_SPACE 4u /* we take at most a quarter of what is free */
#define NEW_FILE_JUDGE_MILLISECONDS 100u /* it takes microseconds; one stopped at it costs another name */

/* ---- Judging what lies there ------------------------------------------------------------------------------------ */

static bool anybody_alive(int fd)
{
    return lagom_lock_elsewhere(fd, LAGOM_LOCK_CONTROLLER, 1) ||
           lagom_lock_elsewhere(fd, LAGOM_LOCK_PROCESS, LAGOM_MAX_PROCESSES);
}

/* Any byte: of a version whose bytes may be others, or of somebody who is just coming. */
static bool anybody_holds_it(int fd)
{
    return lagom_lock_elsewhere(fd, 0, 0);
}

static enum lagom_region_fault check_owner(const struct stat *file)
{
    bool ours = S_ISREG(file->st_mode) && file->st_uid == geteuid() && (file->st_mode & 07777) == 0600;
    return ours ? LAGOM_REGION_OK : LAGOM_REGION_FOREIGN;
}

/* Read, not mapped: nothing is mapped that fstat does not cover. */
static enum lagom_region_fault check_header(int fd, const struct stat *file)
{
    struct lagom_header header;
    if (pread(fd, &header, sizeof(header), 0) != (ssize_t)sizeof(header) || header.magic != LAGOM_MAGIC) {
        return LAGOM_REGION_DAMAGED;
    }
    if (header.protocol_version != LAGOM_PROTOCOL_VERSION) {
        return anybody_holds_it(fd) ? LAGOM_REGION_VERSION : LAGOM_REGION_STALE; /* upgraded since that job was killed */
    }
    if (file->st_size != (off_t)REGION_BYTES || header.header_bytes != sizeof(header) ||
        header.region_bytes != REGION_BYTES || header.owner_uid != geteuid()) {
        return LAGOM_REGION_DAMAGED;
    }
    return header.boot_hash == lagom_boot_hash() && anybody_alive(fd) ? LAGOM_REGION_OK : LAGOM_REGION_STALE;
}

static enum lagom_region_fault check_file(int fd)
{
    struct stat file;
    if (fstat(fd, &file) != 0) {
        return LAGOM_REGION_SYSTEM;
    }
    enum lagom_region_fault fault = check_owner(&file);
    return fault == LAGOM_REGION_OK ? check_header(fd, &file) : fault;
}

/* The caller has seen that no other copy of this code has it open: closing ours would drop its locks. */
static enum lagom_region_fault open_unmapped(const char *path, int *fd)
{
    if (lagom_attachments_adrift()) {
        errno = ECHILD;
        return LAGOM_REGION_SYSTEM;
    }
    *fd = open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (*fd >= 0) {
        return LAGOM_REGION_OK;
    }
    switch (errno) {
    case ENOENT: return LAGOM_REGION_MISSING;
    case ELOOP:
    case EACCES:
    case EISDIR:
    case ENXIO: return LAGOM_REGION_FOREIGN;
    default: return LAGOM_REGION_SYSTEM;
    }
}

static enum lagom_region_fault open_file(const char *path, int *fd)
{
    return lagom_attachment_mappings(path) > 0 ? LAGOM_REGION_TWICE : open_unmapped(path, fd);
}

/* Not where another copy has it by now: its locks are dropped by whoever closes the file. One descriptor is lost. */
static enum lagom_region_fault close_file(int fd, const char *path, enum lagom_region_fault fault)
{
    if (lagom_attachment_mappings(path) > 0) {
        return LAGOM_REGION_TWICE;
    }
    close(fd);
    return fault;
}

/* Growing a file beyond this limit is answered by SIGXFSZ, which ends a job that does not ignore it. */
static bool may_grow_to_region(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur >= REGION_BYTES;
}

/* A hole in the file would be SIGBUS at first touch on a full tmpfs; where there is none, this does nothing. Under the
 * limit it is not tried: where the file system cannot do it, the C library writes. */
static enum lagom_region_fault fill_holes(int fd)
{
    struct stat file;
    if (!may_grow_to_region()) {
        bool whole = fstat(fd, &file) == 0 && (uint64_t)file.st_blocks * 512u >= REGION_BYTES;
        return whole ? LAGOM_REGION_OK : LAGOM_REGION_LIMIT;
    }
    return posix_fallocate(fd, 0, (off_t)REGION_BYTES) == 0 ? LAGOM_REGION_OK : LAGOM_REGION_NO_SPACE;
}

enum lagom_region_fault lagom_file_find(const char *path, bool writable, struct lagom_attachment **out)
{
    *out = lagom_attachment_at(path);
    if (*out != NULL && (*out)->fd < 0) {
        errno = EBADF;
        return LAGOM_REGION_SYSTEM;
    }
    if (*out != NULL) {
        return !writable || lagom_attachment_make_writable(*out) ? LAGOM_REGION_OK : LAGOM_REGION_SYSTEM;
    }
    int fd;
    enum lagom_region_fault fault = open_file(path, &fd);
    if (fault != LAGOM_REGION_OK) {
        return fault;
    }
    fault = check_file(fd);
    if (fault == LAGOM_REGION_OK && writable) {
        fault = fill_holes(fd);
    }
    if (fault == LAGOM_REGION_OK && (*out = lagom_attachment_add(fd, writable)) == NULL) {
        fault = LAGOM_REGION_SYSTEM;
    }
    if (fault != LAGOM_REGION_OK) {
        return close_file(fd, path, fault);
    }
    if (lagom_attachment_mappings(path) > 1) { /* another copy came at the same moment */
        lagom_attachment_unmap(*out);
        fault = LAGOM_REGION_TWICE;
    }
    return fault;
}

/* ---- Removing what nobody holds --------------------------------------------------------------------------------- */

/* Whatever the budget: somebody who leaves keeps nobody's init. On a busy machine a pause is longer than asked. */
static bool lock_by_the_clock(const int *fd, uint32_t byte, uint32_t milliseconds)
{
    const struct timespec pause = {.tv_nsec = 200 * 1000};
    uint64_t end = lagom_milliseconds_now() + milliseconds;
    while (!lagom_lock_try(*fd, byte)) {
        if (*fd < 0 || lagom_milliseconds_now() >= end) {
            return false;
        }
        lagom_attachments_sleep(&pause);
    }
    return true;
}

/* Under the janitor byte. Whoever attaches takes a lock first and looks at this byte afterwards, so either we see the
 * lock, or it sees us and then finds the file gone. */
static enum lagom_region_fault unlink_unless(bool (*wanted)(int fd), const int *fd, const char *path, uint32_t milliseconds)
{
    struct stat mine, there;
    if (*fd < 0 || wanted(*fd) || !lock_by_the_clock(fd, LAGOM_LOCK_JANITOR, milliseconds)) {
        return LAGOM_REGION_HELD;
    }
    enum lagom_region_fault fault = LAGOM_REGION_HELD;
    if (!wanted(*fd)) {
        bool same = fstat(*fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_dev == there.st_dev &&
                    mine.st_ino == there.st_ino;
        fault = same && !lagom_attachments_adrift() && unlink(path) == 0 ? LAGOM_REGION_OK : LAGOM_REGION_MISSING;
    }
    lagom_lock_drop(*fd, LAGOM_LOCK_JANITOR);
    return fault;
}

enum lagom_region_fault lagom_file_unlink_if_dead(const int *fd, const char *path, uint32_t milliseconds)
{
    return unlink_unless(anybody_alive, fd, path, milliseconds);
}

enum lagom_region_fault lagom_file_remove_unmapped(const char *path, int *fd)
{
    struct stat file;
    *fd = -1;
    if (lagom_attachment_at(path) != NULL) {
        return LAGOM_REGION_HELD;
    }
    enum lagom_region_fault fault = open_unmapped(path, fd);
    if (fault == LAGOM_REGION_OK) {
        fault = fstat(*fd, &file) == 0 ? check_owner(&file) : LAGOM_REGION_SYSTEM;
    }
    return fault == LAGOM_REGION_OK ? unlink_unless(anybody_holds_it, fd, path, 0) : fault;
}

enum lagom_region_fault lagom_file_remove_stale(const char *path)
{
    int fd;
    if (lagom_attachment_mappings(path) > 0) {
        return lagom_attachment_at(path) != NULL ? LAGOM_REGION_HELD : LAGOM_REGION_TWICE;
    }
    enum lagom_region_fault fault = lagom_file_remove_unmapped(path, &fd);
    return fd < 0 ? fault : close_file(fd, path, fault);
}

enum lagom_region_fault lagom_region_remove_stale(const char *path)
{
    lagom_attachments_begin();
    enum lagom_region_fault fault = lagom_file_remove_stale(path);
    lagom_attachments_end();
    return fault;
}

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static bool leaves_room(int fd)
{
    struct statvfs space;
    return fstatvfs(fd, &space) != 0 ||
           (uint64_t)space.f_bavail * space.f_frsize >= (uint64_t)REGION_BYTES * SHARE_OF_FREE_SPACE;
}

/* From now on nobody takes it for stale. Somebody may have just before: then it has no name any more, and must not
 * take room that nobody sees it take. */
static bool take_name(int fd)
{
    struct stat file;
    if (!lagom_lock_try(fd, LAGOM_LOCK_REGISTER) ||
        !lagom_wait_budget_lock(&fd, LAGOM_LOCK_JANITOR, NEW_FILE_JUDGE_MILLISECONDS)) {
        return false;
    }
    lagom_lock_drop(fd, LAGOM_LOCK_JANITOR);
    return fstat(fd, &file) == 0 && file.st_nlink > 0;
}

void lagom_file_unlink_temporary(const char *temporary)
{
    if (!lagom_attachments_adrift()) {
        unlink(temporary);
    }
}

enum lagom_region_fault lagom_file_make(const char *temporary, struct lagom_attachment **out)
{
    if (!may_grow_to_region()) {
        return LAGOM_REGION_LIMIT;
    }
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return errno == ENOSPC ? LAGOM_REGION_NO_SPACE : LAGOM_REGION_SYSTEM;
    }
    enum lagom_region_fault fault = LAGOM_REGION_OK;
    int failure = 0;
    if (!take_name(fd)) {
        fault = LAGOM_REGION_MISSING;
    } else if (!leaves_room(fd) || (failure = posix_fallocate(fd, 0, (off_t)REGION_BYTES)) != 0) {
        fault = failure == 0 || failure == ENOSPC ? LAGOM_REGION_NO_SPACE : LAGOM_REGION_SYSTEM;
    } else if (fchmod(fd, 0600) != 0 || (*out = lagom_attachment_add(fd, true)) == NULL) {
        fault = LAGOM_REGION_SYSTEM;
        failure = errno;
    }
    if (fault != LAGOM_REGION_OK) {
        close(fd);
        lagom_file_unlink_temporary(temporary);
        errno = failure;
    }
    return fault;
}

void lagom_file_write_header(struct lagom_header *header, const char *job_key, enum lagom_clock clock)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    header->protocol_version = LAGOM_PROTOCOL_VERSION;
    header->header_bytes = sizeof(*header);
    header->region_bytes = REGION_BYTES;
    header->owner_uid = geteuid();
    header->clock = (uint32_t)clock;
    header->boot_hash = lagom_boot_hash();
    header->created_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    snprintf(header->job_key, sizeof(header->job_key), "%s", job_key);
    lagom_store_release(&header->magic, LAGOM_MAGIC);
}
