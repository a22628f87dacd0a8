/* stale_regions.c - who makes a region clears away those that nobody holds: a job of which everybody was killed leaves
 * 8 MB, and under a name that may never come again (port and restart count are in it). */
#include "shm/stale_regions.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "shm/region_file.h"

#define HASH_DIGITS 16u

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

static enum lagom_region_fault remove_one(const char *folder, const char *name)
{
    char path[LAGOM_PATH_BYTES + 64];
    int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
    bool whole = length > 0 && (size_t)length < sizeof(path);
    return whole ? lagom_file_remove_stale(path) : LAGOM_REGION_MISSING;
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
static bool is_name_of_ours(const char *name)
{
    char ours[32];
    size_t length = (size_t)snprintf(ours, sizeof(ours), "lagom-%u-", (unsigned)geteuid());
    if (strncmp(name, ours, length) != 0 || !is_hash(name + length)) {
        return false;
    }
    const char *rest = name + length + HASH_DIGITS;
    return rest[0] == '\0' || says_being_made(rest);
}

static bool remove_all(const char *folder, const char *region)
{
    const struct dirent *entry;
    bool made = false;
    DIR *files = opendir(folder);
    while (files != NULL && (entry = readdir(files)) != NULL) {
        const char *name = entry->d_name;
        if (is_name_of_ours(name)) {
            bool held = remove_one(folder, name) == LAGOM_REGION_HELD;
            size_t length = strlen(region);
            made = made || (held && strncmp(name, region, length) == 0 && says_being_made(name + length));
        }
    }
    if (files != NULL) {
        closedir(files);
    }
    return made;
}

bool lagom_stale_regions_remove(const char *path)
{
    char folder[LAGOM_PATH_BYTES];
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return is_local(folder) && remove_all(folder, slash + 1);
}
