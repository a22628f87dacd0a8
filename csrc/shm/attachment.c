#include "shm/attachment.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_ATTACHMENTS 16u

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct lagom_attachment attachments[MAX_ATTACHMENTS];

static void before_fork(void)
{
    pthread_mutex_lock(&mutex);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&mutex);
}

/* The child holds none of the locks, so it must not write: zero pages of its own take the mapping's place, and whoever
 * still has a pointer into it reads a region without magic and writes to nobody. */
static void after_fork_in_child(void)
{
    for (uint32_t i = 0; i < MAX_ATTACHMENTS; i++) {
        if (attachments[i].region != NULL) {
            mmap(attachments[i].region, sizeof(struct lagom_region), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
            close(attachments[i].fd);
            attachments[i] = (struct lagom_attachment){0};
        }
    }
    pthread_mutex_unlock(&mutex);
}

/* Not at first use: another thread may fork while one holds the lock for the first time. */
__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

void lagom_attachments_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void lagom_attachments_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

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
            return &attachments[i];
        }
    }
    return NULL;
}

struct lagom_attachment *lagom_attachment_of(const struct lagom_region *region)
{
    for (uint32_t i = 0; region != NULL && i < MAX_ATTACHMENTS; i++) {
        if (attachments[i].region == region) {
            return &attachments[i];
        }
    }
    return NULL;
}

uint32_t lagom_attachment_mappings(const char *path)
{
    struct stat file;
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    FILE *maps = lstat(path, &file) == 0 ? fopen("/proc/self/maps", "re") : NULL;
    char *line = NULL;
    size_t room = 0;
    uint32_t count = 0;
    while (maps != NULL && getline(&line, &room, maps) > 0) {
        unsigned long long inode;
        /* By name and number: of some file systems the device is told otherwise there than by lstat. */
        count += strstr(line, name) != NULL && sscanf(line, "%*s %*s %*s %*s %llu", &inode) == 1 && inode == file.st_ino;
    }
    free(line);
    if (maps != NULL) {
        fclose(maps);
    }
    return count;
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
    *entry = (struct lagom_attachment){.region = address,
                                       .fd = fd,
                                       .device = file.st_dev,
                                       .inode = file.st_ino,
                                       .process = UINT32_MAX,
                                       .writable = writable};
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
    munmap(attachment->region, sizeof(struct lagom_region));
    *attachment = (struct lagom_attachment){0};
}

void lagom_attachment_remove(struct lagom_attachment *attachment)
{
    close(attachment->fd);
    lagom_attachment_unmap(attachment);
}

bool lagom_attachment_is_at(const struct lagom_attachment *attachment, const char *path)
{
    struct stat file;
    return lstat(path, &file) == 0 && same_file(attachment, &file);
}
