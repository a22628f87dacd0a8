/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/ownership.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_LINKS 40u /* as the kernel follows */
#define OWNERS 5u
#define PROGRAM "/proc/self/exe"

/* ---- Who is trusted --------------------------------------------------------------------------------------------- */

struct trusted {
    uid_t owners[OWNERS + 1];
    size_t count;
};

static void trust_owner_of(struct trusted *trusted, const char *path)
{
    struct stat file;
    if (path != NULL && stat(path, &file) == 0) {
        trusted->owners[trusted->count++] = file.st_uid;
    }
}

/* The library that this code is in; NULL = it is not known. */
static const char *this_library(void)
{
    static const char here;
    Dl_info info;
    return dladdr(&here, &info) != 0 ? info.dli_fname : NULL;
}

static struct trusted whom_we_trust(const char *beside)
{
    struct trusted trusted = {.owners = {0, geteuid()}, .count = 2};
    trust_owner_of(&trusted, "/");
    trust_owner_of(&trusted, PROGRAM);
    trust_owner_of(&trusted, this_library());
    trust_owner_of(&trusted, beside);
    return trusted;
}

static bool is_trusted(const struct trusted *trusted, uid_t owner)
{
    for (size_t i = 0; i < trusted->count; i++) {
        if (trusted->owners[i] == owner) {
            return true;
        }
    }
    return false;
}

/* ---- The way to a file ------------------------------------------------------------------------------------------ */

/* What is walked: `here` has been seen to be guarded, `rest` is still to be resolved in it. */
struct walk {
    char here[PATH_MAX];
    char rest[2 * PATH_MAX];
    uint32_t links;
    struct trusted trusted;
    char *reason;
    size_t room;
};

/* The long part comes last: it is what gets cut where there is no room. */
static bool refuse(struct walk *walk, const char *why, const char *path)
{
    snprintf(walk->reason, walk->room, "%s %.140s", why, path);
    return false;
}

static bool owner_fits(struct walk *walk, const char *path, const struct stat *entry)
{
    if (is_trusted(&walk->trusted, entry->st_uid)) {
        return true;
    }
    char why[64];
    snprintf(why, sizeof(why), "another user (%u) owns", (unsigned)entry->st_uid);
    return refuse(walk, why, path);
}

static bool came_through(const char *code, const char *folder)
{
    char real[PATH_MAX];
    size_t length = strlen(folder);
    return code != NULL && realpath(code, real) != NULL && strncmp(real, folder, length) == 0 && real[length] == '/';
}

/* Open to all is no harm in a sticky folder: what is in it can only be moved by its owner. Nor is it in one that the
 * program or this library came through: whoever could change what lies there has had this process already. */
static bool mode_fits(struct walk *walk, const char *path, const struct stat *entry)
{
    bool open_to_all = !S_ISLNK(entry->st_mode) && (entry->st_mode & S_IWOTH) != 0;
    bool sticky = S_ISDIR(entry->st_mode) && (entry->st_mode & S_ISVTX) != 0;
    return !open_to_all || sticky || came_through(PROGRAM, path) || came_through(this_library(), path) ||
           refuse(walk, "every user may write", path);
}

static bool begin(struct walk *walk, const char *path)
{
    char here[PATH_MAX] = "";
    if (path[0] != '/' && getcwd(here, sizeof(here)) == NULL) {
        return refuse(walk, "the current folder cannot be read, needed for", path);
    }
    int length = snprintf(walk->rest, sizeof(walk->rest), "%s/%s", here, path);
    snprintf(walk->here, sizeof(walk->here), "/");
    return (length > 0 && (size_t)length < sizeof(walk->rest)) || refuse(walk, "the path is too long:", path);
}

/* The next name of `rest`, and what is left of it; false = there is none. */
static bool next_name(struct walk *walk, char name[NAME_MAX + 1])
{
    const char *start = walk->rest + strspn(walk->rest, "/");
    size_t length = strcspn(start, "/");
    if (length == 0 || length > NAME_MAX) {
        return false;
    }
    memcpy(name, start, length);
    name[length] = '\0';
    memmove(walk->rest, start + length, strlen(start + length) + 1);
    return true;
}

static void go_up(struct walk *walk)
{
    char *slash = strrchr(walk->here, '/');
    slash[slash == walk->here] = '\0';
}

static bool join(struct walk *walk, const char *name, char out[PATH_MAX])
{
    int length = snprintf(out, PATH_MAX, "%s/%s", strcmp(walk->here, "/") == 0 ? "" : walk->here, name);
    return (length > 0 && length < PATH_MAX) || refuse(walk, "the path is too long:", name);
}

/* The link's text takes its place in `rest`. */
static bool follow(struct walk *walk, const char *link)
{
    char target[PATH_MAX], rest[sizeof(walk->rest)];
    ssize_t length = readlink(link, target, sizeof(target) - 1);
    if (length <= 0 || ++walk->links > MOST_LINKS) {
        return refuse(walk, "too many links, or one that cannot be read:", link);
    }
    target[length] = '\0';
    int total = snprintf(rest, sizeof(rest), "%s%s", target, walk->rest);
    if (total < 0 || (size_t)total >= sizeof(rest)) {
        return refuse(walk, "the target of this link is too long:", link);
    }
    memcpy(walk->rest, rest, (size_t)total + 1);
    if (target[0] == '/') {
        snprintf(walk->here, sizeof(walk->here), "/");
    }
    return true;
}

static bool enter(struct walk *walk, const char *name)
{
    char path[PATH_MAX];
    struct stat entry;
    if (!join(walk, name, path)) {
        return false;
    }
    if (lstat(path, &entry) != 0) {
        return refuse(walk, "there is no", path);
    }
    if (!owner_fits(walk, path, &entry) || !mode_fits(walk, path, &entry)) {
        return false;
    }
    if (S_ISLNK(entry.st_mode)) {
        return follow(walk, path);
    }
    memcpy(walk->here, path, sizeof(path));
    return true;
}

static bool is_regular(struct walk *walk)
{
    struct stat file;
    bool regular = stat(walk->here, &file) == 0 && S_ISREG(file.st_mode);
    return regular || refuse(walk, "not a regular file:", walk->here);
}

bool lagom_path_is_guarded(const char *path, const char *beside, char *reason, size_t reason_bytes)
{
    struct walk walk = {.trusted = whom_we_trust(beside), .reason = reason, .room = reason_bytes};
    char name[NAME_MAX + 1];
    struct stat root;
    if (!begin(&walk, path) || stat("/", &root) != 0 || !mode_fits(&walk, "/", &root)) {
        return false;
    }
    while (next_name(&walk, name)) {
        if (strcmp(name, "..") == 0) {
            go_up(&walk);
        } else if (strcmp(name, ".") != 0 && !enter(&walk, name)) {
            return false;
        }
    }
    return is_regular(&walk);
}

/* ---- The log ---------------------------------------------------------------------------------------------------- */

/* Named by a link of another user, it would be a place of his choice. */
static bool name_fits(struct walk *walk, const char *folder)
{
    struct stat entry;
    return lstat(folder, &entry) != 0 || owner_fits(walk, folder, &entry);
}

static bool folder_fits(struct walk *walk, int fd, const char *folder)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return refuse(walk, "cannot be read:", folder);
    }
    return name_fits(walk, folder) && owner_fits(walk, folder, &status) &&
           ((status.st_mode & S_IWOTH) == 0 || refuse(walk, "every user may write", folder));
}

static bool log_fits(struct walk *walk, int fd, const char *name)
{
    struct stat status;
    bool plain = fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink == 1;
    return (plain && status.st_uid == geteuid()) || refuse(walk, "not a regular file of this user:", name);
}

bool lagom_guarded_beside(const char *name, char *path, char *reason, size_t reason_bytes)
{
    const char *library = this_library(), *slash = library == NULL ? NULL : strrchr(library, '/');
    int folder = slash == NULL ? 0 : (int)(slash - library) + 1;
    int length = snprintf(path, PATH_MAX, "%.*s%s", folder, folder == 0 ? "" : library, name);
    if (folder == 0 || length < 0 || length >= PATH_MAX) {
        snprintf(reason, reason_bytes, "the plugin's own folder is not known");
        return false;
    }
    return lagom_path_is_guarded(path, NULL, reason, reason_bytes);
}

int lagom_open_guarded_log(const char *folder, const char *name, char *reason, size_t reason_bytes)
{
    struct walk walk = {.trusted = whom_we_trust(NULL), .reason = reason, .room = reason_bytes};
    int log = -1, there = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (there < 0) {
        refuse(&walk, strerror(errno), folder);
        return -1;
    }
    if (folder_fits(&walk, there, folder)) {
        log = openat(there, name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
        if (log < 0) {
            refuse(&walk, errno == ELOOP ? "it is a link:" : strerror(errno), name);
        } else if (!log_fits(&walk, log, name)) {
            close(log);
            log = -1;
        }
    }
    close(there);
    return log;
}
