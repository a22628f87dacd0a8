/* SPDX-License-Identifier: Apache-2.0 */
/* region.c - attaching and leaving: whoever comes finds the region or makes it, takes its lock, and sees that it is
 * still the one. The file: region_file.c. Who is registered in it: region_table.c. */
#include "shm/region.h"

#include <errno.h>
#include <linux/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shm/attachment.h"
#include "shm/file_lock.h"
#include "shm/job_key.h"
#include "shm/stale_regions.h"
#include "shm/region_file.h"
#include "shm/region_table.h"
#include "shm/wait_budget.h"

#define ATTEMPTS 50u             /* each loses to somebody who made or removed the file meanwhile */
#define MAKER_MILLISECONDS 1000u     /* a region is made in a few ms; one stopped at it is not waited for longer */
#define JUDGE_MILLISECONDS 500u
#define LEAVE_MILLISECONDS 100u /* others judge for microseconds; two that leave at once must not both give up */
#define TEMPORARY_BYTES (LAGOM_PATH_BYTES + 32u)

enum role { ROLE_RANK, ROLE_CONTROLLER };

struct request {
    const char *path;
    const char *job_key; /* NULL = never create */
    enum role role;
    enum lagom_clock clock;
};

bool lagom_region_path(const char *job_key, char *out)
{
    const char *named = getenv("LAGOM_SHM_DIR"), *dir = named != NULL && named[0] != '\0' ? named : "/dev/shm";
    int length = snprintf(out, LAGOM_PATH_BYTES, "%s/lagom-%u-%016llx", dir, (unsigned)geteuid(),
                          (unsigned long long)lagom_hash_text(job_key));
    bool whole = length > 0 && (uint32_t)length < LAGOM_PATH_BYTES;
    out[whole ? length : 0] = '\0';
    return whole;
}

/* ---- Making one ------------------------------------------------------------------------------------------------- */

static enum lagom_region_fault take_role(struct lagom_attachment *attachment, enum role role)
{
    return role == ROLE_RANK ? lagom_table_take_process(attachment) : lagom_table_take_control(attachment);
}

/* Ranks in containers of their own often have the same process id, and start at the same moment. */
static void temporary_name(const char *path, char out[TEMPORARY_BYTES])
{
    uint64_t word = 0;
    /* getrandom() itself is newer than the glibc that the wheels are built for */
    if (syscall(SYS_getrandom, &word, sizeof(word), GRND_NONBLOCK) != (long)sizeof(word)) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        word = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)getpid();
    }
    snprintf(out, TEMPORARY_BYTES, "%s.tmp.%016llx", path, (unsigned long long)word);
}

/* EEXIST: somebody else's was there first. ENOENT: ours was taken for stale before it was locked. */
static enum lagom_region_fault put_in_place(const char *temporary, const char *path)
{
    if (lagom_attachments_adrift()) {
        return LAGOM_REGION_SYSTEM;
    }
    if (link(temporary, path) == 0) {
        return LAGOM_REGION_OK;
    }
    return errno == EEXIST || errno == ENOENT ? LAGOM_REGION_MISSING : LAGOM_REGION_SYSTEM;
}

/* Whole, and locked by its creator, before anybody can see it. MISSING = try again. */
static enum lagom_region_fault create(const struct request *request, struct lagom_attachment **out)
{
    char temporary[TEMPORARY_BYTES];
    temporary_name(request->path, temporary);
    enum lagom_region_fault fault = lagom_file_make(temporary, out);
    if (fault != LAGOM_REGION_OK) {
        return fault;
    }
    lagom_file_write_header(&(*out)->region->header, request->job_key, request->clock);
    fault = take_role(*out, request->role);
    lagom_lock_drop((*out)->fd, LAGOM_LOCK_REGISTER);
    fault = fault == LAGOM_REGION_OK ? put_in_place(temporary, request->path) : fault;
    int failure = errno;
    if (fault != LAGOM_REGION_OK) {
        lagom_attachment_remove(*out);
    }
    lagom_file_unlink_temporary(temporary);
    errno = failure;
    return fault;
}

/* ---- Attaching -------------------------------------------------------------------------------------------------- */

/* After our lock is taken: wait out a judge who may have looked before, then see whether the file is still in place.
 * A judge that was stopped in there is not waited for twice. */
static enum lagom_region_fault confirm(struct lagom_attachment *attachment, const char *path)
{
    if (!lagom_wait_budget_lock(&attachment->fd, LAGOM_LOCK_JANITOR, JUDGE_MILLISECONDS)) {
        return LAGOM_REGION_HELD;
    }
    lagom_lock_drop(attachment->fd, LAGOM_LOCK_JANITOR);
    return lagom_attachment_is_at(attachment, path) ? LAGOM_REGION_OK : LAGOM_REGION_MISSING;
}

/* A hard link of somebody's could show us the region of another job of ours; nothing would go wrong in it but tuning. */
static bool is_of_job(const struct lagom_attachment *attachment, const char *job_key)
{
    return job_key == NULL || strncmp(attachment->region->header.job_key, job_key, LAGOM_PATH_BYTES - 1) == 0;
}

static enum lagom_region_fault attach_existing(const struct request *request, struct lagom_attachment **out)
{
    enum lagom_region_fault fault = lagom_file_find(request->path, true, out);
    if (fault != LAGOM_REGION_OK) {
        return fault;
    }
    fault = is_of_job(*out, request->job_key) ? take_role(*out, request->role) : LAGOM_REGION_FOREIGN;
    if (fault == LAGOM_REGION_OK) {
        fault = confirm(*out, request->path);
    }
    if (fault != LAGOM_REGION_OK && (*out)->references == 0) {
        lagom_attachment_remove(*out); /* with whatever role it had taken */
    }
    return fault;
}

/* Somebody else is making the region: he is waited for so long. */
struct patience {
    struct lagom_wait wait;
    bool waiting;
    bool tried_again; /* once, where there was no room and nobody to be seen who took it */
};

static enum lagom_region_fault wait_for_maker(struct patience *patience)
{
    patience->waiting = true;
    return LAGOM_REGION_MISSING;
}

/* One maker at a time: every rank of a job comes at the same moment, and where shared memory is small (64 MB in Docker)
 * eight regions being made leave no room for one, nor for NCCL. */
static enum lagom_region_fault make(const struct request *request, struct patience *patience,
                                    struct lagom_attachment **out)
{
    bool patient = patience->wait.left_ns != 0;
    if (lagom_stale_regions_remove(request->path, &patience->wait) && patient) {
        return wait_for_maker(patience);
    }
    enum lagom_region_fault fault = create(request, out);
    if (fault != LAGOM_REGION_NO_SPACE || !patient) {
        return fault;
    }
    /* Some may still have begun at once: the room is another's, whose temporary name goes only once its region is there,
     * or nobody's any more, where all found too little and gave it back. */
    bool other = lagom_stale_regions_remove(request->path, &patience->wait) || access(request->path, F_OK) == 0;
    bool again = other || !patience->tried_again;
    patience->tried_again = true;
    return again ? wait_for_maker(patience) : fault;
}

static enum lagom_region_fault attach_once(const struct request *request, struct patience *patience,
                                           struct lagom_attachment **out)
{
    enum lagom_region_fault fault = attach_existing(request, out);
    if (request->job_key == NULL) {
        return fault;
    }
    if (fault == LAGOM_REGION_STALE) {
        lagom_file_remove_stale(request->path);
        return LAGOM_REGION_MISSING;
    }
    return fault == LAGOM_REGION_MISSING ? make(request, patience, out) : fault;
}

static enum lagom_region_fault attach(const struct request *request, struct lagom_attachment **out)
{
    struct patience patience = {.wait = lagom_wait_begin(MAKER_MILLISECONDS)};
    enum lagom_region_fault fault = LAGOM_REGION_MISSING;
    for (uint32_t i = 0; i < ATTEMPTS; i += !patience.waiting) {
        patience.waiting = false;
        fault = attach_once(request, &patience, out);
        if (fault != LAGOM_REGION_MISSING || request->job_key == NULL) {
            break;
        }
        lagom_wait_pause(&patience.wait, 1000);
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
    lagom_attachments_begin();
    lagom_wait_budget_renew();
    errno = request->path[0] == '\0' ? ENAMETOOLONG : 0;
    enum lagom_region_fault fault = errno == 0 ? attach(request, &attachment) : LAGOM_REGION_SYSTEM;
    mapping->error = fault == LAGOM_REGION_SYSTEM ? errno : 0;
    if (fault == LAGOM_REGION_OK) {
        fill_mapping(mapping, attachment, request->path);
        mapping->controller = request->role == ROLE_CONTROLLER;
        mapping->process = request->role == ROLE_RANK ? attachment->process : UINT32_MAX;
        attachment->joined += request->role == ROLE_RANK;
    }
    lagom_attachments_end();
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
    return open_as(mapping,
                   &(struct request){
                       .path = path, .job_key = create_it ? job_key : NULL, .role = ROLE_CONTROLLER, .clock = clock});
}

enum lagom_region_fault lagom_region_control_path(struct lagom_mapping *mapping, const char *path)
{
    return open_as(mapping, &(struct request){.path = path, .role = ROLE_CONTROLLER});
}

enum lagom_region_fault lagom_region_inspect(struct lagom_mapping *mapping, const char *path)
{
    struct lagom_attachment *attachment = NULL;
    *mapping = (struct lagom_mapping){.fd = -1, .process = UINT32_MAX};
    lagom_attachments_begin();
    enum lagom_region_fault fault = lagom_file_find(path, false, &attachment);
    mapping->error = fault == LAGOM_REGION_SYSTEM ? errno : 0;
    if (fault == LAGOM_REGION_OK) {
        fill_mapping(mapping, attachment, path);
    }
    lagom_attachments_end();
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

/* Of the last one only: where a rank still lives, the next controller must find it. */
static void remove_file(struct lagom_attachment *attachment, const struct lagom_mapping *mapping)
{
    if (attachment->joined == 0 && !attachment->controller) {
        lagom_file_unlink_if_dead(&attachment->fd, mapping->path, LEAVE_MILLISECONDS);
    }
}

bool lagom_region_retire(struct lagom_mapping *mapping)
{
    lagom_attachments_begin();
    struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    bool deserted = attachment != NULL && attachment->controller && attachment->joined == 0;
    if (deserted) {
        deserted = lagom_file_unlink_if_dead(&attachment->fd, mapping->path, 0) != LAGOM_REGION_HELD;
    }
    lagom_attachments_end();
    return deserted;
}

static void give_back(struct lagom_attachment *attachment, const struct lagom_mapping *mapping, bool unlink_file)
{
    give_back_role(attachment, mapping);
    if (unlink_file) {
        remove_file(attachment, mapping);
    }
}

void lagom_region_leave(struct lagom_mapping *mapping, bool unlink_file)
{
    lagom_attachments_begin();
    struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    if (attachment != NULL) {
        give_back(attachment, mapping, unlink_file);
        if (--attachment->references == 0) {
            lagom_attachment_remove(attachment);
        }
    }
    *mapping = (struct lagom_mapping){.fd = -1, .process = UINT32_MAX};
    lagom_attachments_end();
}

void lagom_region_exit(const struct lagom_mapping *mapping)
{
    if (!lagom_attachments_try_begin()) {
        return;
    }
    struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    if (attachment != NULL) {
        give_back(attachment, mapping, true);
    }
    lagom_attachments_end();
}
