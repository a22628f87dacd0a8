/* SPDX-License-Identifier: Apache-2.0 */
/* shm_ownership.c - whose a file is, along every way that can lead to it. Who is another user here is uid 65534. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>

#include "shm/ownership.h"
#include "tests/native/check.h"

#define OTHER 65534

static char folder[] = "/tmp/lagom-ownership-XXXXXX";
static char reason[256];

static const char *in_folder(const char *name)
{
    static char paths[4][PATH_MAX]; /* as many as one line needs */
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_MAX, "%s/%s", folder, name);
    return path;
}

static void make_file(const char *name)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT, 0600);
    CHECK(fd >= 0);
    close(fd);
}

static bool guarded(const char *name)
{
    reason[0] = '\0';
    return lagom_path_is_guarded(in_folder(name), NULL, reason, sizeof(reason));
}

static bool refused(const char *name, const char *why)
{
    return !guarded(name) && strstr(reason, why) != NULL;
}

static void our_own_are_guarded(void)
{
    make_file("file");
    CHECK(mkdir(in_folder("sub"), 0755) == 0);
    make_file("sub/file");
    CHECK(guarded("file") && guarded("sub/file") && guarded("sub/../file") && guarded(".//sub/./../sub//file"));
    CHECK(lagom_path_is_guarded("/bin/sh", NULL, reason, sizeof(reason))); /* through the system's own links */
}

static void relative_ways_count_from_here(void)
{
    char before[PATH_MAX];
    CHECK(getcwd(before, sizeof(before)) != NULL && chdir(in_folder("sub")) == 0);
    CHECK(lagom_path_is_guarded("file", NULL, reason, sizeof(reason)));
    CHECK(lagom_path_is_guarded("../file", NULL, reason, sizeof(reason)));
    CHECK(!lagom_path_is_guarded("nothing", NULL, reason, sizeof(reason)));
    CHECK(chdir(before) == 0);
}

static void only_a_regular_file_will_do(void)
{
    CHECK(refused("sub", "not a regular file"));
    CHECK(refused("nothing", "there is no"));
    CHECK(refused("file/below", "there is no"));
    CHECK(mkfifo(in_folder("fifo"), 0600) == 0 && refused("fifo", "not a regular file"));
}

static void a_file_open_to_all_is_not(void)
{
    make_file("open");
    CHECK(chmod(in_folder("open"), 0666) == 0 && refused("open", "every user may write"));
    CHECK(chmod(in_folder("open"), 0664) == 0 && guarded("open")); /* a group is trusted by who set it */
}

static void a_folder_open_to_all_only_if_sticky(void)
{
    CHECK(chmod(in_folder("sub"), 0777) == 0 && refused("sub/file", "every user may write"));
    CHECK(chmod(in_folder("sub"), 01777) == 0 && guarded("sub/file"));
    CHECK(chmod(in_folder("sub"), 0755) == 0);
}

/* Where the program itself can be replaced, nothing is gained by being strict: a whole disk may be open to all. */
static void a_folder_that_the_program_lies_in_may_be_open(void)
{
    char program[PATH_MAX], command[3 * PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    CHECK(length > 0 && mkdir(in_folder("disk"), 0777) == 0 && chmod(in_folder("disk"), 0777) == 0);
    program[length] = '\0';
    make_file("disk/file");
    CHECK(refused("disk/file", "every user may write"));
    snprintf(command, sizeof(command), "cp '%s' '%s' && '%s' '%s'", program, in_folder("disk/program"),
             in_folder("disk/program"), in_folder("disk/file"));
    CHECK(system(command) == 0);
}

static void links_are_followed_and_judged(void)
{
    CHECK(symlink("sub/file", in_folder("link")) == 0 && guarded("link"));
    CHECK(symlink(in_folder("link"), in_folder("sub/again")) == 0 && guarded("sub/again"));
    CHECK(symlink("loop", in_folder("loop")) == 0 && refused("loop", "too many links"));
    CHECK(symlink("sub", in_folder("way")) == 0 && guarded("way/file") && guarded("way/../file"));
}

static void what_another_user_owns_is_not(void)
{
    make_file("theirs");
    CHECK(chown(in_folder("theirs"), OTHER, OTHER) == 0 && refused("theirs", "another user (65534) owns"));
    CHECK(symlink("file", in_folder("their-link")) == 0 && lchown(in_folder("their-link"), OTHER, OTHER) == 0);
    CHECK(refused("their-link", "their-link")); /* although it leads to a file of ours */
    CHECK(mkdir(in_folder("their-folder"), 0755) == 0);
    make_file("their-folder/file");
    CHECK(symlink("their-folder/file", in_folder("through")) == 0 && guarded("through"));
    CHECK(chown(in_folder("their-folder"), OTHER, OTHER) == 0);
    CHECK(refused("their-folder/file", "their-folder") && refused("through", "their-folder"));
    CHECK(refused("their-folder/../file", "their-folder")); /* they could make it a link */
}

/* Whose code runs in this process already is trusted with more of it. */
static void the_owner_of_a_neighbour_is_trusted(void)
{
    CHECK(lagom_path_is_guarded(in_folder("theirs"), in_folder("theirs"), reason, sizeof(reason)));
    CHECK(!lagom_path_is_guarded(in_folder("theirs"), in_folder("file"), reason, sizeof(reason)));
}

static void long_ways_are_refused(void)
{
    static char path[3 * PATH_MAX];
    memset(path, 'x', sizeof(path) - 1);
    path[0] = '/';
    CHECK(!lagom_path_is_guarded(path, NULL, reason, sizeof(reason)));
    for (size_t i = 0; i + 2 < sizeof(path); i += 2) {
        memcpy(path + i, "x/", 2);
    }
    CHECK(!lagom_path_is_guarded(path, NULL, reason, sizeof(reason)));
    CHECK(!lagom_path_is_guarded("", NULL, reason, sizeof(reason)));
}

static int log_in(const char *name)
{
    reason[0] = '\0';
    return lagom_open_guarded_log(in_folder(name), "log", reason, sizeof(reason));
}

static void a_log_is_appended_to(void)
{
    for (int i = 0; i < 2; i++) {
        int fd = log_in("sub");
        CHECK(fd >= 0 && write(fd, "x", 1) == 1 && lseek(fd, 0, SEEK_CUR) == i + 1);
        close(fd);
    }
    CHECK(log_in("nothing") < 0 && strstr(reason, "No such file") != NULL);
    CHECK(log_in("file") < 0 && strstr(reason, "Not a directory") != NULL);
}

static void a_log_is_no_link_no_second_name_no_fifo(void)
{
    CHECK(unlink(in_folder("sub/log")) == 0 && symlink("file", in_folder("sub/log")) == 0);
    CHECK(log_in("sub") < 0 && strstr(reason, "it is a link: log") != NULL);
    CHECK(unlink(in_folder("sub/log")) == 0 && link(in_folder("file"), in_folder("sub/log")) == 0);
    CHECK(log_in("sub") < 0 && strstr(reason, "not a regular file of this user") != NULL);
    CHECK(unlink(in_folder("sub/log")) == 0 && mkfifo(in_folder("sub/log"), 0600) == 0);
    CHECK(log_in("sub") < 0);
}

int main(int count, char **arguments)
{
    if (count == 2) { /* as started by a_folder_that_the_program_lies_in_may_be_open */
        return lagom_path_is_guarded(arguments[1], NULL, reason, sizeof(reason)) ? 0 : 1;
    }
    CHECK(mkdtemp(folder) != NULL);
    RUN(our_own_are_guarded);
    RUN(relative_ways_count_from_here);
    RUN(only_a_regular_file_will_do);
    RUN(a_file_open_to_all_is_not);
    RUN(a_folder_open_to_all_only_if_sticky);
    RUN(a_folder_that_the_program_lies_in_may_be_open);
    RUN(links_are_followed_and_judged);
    RUN(long_ways_are_refused);
    RUN(a_log_is_appended_to);
    RUN(a_log_is_no_link_no_second_name_no_fifo);
    if (geteuid() == 0) { /* tests/system/test_other_users.py says so where it is not */
        RUN(what_another_user_owns_is_not);
        RUN(the_owner_of_a_neighbour_is_trusted);
    }
    char command[64];
    snprintf(command, sizeof(command), "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : 1;
}
