/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/attachment.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "protocol/lagom_atomic.h"

#define MAX_ATTACHMENTS 16u

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;  /* may be slept under: neither fork nor exit waits for it */
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER; /* of what follows; nobody sleeps under it */
static struct lagom_attachment attachments[MAX_ATTACHMENTS];

/* The threads that hold these, 0 = none: a signal handler must know whether it has interrupted the holder. */
static uintptr_t turn_of, table_of;
static uintptr_t forking; /* this one holds the table for its fork */
static bool adrift;

static uintptr_t this_thread(void)
{
    return (uintptr_t)pthread_self(); /* the same in a forked child */
}

static void note(uintptr_t *holder, uintptr_t thread)
{
    __atomic_store_n(holder, thread, __ATOMIC_RELAXED);
}

static bool is_ours(const uintptr_t *holder)
{
    return __atomic_load_n(holder, __ATOMIC_RELAXED) == this_thread();
}

/* ---- Locks ------------------------------------------------------------------------------------------------------ */

/* In an adrift child, once the function that it was in is over. */
static void forget_inherited(void)
{
    if (adrift) {
        memset(attachments, 0, sizeof(attachments));
        adrift = false;
    }
}

bool lagom_attachments_adrift(void)
{
    return adrift;
}

void lagom_attachments_lock(void)
{
    pthread_mutex_lock(&table);
    note(&table_of, this_thread());
}

static void unlock_table(void)
{
    note(&table_of, 0);
    pthread_mutex_unlock(&table);
}

void lagom_attachments_unlock(void)
{
    forget_inherited();
    unlock_table();
}

void lagom_attachments_begin(void)
{
    pthread_mutex_lock(&turn);
    note(&turn_of, this_thread());
    lagom_attachments_lock();
}

bool lagom_attachments_try_begin(void)
{
    if (pthread_mutex_trylock(&turn) != 0) {
        return false;
    }
    note(&turn_of, this_thread());
    if (pthread_mutex_trylock(&table) != 0) {
        note(&turn_of, 0);
        pthread_mutex_unlock(&turn);
        return false;
    }
    note(&table_of, this_thread());
    return true;
}

void lagom_attachments_end(void)
{
    lagom_attachments_unlock();
    note(&turn_of, 0);
    pthread_mutex_unlock(&turn);
}

static void check_descriptor(struct lagom_attachment *attachment)
{
    struct stat file;
    bool ours = fstat(attachment->fd, &file) == 0 && file.st_dev == attachment->device &&
                file.st_ino == attachment->inode;
    attachment->fd = ours ? attachment->fd : -1;
}

void lagom_attachments_sleep(const struct timespec *pause)
{
    unlock_table();
    nanosleep(pause, NULL);
    lagom_attachments_lock();
    for (uint32_t i = 0; i < MAX_ATTACHMENTS; i++) {
        if (attachments[i].region != NULL) {
            check_descriptor(&attachments[i]);
        }
    }
}

/* ---- Forks ------------------------------------------------------------------------------------------------------ */

/* Held, so that the child finds the table whole. Not waited for: a signal handler may be forking that has interrupted the
 * thread which holds it. Whoever changes the table keeps every moment of it fit for the child. */
static void before_fork(void)
{
    if (pthread_mutex_trylock(&table) == 0) {
        note(&forking, this_thread());
    }
}

static void after_fork_in_parent(void)
{
    if (is_ours(&forking)) {
        note(&forking, 0);
        pthread_mutex_unlock(&table);
    }
}

/* The child holds none of the locks, so it must not write: zero pages of its own take the mapping's place, and whoever
 * still has a pointer into it reads a region without magic and writes to nobody. `kept`: the entry stays. */
static void inherit(struct lagom_attachment *attachment, bool kept)
{
    mmap(attachment->region, sizeof(struct lagom_region), PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    check_descriptor(attachment);
    if (attachment->fd >= 0) {
        close(attachment->fd);
    }
    attachment->fd = -1;
    if (!kept) {
        *attachment = (struct lagom_attachment){0};
    }
}

/* What another thread held, is nobody's here. What this thread itself holds, a signal handler has interrupted: the child
 * goes on in the middle of it, with entries that stay where they are, and lets go of it. */
static void after_fork_in_child(void)
{
    adrift = is_ours(&turn_of) || is_ours(&table_of);
    for (uint32_t i = 0; i < MAX_ATTACHMENTS; i++) {
        if (attachments[i].region != NULL) {
            inherit(&attachments[i], adrift);
        }
    }
    if (!is_ours(&turn_of)) {
        turn = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        note(&turn_of, 0);
    }
    if (is_ours(&forking)) {
        pthread_mutex_unlock(&table);
    } else if (!is_ours(&table_of)) {
        table = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        note(&table_of, 0);
    }
    note(&forking, 0);
}

/* Not at first use: another thread may fork while one holds the lock for the first time. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* ---- The table -------------------------------------------------------------------------------------------------- */

static bool same_file(const struct lagom_attachment *attachment, const struct stat *file)
{
    return attachment->region != NULL && attachment->device == file->st_dev && attachment->inode == file->st_ino;
}

struct lagom_attachment *lagom_attachment_at(const char *path)
{
    struct stat file;
    if (lstat(path, &file) != 0) {
        return NULL;
    }
    for (uint32_t i = 0; i < MAX_ATTACHMENTS; i++) {
        if (same_file(&attachments[i], &file)) {
            check_descriptor(&attachments[i]);
            return &attachments[i];
        }
    }
    return NULL;
}

struct lagom_attachment *lagom_attachment_of(const struct lagom_region *region)
{
    for (uint32_t i = 0; region != NULL && i < MAX_ATTACHMENTS; i++) {
        if (attachments[i].region == region) {
            check_descriptor(&attachments[i]);
            return &attachments[i];
        }
    }
    return NULL;
}

/* By name and inode: on some file systems /proc/self/maps and lstat report different devices. */
static void for_each_mapping(const char *part_of_name, void (*found)(void *what, ino_t inode), void *what)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t room = 0;
    while (maps != NULL && getline(&line, &room, maps) > 0) {
        unsigned long long inode;
        if (strstr(line, part_of_name) != NULL && sscanf(line, "%*s %*s %*s %*s %llu", &inode) == 1) {
            found(what, (ino_t)inode);
        }
    }
    free(line);
    if (maps != NULL) {
        fclose(maps);
    }
}

struct count {
    ino_t inode;
    uint32_t mappings;
};

static void count_one(void *what, ino_t inode)
{
    struct count *count = what;
    count->mappings += inode == count->inode;
}

/* The owner first: what another user put there, we have not mapped, and the maps of a large process take milliseconds. */
uint32_t lagom_attachment_mappings(const char *path)
{
    struct stat file;
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    if (lstat(path, &file) != 0 || file.st_uid != geteuid()) {
        return 0;
    }
    struct count count = {.inode = file.st_ino};
    for_each_mapping(name, count_one, &count);
    return count.mappings;
}

static void list_one(void *what, ino_t inode)
{
    struct lagom_mapped *mapped = what;
    if (mapped->count < LAGOM_MOST_MAPPED) {
        mapped->inodes[mapped->count] = inode;
    }
    mapped->count++;
}

void lagom_attachments_mapped(const char *part_of_name, struct lagom_mapped *mapped)
{
    mapped->count = 0;
    for_each_mapping(part_of_name, list_one, mapped);
}

bool lagom_is_mapped(const struct lagom_mapped *mapped, ino_t inode)
{
    bool is_mapped = mapped->count > LAGOM_MOST_MAPPED;
    for (uint32_t i = 0; i < mapped->count && !is_mapped; i++) {
        is_mapped = mapped->inodes[i] == inode;
    }
    return is_mapped;
}

static struct lagom_attachment *free_entry(void)
{
    for (uint32_t i = 0; i < MAX_ATTACHMENTS; i++) {
        if (attachments[i].region == NULL) {
            return &attachments[i];
        }
    }
    return NULL;
}

struct lagom_attachment *lagom_attachment_add(int fd, bool writable)
{
    struct stat file;
    struct lagom_attachment *entry = free_entry();
    if (adrift) {
        errno = ECHILD;
        return NULL;
    }
    if (entry == NULL || fstat(fd, &file) != 0 || file.st_size != (off_t)sizeof(struct lagom_region)) {
        errno = entry == NULL ? EMFILE : EINVAL;
        return NULL;
    }
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    /* All pages now, not one by one in the middle of a collective: there two ranks that touch the same page for the
     * first time would wait for each other in the kernel. */
    int how = writable ? MAP_SHARED | MAP_POPULATE : MAP_SHARED;
    void *address = mmap(NULL, sizeof(struct lagom_region), protection, how, fd, 0);
    if (address == MAP_FAILED) {
        return NULL;
    }
    *entry = (struct lagom_attachment){
        .fd = fd, .device = file.st_dev, .inode = file.st_ino, .process = UINT32_MAX, .writable = writable};
    lagom_store_release(&entry->region, (struct lagom_region *)address); /* last: a fork may come at any moment */
    return entry;
}

bool lagom_attachment_make_writable(struct lagom_attachment *attachment)
{
    if (!attachment->writable) {
        attachment->writable = mprotect(attachment->region, sizeof(struct lagom_region), PROT_READ | PROT_WRITE) == 0;
    }
    return attachment->writable;
}

void lagom_attachment_unmap(struct lagom_attachment *attachment)
{
    struct lagom_region *region = attachment->region;
    lagom_store_release(&attachment->region, (struct lagom_region *)NULL); /* first: a fork may come at any moment */
    munmap(region, sizeof(struct lagom_region));
    *attachment = (struct lagom_attachment){0};
}

void lagom_attachment_remove(struct lagom_attachment *attachment)
{
    check_descriptor(attachment);
    int fd = attachment->fd;
    lagom_attachment_unmap(attachment);
    if (fd >= 0) {
        close(fd);
    }
}

bool lagom_attachment_is_at(const struct lagom_attachment *attachment, const char *path)
{
    struct stat file;
    return lstat(path, &file) == 0 && same_file(attachment, &file);
}
