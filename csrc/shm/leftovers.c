/* leftovers.c - who makes a region clears away those that nobody holds: a job of which everybody was killed leaves 7 MB,
 * and under a name that may never come again (port and restart count are in it). */
#include "shm/leftovers.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "shm/region_file.h"

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

static void remove_one(const char *folder, const char *name)
{
    char path[LAGOM_PATH_BYTES + 64];
    int length = snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (length > 0 && (size_t)length < sizeof(path)) {
        lagom_file_remove_stale(path);
    }
}

static void remove_all(const char *folder)
{
    char ours[32];
    const struct dirent *entry;
    DIR *files = opendir(folder);
    snprintf(ours, sizeof(ours), "lagom-%u-", (unsigned)geteuid());
    while (files != NULL && (entry = readdir(files)) != NULL) {
        if (strncmp(entry->d_name, ours, strlen(ours)) == 0) {
            remove_one(folder, entry->d_name);
        }
    }
    if (files != NULL) {
        closedir(files);
    }
}

void lagom_leftovers_remove(const char *path)
{
    char folder[LAGOM_PATH_BYTES];
    snprintf(folder, sizeof(folder), "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash != NULL) {
        *slash = '\0';
        if (is_local(folder)) {
            remove_all(folder);
        }
    }
}
