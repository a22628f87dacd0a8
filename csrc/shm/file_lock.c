/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/file_lock.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

static struct flock range(short type, uint32_t first, uint32_t count)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = count};
}

bool lagom_lock_try(int fd, uint32_t byte)
{
    struct flock lock = range(F_WRLCK, byte, 1);
    return fcntl(fd, F_SETLK, &lock) == 0;
}

uint64_t lagom_milliseconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void lagom_lock_drop(int fd, uint32_t byte)
{
    struct flock lock = range(F_UNLCK, byte, 1);
    fcntl(fd, F_SETLK, &lock);
}

bool lagom_lock_elsewhere(int fd, uint32_t first, uint32_t count)
{
    struct flock lock = range(F_WRLCK, first, count);
    return fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}
