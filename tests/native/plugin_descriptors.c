/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_descriptors.c - a host that closes descriptors which are not its own, ours among them, and perhaps opens files of its
 * own under the same numbers: what it has there is neither locked, unlocked nor closed by us, and nothing is waited for. */
#include <sys/syscall.h>

#include "shm/file_lock.h"
#include "tests/native/plugin_harness.h"

#define COMM 0xfdu
#define LOCKED_BYTES 4096u

static struct plugin plugin;
static int number; /* of our descriptor, then of the host's */

/* Of the region in this case's folder. */
static int find_descriptor(void)
{
    char path[64], target[256];
    for (int fd = 3; fd < 1024; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t bytes = readlink(path, target, sizeof(target) - 1);
        target[bytes > 0 ? bytes : 0] = '\0';
        if (strncmp(target, case_folder, strlen(case_folder)) == 0 && strstr(target, "/lagom-") != NULL) {
            return fd;
        }
    }
    return -1;
}

static struct rank a_communicator_then_close_all(void)
{
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
    CHECK(rank.context != NULL);
    number = find_descriptor();
    CHECK(number >= 3 && close(number) == 0);
    return rank;
}

static void open_a_file_of_the_hosts(void)
{
    char path[256];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = LOCKED_BYTES};
    snprintf(path, sizeof(path), "%s/data-of-the-host", case_folder);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    CHECK(fd >= 0);
    if (fd != number) {
        CHECK(dup2(fd, number) == number && close(fd) == 0);
    }
    CHECK(fcntl(number, F_SETLK, &lock) == 0);
}

/* As another process sees it: one lock from the first byte to the last. */
static void the_hosts_lock_is_whole(void)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        if (fcntl(number, F_GETLK, &lock) != 0) {
            _exit(2); /* closed in the child */
        }
        _exit(lock.l_type == F_WRLCK && lock.l_start == 0 && lock.l_len == LOCKED_BYTES ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
}

static void the_hosts_file_keeps_its_locks(void)
{
    struct rank rank = a_communicator_then_close_all();
    open_a_file_of_the_hosts();
    the_hosts_lock_is_whole();
    struct rank late = make_rank(&plugin, 6, COMM + 1, 2, 1);
    CHECK(late.context == NULL);
    the_hosts_lock_is_whole();
    CHECK(strstr(map_region()->processes[0].remark, "descriptor") != NULL);
    call(&rank, LAGOM_ALL_GATHER, MIB);
    CHECK(untouched(&rank));
    end_rank(&rank);
    the_hosts_lock_is_whole();
}

static bool at_exit;

/* In the C library's place, because nothing of a test runs after the plugin's end. */
int fcntl(int fd, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    long argument = va_arg(arguments, long);
    va_end(arguments);
    if (at_exit && fd == number && command == F_SETLK) {
        _exit(9);
    }
    return (int)syscall(SYS_fcntl, fd, command, argument);
}

int close(int fd)
{
    if (at_exit && fd == number) {
        _exit(8);
    }
    return (int)syscall(SYS_close, fd);
}

static void the_end_of_the_process_leaves_them(void)
{
    a_communicator_then_close_all();
    open_a_file_of_the_hosts();
    at_exit = true;
}

/* Nothing there any more: no use waiting for a lock on it. */
static void a_closed_one_is_not_waited_for(void)
{
    struct rank rank = a_communicator_then_close_all();
    uint64_t began = lagom_milliseconds_now();
    for (uint64_t i = 1; i <= 3; i++) {
        CHECK(make_rank(&plugin, 6, COMM + i, 2, 1).context == NULL);
    }
    CHECK(strstr(map_region()->processes[0].remark, "descriptor") != NULL); /* not: locked for 2 s */
    printf("  %llu ms\n", (unsigned long long)(lagom_milliseconds_now() - began));
    end_rank(&rank);
}

int main(void)
{
    int failures = 0;
    failures += RUN(the_hosts_file_keeps_its_locks);
    failures += RUN(the_end_of_the_process_leaves_them);
    failures += RUN(a_closed_one_is_not_waited_for);
    return failures != 0;
}
