/* SPDX-License-Identifier: Apache-2.0 */
/* stale_regions.c - the process that creates a region removes stale ones: a job whose processes were all killed leaves
 * 8 MB, and under a name that may never come again (port and restart count are in it). */
#include "shm/stale_regions.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "shm/region_file.h"

#define HASH_DIGITS 16u
#define NAME_BYTES 64u /* lagom-<uid>-<hash>.tmp.<hash> */
#define MOST_LEFTOVERS 16u /* of one scan; the next job clears the others away */
#define MOST_MAKERS LAGOM_MAX_PROCESSES
#define MOST_NAMES 100000u
#define NAMES_A_LOOK 64u

/* Where locks of other hosts or machines may not show, nobody can be judged dead. */
static bool is_local(const char *folder)
{
    static const uint32_t local[] = {0x01021994 /* tmpfs */, 0x858458f6 /* ramfs */, 0xef53 /* ext4 */,
                                     0x58465342 /* xfs */,   0x9123683e /* btrfs */, 0x794c7630 /* overlayfs */};
    struct statfs system;
    for (size_t i = 0; statfs(folder, &system) == 0 && i < sizeof(local) / sizeof(local[0]); i++) {
        if ((uint32_t)system.f_type == local[i]) {
            return true;
        }
    }
    return false;
}

static bool is_hash(const char *text)
{
    return strspn(text, "0123456789abcdef") == HASH_DIGITS;
}

/* What follows the region's name while it is made: .tmp.<hash>. */
static bool says_being_made(const char *rest)
{
    return strncmp(rest, ".tmp.", 5) == 0 && is_hash(rest + 5) && rest[5 + HASH_DIGITS] == '\0';
}

/* lagom-<uid>-<hash>, or that with .tmp.<hash> while it is made: a user's own file may be called almost like it. */
static bool is_name_of_ours(const char *name, const char *start)
{
    size_t length = strlen(start);
    if (strncmp(name, start, length) != 0 || !is_hash(name + length)) {
        return false;
    }
    const char *rest = name + length + HASH_DIGITS;
    return rest[0] == '\0' || says_being_made(rest);
}

/* ---- Looking ---------------------------------------------------------------------------------------------------- */

struct candidate {
    char name[NAME_BYTES];
    ino_t inode;
    bool may_be_region; /* the one that we are about to make */
    int fd;
};

struct scan {
    const char *folder;
    const char *region;
    char start[32]; /* of every name of ours */
    struct lagom_wait *wait;
    uint32_t count, leftovers;
    struct candidate candidates[MOST_LEFTOVERS + MOST_MAKERS];
};

static bool belongs_to_us(DIR *files, const char *name, ino_t *inode)
{
    struct stat file;
    bool ours = fstatat(dirfd(files), name, &file, AT_SYMLINK_NOFOLLOW) == 0 && file.st_uid == geteuid() &&
                S_ISREG(file.st_mode);
    *inode = ours ? file.st_ino : 0;
    return ours;
}

/* As many leftovers as one job may clear away, and beside them as many of its own makers as a node has ranks. */
static void add(struct scan *scan, const char *name, ino_t inode)
{
    size_t length = strlen(scan->region);
    bool may_be_region = strncmp(name, scan->region, length) == 0 && says_being_made(name + length);
    uint32_t makers = scan->count - scan->leftovers;
    if (may_be_region ? makers < MOST_MAKERS : scan->leftovers < MOST_LEFTOVERS) {
        struct candidate *candidate = &scan->candidates[scan->count++];
        scan->leftovers += !may_be_region;
        snprintf(candidate->name, NAME_BYTES, "%.*s", (int)NAME_BYTES - 1, name);
        candidate->inode = inode;
        candidate->may_be_region = may_be_region;
    }
}

static void look(struct scan *scan, DIR *files)
{
    const struct dirent *entry;
    ino_t inode;
    for (uint32_t names = 1; names <= MOST_NAMES && (entry = readdir(files)) != NULL; names++) {
        if (names % NAMES_A_LOOK == 0 && !lagom_wait_look(scan->wait)) {
            return;
        }
        if (is_name_of_ours(entry->d_name, scan->start) && belongs_to_us(files, entry->d_name, &inode)) {
            add(scan, entry->d_name, inode);
        }
    }
}

/* ---- Removing --------------------------------------------------------------------------------------------------- */

static bool remove_one(const struct scan *scan, struct candidate *candidate)
{
    char path[LAGOM_PATH_BYTES + NAME_BYTES];
    int length = snprintf(path, sizeof(path), "%s/%s", scan->folder, candidate->name);
    bool whole = length > 0 && (size_t)length < sizeof(path);
    return whole && lagom_file_remove_unmapped(path, &candidate->fd) == LAGOM_REGION_HELD && candidate->may_be_region;
}

/* This process's mappings are read before the first file is opened and before the first is closed: in a process of 20,000
 * mappings that takes 10 ms. */
static bool remove_all(struct scan *scan)
{
    struct lagom_mapped mapped;
    bool made = false;
    lagom_attachments_mapped(scan->start, &mapped);
    for (uint32_t i = 0; i < scan->count; i++) {
        scan->candidates[i].fd = -1;
        if (!lagom_is_mapped(&mapped, scan->candidates[i].inode)) {
            made = remove_one(scan, &scan->candidates[i]) || made;
        }
    }
    lagom_attachments_mapped(scan->start, &mapped);
    for (uint32_t i = 0; i < scan->count; i++) { /* one that another copy of this code has mapped by now stays open */
        if (scan->candidates[i].fd >= 0 && !lagom_is_mapped(&mapped, scan->candidates[i].inode)) {
            close(scan->candidates[i].fd);
        }
    }
    return made;
}

bool lagom_stale_regions_remove(const char *path, struct lagom_wait *wait)
{
    char folder[LAGOM_PATH_BYTES];
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    struct scan scan = {.folder = folder, .region = slash + 1, .wait = wait};
    snprintf(scan.start, sizeof(scan.start), "lagom-%u-", (unsigned)geteuid());
    DIR *files = is_local(folder) ? opendir(folder) : NULL;
    if (files == NULL) {
        return false;
    }
    look(&scan, files);
    closedir(files);
    return scan.count > 0 && remove_all(&scan);
}
