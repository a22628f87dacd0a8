/* region.c - the file: made, found, judged, removed. Who is registered in it: region_table.c. */
#include "shm/region.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "protocol/lagom_atomic.h"
#include "shm/attachment.h"
#include "shm/file_lock.h"
#include "shm/job_key.h"
#include "shm/region_table.h"

#define REGION_BYTES sizeof(struct lagom_region)
#define SHARE_OF_FREE_SPACE 4u /* we take at most a quarter of what is free */
#define ATTEMPTS 50u           /* each loses to somebody who made or removed the file meanwhile */
#define JUDGE_MILLISECONDS 2000u

enum role { ROLE_RANK, ROLE_CONTROLLER };

struct request {
    const char *path;
    const char *job_key; /* NULL = never create */
    enum role role;
    enum lagom_clock clock;
};

void lagom_region_path(const char *job_key, char *out)
{
    const char *dir = getenv("LAGOM_SHM_DIR");
    snprintf(out, LAGOM_PATH_BYTES, "%s/lagom-%u-%016llx", dir != NULL && dir[0] != '\0' ? dir : "/dev/shm",
             (unsigned)geteuid(), (unsigned long long)lagom_hash_text(job_key));
}

/* ---- Judging what lies there ------------------------------------------------------------------------------------ */

static bool anybody_alive(int fd)
{
    return lagom_lock_elsewhere(fd, LAGOM_LOCK_CONTROLLER, 1) ||
           lagom_lock_elsewhere(fd, LAGOM_LOCK_PROCESS, LAGOM_MAX_PROCESSES);
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
        return LAGOM_REGION_VERSION;
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

static enum lagom_region_fault open_file(const char *path, int *fd)
{
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

/* Only ever closes descriptors of files this process has not attached: closing drops locks. */
static enum lagom_region_fault find(const char *path, bool writable, struct lagom_attachment **out)
{
    *out = lagom_attachment_at(path);
    if (*out != NULL) {
        return !writable || lagom_attachment_make_writable(*out) ? LAGOM_REGION_OK : LAGOM_REGION_SYSTEM;
    }
    int fd;
    enum lagom_region_fault fault = open_file(path, &fd);
    if (fault != LAGOM_REGION_OK) {
        return fault;
    }
    fault = check_file(fd);
    /* A hole in the file would be SIGBUS at first touch on a full tmpfs; where there is none, this does nothing. */
    if (fault == LAGOM_REGION_OK && writable && posix_fallocate(fd, 0, (off_t)REGION_BYTES) != 0) {
        fault = LAGOM_REGION_NO_SPACE;
    }
    if (fault == LAGOM_REGION_OK && (*out = lagom_attachment_add(fd, writable)) == NULL) {
        fault = LAGOM_REGION_SYSTEM;
    }
    if (fault != LAGOM_REGION_OK) {
        close(fd);
    }
    return fault;
}

/* ---- Removing what nobody holds --------------------------------------------------------------------------------- */

/* Under the janitor byte. Whoever attaches takes a lock first and looks at this byte afterwards, so either we see the
 * lock, or it sees us and then finds the file gone. */
static enum lagom_region_fault unlink_if_dead(int fd, const char *path)
{
    struct stat mine, there;
    if (!lagom_lock_try(fd, LAGOM_LOCK_JANITOR)) {
        return LAGOM_REGION_HELD;
    }
    enum lagom_region_fault fault = LAGOM_REGION_HELD;
    if (!anybody_alive(fd)) {
        bool same = fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_dev == there.st_dev &&
                    mine.st_ino == there.st_ino;
        fault = same && unlink(path) == 0 ? LAGOM_REGION_OK : LAGOM_REGION_MISSING;
    }
    lagom_lock_drop(fd, LAGOM_LOCK_JANITOR);
    return fault;
}

static enum lagom_region_fault remove_stale(const char *path)
{
    int fd;
    if (lagom_attachment_at(path) != NULL) {
        return LAGOM_REGION_HELD;
    }
    enum lagom_region_fault fault = open_file(path, &fd);
    if (fault != LAGOM_REGION_OK) {
        return fault;
    }
    struct stat file;
    fault = fstat(fd, &file) == 0 ? check_owner(&file) : LAGOM_REGION_SYSTEM;
    if (fault == LAGOM_REGION_OK) {
        fault = unlink_if_dead(fd, path);
    }
    close(fd);
    return fault;
}

enum lagom_region_fault lagom_region_remove_stale(const char *path)
{
    lagom_attachments_lock();
    enum lagom_region_fault fault = remove_stale(path);
    lagom_attachments_unlock();
    return fault;
}

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static bool leaves_room(int fd)
{
    struct statvfs space;
    return fstatvfs(fd, &space) != 0 ||
           (uint64_t)space.f_bavail * space.f_frsize >= (uint64_t)REGION_BYTES * SHARE_OF_FREE_SPACE;
}

static enum lagom_region_fault make_file(const char *temporary, struct lagom_attachment **out)
{
    int fd = open(temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return errno == ENOSPC ? LAGOM_REGION_NO_SPACE : LAGOM_REGION_SYSTEM;
    }
    enum lagom_region_fault fault = LAGOM_REGION_OK;
    int failure = 0;
    if (!leaves_room(fd) || (failure = posix_fallocate(fd, 0, (off_t)REGION_BYTES)) != 0) {
        fault = failure == 0 || failure == ENOSPC ? LAGOM_REGION_NO_SPACE : LAGOM_REGION_SYSTEM;
    } else if (fchmod(fd, 0600) != 0 || (*out = lagom_attachment_add(fd, true)) == NULL) {
        fault = LAGOM_REGION_SYSTEM;
        failure = errno;
    }
    if (fault != LAGOM_REGION_OK) {
        close(fd);
        unlink(temporary);
        errno = failure;
    }
    return fault;
}

static void write_header(struct lagom_header *header, const char *job_key, enum lagom_clock clock)
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

static enum lagom_region_fault take_role(struct lagom_attachment *attachment, enum role role)
{
    return role == ROLE_RANK ? lagom_table_take_process(attachment) : lagom_table_take_control(attachment);
}

/* Whole, and locked by its creator, before anybody can see it. MISSING = somebody else's was there first. */
static enum lagom_region_fault create(const struct request *request, struct lagom_attachment **out)
{
    static uint32_t serial; /* under the attachments' lock */
    char temporary[LAGOM_PATH_BYTES + 32];
    snprintf(temporary, sizeof(temporary), "%s.tmp.%d.%u", request->path, (int)getpid(), serial++);
    enum lagom_region_fault fault = make_file(temporary, out);
    if (fault != LAGOM_REGION_OK) {
        return fault;
    }
    write_header(&(*out)->region->header, request->job_key, request->clock);
    fault = take_role(*out, request->role);
    if (fault == LAGOM_REGION_OK && link(temporary, request->path) != 0) {
        fault = errno == EEXIST ? LAGOM_REGION_MISSING : LAGOM_REGION_SYSTEM;
    }
    if (fault != LAGOM_REGION_OK) {
        lagom_attachment_remove(*out);
    }
    unlink(temporary);
    return fault;
}

/* ---- Attaching -------------------------------------------------------------------------------------------------- */

/* After our lock is taken: wait out a judge who may have looked before, then see whether the file is still in place. */
static enum lagom_region_fault confirm(struct lagom_attachment *attachment, const char *path)
{
    if (!lagom_lock_wait(attachment->fd, LAGOM_LOCK_JANITOR, JUDGE_MILLISECONDS)) {
        return LAGOM_REGION_STALE;
    }
    lagom_lock_drop(attachment->fd, LAGOM_LOCK_JANITOR);
    return lagom_attachment_is_at(attachment, path) ? LAGOM_REGION_OK : LAGOM_REGION_MISSING;
}

static enum lagom_region_fault attach_existing(const struct request *request, struct lagom_attachment **out)
{
    enum lagom_region_fault fault = find(request->path, true, out);
    if (fault != LAGOM_REGION_OK) {
        return fault;
    }
    fault = take_role(*out, request->role);
    if (fault == LAGOM_REGION_OK) {
        fault = confirm(*out, request->path);
    }
    if (fault != LAGOM_REGION_OK && (*out)->references == 0) {
        lagom_attachment_remove(*out);
    }
    return fault;
}

static enum lagom_region_fault attach_once(const struct request *request, struct lagom_attachment **out)
{
    enum lagom_region_fault fault = attach_existing(request, out);
    if (request->job_key == NULL) {
        return fault;
    }
    if (fault == LAGOM_REGION_STALE) {
        remove_stale(request->path);
        return LAGOM_REGION_MISSING;
    }
    return fault == LAGOM_REGION_MISSING ? create(request, out) : fault;
}

static void pause_a_millisecond(void)
{
    const struct timespec pause = {.tv_nsec = 1000 * 1000};
    nanosleep(&pause, NULL);
}

static enum lagom_region_fault attach(const struct request *request, struct lagom_attachment **out)
{
    enum lagom_region_fault fault = LAGOM_REGION_MISSING;
    for (uint32_t i = 0; i < ATTEMPTS; i++) {
        fault = attach_once(request, out);
        if (fault != LAGOM_REGION_MISSING || request->job_key == NULL) {
            break;
        }
        pause_a_millisecond();
    }
    return fault;
}

static void fill_mapping(struct lagom_mapping *mapping, struct lagom_attachment *attachment, const char *path)
{
    attachment->references++;
    mapping->region = attachment->region;
    mapping->fd = attachment->fd;
    snprintf(mapping->path, sizeof(mapping->path), "%s", path);
}

static enum lagom_region_fault open_as(struct lagom_mapping *mapping, const struct request *request)
{
    struct lagom_attachment *attachment = NULL;
    *mapping = (struct lagom_mapping){.fd = -1, .process = UINT32_MAX};
    lagom_attachments_lock();
    errno = 0;
    enum lagom_region_fault fault = attach(request, &attachment);
    mapping->error = fault == LAGOM_REGION_SYSTEM ? errno : 0;
    if (fault == LAGOM_REGION_OK) {
        fill_mapping(mapping, attachment, request->path);
        mapping->controller = request->role == ROLE_CONTROLLER;
        mapping->process = request->role == ROLE_RANK ? attachment->process : UINT32_MAX;
        attachment->joined += request->role == ROLE_RANK;
    }
    lagom_attachments_unlock();
    return fault;
}

enum lagom_region_fault lagom_region_join(struct lagom_mapping *mapping, const char *job_key, enum lagom_clock clock)
{
    char path[LAGOM_PATH_BYTES];
    lagom_region_path(job_key, path);
    return open_as(mapping, &(struct request){.path = path, .job_key = job_key, .role = ROLE_RANK, .clock = clock});
}

enum lagom_region_fault lagom_region_control(struct lagom_mapping *mapping, const char *job_key, bool create_it,
                                             enum lagom_clock clock)
{
    char path[LAGOM_PATH_BYTES];
    lagom_region_path(job_key, path);
    return open_as(mapping, &(struct request){.path = path,
                                              .job_key = create_it ? job_key : NULL,
                                              .role = ROLE_CONTROLLER,
                                              .clock = clock});
}

enum lagom_region_fault lagom_region_control_path(struct lagom_mapping *mapping, const char *path)
{
    return open_as(mapping, &(struct request){.path = path, .role = ROLE_CONTROLLER});
}

enum lagom_region_fault lagom_region_inspect(struct lagom_mapping *mapping, const char *path)
{
    struct lagom_attachment *attachment = NULL;
    *mapping = (struct lagom_mapping){.fd = -1, .process = UINT32_MAX};
    lagom_attachments_lock();
    enum lagom_region_fault fault = find(path, false, &attachment);
    mapping->error = fault == LAGOM_REGION_SYSTEM ? errno : 0;
    if (fault == LAGOM_REGION_OK) {
        fill_mapping(mapping, attachment, path);
    }
    lagom_attachments_unlock();
    return fault;
}

/* ---- Leaving ---------------------------------------------------------------------------------------------------- */

static void give_back_role(struct lagom_attachment *attachment, const struct lagom_mapping *mapping)
{
    if (mapping->controller) {
        lagom_table_give_control_back(attachment);
    }
    if (mapping->process != UINT32_MAX && --attachment->joined == 0) {
        lagom_table_give_process_back(attachment);
    }
}

static void remove_file(struct lagom_attachment *attachment, const struct lagom_mapping *mapping)
{
    if (mapping->controller && lagom_attachment_is_at(attachment, mapping->path)) {
        unlink(mapping->path);
    } else if (!mapping->controller && attachment->joined == 0 && !attachment->controller) {
        unlink_if_dead(attachment->fd, mapping->path);
    }
}

void lagom_region_leave(struct lagom_mapping *mapping, bool unlink_file)
{
    lagom_attachments_lock();
    struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    if (attachment != NULL) {
        give_back_role(attachment, mapping);
        if (unlink_file) {
            remove_file(attachment, mapping);
        }
        if (--attachment->references == 0) {
            lagom_attachment_remove(attachment);
        }
    }
    *mapping = (struct lagom_mapping){.fd = -1, .process = UINT32_MAX};
    lagom_attachments_unlock();
}
