/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/message_stream.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#define AGAIN "/proc/self/fd/2" /* opened: the same file with a state of its own */
#define PARENTS_DESCRIPTORS 256

/* ---- Signals ---------------------------------------------------------------------------------------------------- */

static const int of_a_write[] = {SIGPIPE, SIGXFSZ, SIGTTOU};
#define OF_A_WRITE (sizeof(of_a_write) / sizeof(of_a_write[0]))

static sigset_t signals_of_a_write(void)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < OF_A_WRITE; i++) {
        sigaddset(&set, of_a_write[i]);
    }
    return set;
}

void lagom_signals_hold(struct lagom_held_signals *held)
{
    sigset_t set = signals_of_a_write();
    sigpending(&held->pending);
    pthread_sigmask(SIG_BLOCK, &set, &held->mask);
}

/* What is pending only since then, our writes have raised: it is taken away before the mask is as it was. */
void lagom_signals_release(const struct lagom_held_signals *held)
{
    const struct timespec now = {0};
    sigset_t ours, pending;
    sigemptyset(&ours);
    sigpending(&pending);
    for (size_t i = 0; i < OF_A_WRITE; i++) {
        if (sigismember(&pending, of_a_write[i]) == 1 && sigismember(&held->pending, of_a_write[i]) == 0) {
            sigaddset(&ours, of_a_write[i]);
            sigtimedwait(&ours, NULL, &now);
        }
    }
    pthread_sigmask(SIG_SETMASK, &held->mask, NULL);
}

/* ---- What is meant for messages --------------------------------------------------------------------------------- */

static bool is_same_file(const struct stat *file, const char *path)
{
    struct stat other;
    return stat(path, &other) == 0 && other.st_dev == file->st_dev && other.st_ino == file->st_ino;
}

/* A launcher that redirects its workers, or a script that was redirected as a whole. */
static bool parent_has_it_too(const struct stat *file)
{
    char path[64];
    bool same = false;
    for (int fd = 1; fd < PARENTS_DESCRIPTORS && !same; fd++) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getppid(), fd);
        same = is_same_file(file, path);
    }
    return same;
}

/* A program that was started without a stderr gets descriptor 2 for the next file it opens. A redirected stderr and such
 * a file can look alike; where they do, a lost line is the smaller harm. The file is not opened to look into it: closing
 * that descriptor would drop the program's locks on it. */
static bool regular_file_is_for_messages(const struct stat *file, int flags)
{
    return (flags & O_ACCMODE) == O_WRONLY && (is_same_file(file, "/proc/self/fd/1") || parent_has_it_too(file));
}

static bool reads_from(int fd, const struct stat *pipe)
{
    struct stat other;
    int flags = fcntl(fd, F_GETFL);
    return flags >= 0 && (flags & O_ACCMODE) != O_WRONLY && fstat(fd, &other) == 0 && other.st_dev == pipe->st_dev &&
           other.st_ino == pipe->st_ino;
}

/* Such a program's own pipe: pipe() takes the lowest free numbers, so it is read with one below 2. */
static bool is_read_here(const struct stat *pipe)
{
    return reads_from(STDIN_FILENO, pipe) || reads_from(STDOUT_FILENO, pipe);
}

/* Of another kind are the sockets of a program that talks to other machines. */
static bool socket_is_for_messages(void)
{
    int domain = 0, type = 0;
    socklen_t bytes = sizeof(int);
    return getsockopt(STDERR_FILENO, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) == 0 && domain == AF_UNIX &&
           getsockopt(STDERR_FILENO, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && type == SOCK_STREAM;
}

/* ---- Writing without waiting ------------------------------------------------------------------------------------ */

/* Moved from a pipe of our own: the one way into a full pipe that fails instead of waiting without O_NONBLOCK, which
 * would be set for the program's own writes too. Whole or not at all. */
static bool write_to_pipe(const char *line, size_t bytes)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return false;
    }
    bool moved = write(ends[1], line, bytes) == (ssize_t)bytes &&
                 splice(ends[0], NULL, STDERR_FILENO, NULL, bytes, SPLICE_F_NONBLOCK) == (ssize_t)bytes;
    close(ends[0]);
    close(ends[1]);
    return moved;
}

/* Stopped by Ctrl-S, or its window does not keep up. */
static bool write_to_terminal(const char *line, size_t bytes)
{
    int terminal = open(AGAIN, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    bool written = terminal >= 0 && write(terminal, line, bytes) == (ssize_t)bytes;
    if (terminal >= 0) {
        close(terminal);
    }
    return written;
}

static bool write_to_device(const struct stat *device, const char *line, size_t bytes)
{
    return device->st_rdev == makedev(1, 3) || (isatty(STDERR_FILENO) == 1 && write_to_terminal(line, bytes));
}

bool lagom_message_write(const char *line, size_t bytes)
{
    struct stat file;
    int flags = fcntl(STDERR_FILENO, F_GETFL), inherited = fcntl(STDERR_FILENO, F_GETFD);
    bool possible = flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && fstat(STDERR_FILENO, &file) == 0;
    /* What this process was started with came through exec; and a stderr that was closed stays closed. */
    if (!possible || (inherited & FD_CLOEXEC) != 0 || fileno(stderr) != STDERR_FILENO) {
        return false;
    }
    switch (file.st_mode & S_IFMT) {
    case S_IFIFO: return !is_read_here(&file) && write_to_pipe(line, bytes);
    case S_IFCHR: return write_to_device(&file, line, bytes);
    case S_IFSOCK:
        return socket_is_for_messages() &&
               send(STDERR_FILENO, line, bytes, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)bytes;
    case S_IFREG:
        return regular_file_is_for_messages(&file, flags) && write(STDERR_FILENO, line, bytes) == (ssize_t)bytes;
    default: return false;
    }
}
