/* SPDX-License-Identifier: Apache-2.0 */
/* clock_jumps.c - to be preloaded: the wall clock steps by ten days, forth and back, every 37 ms, which is no part
 * of a period of the controller; the monotonic clock is left alone. What decides by the wall clock goes mad. */
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define TEN_DAYS 864000
#define STEP_NS 37000000L

static long jump(void)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    long steps = (now.tv_sec * 1000000000L + now.tv_nsec) / STEP_NS;
    return steps % 2 == 0 ? TEN_DAYS : -TEN_DAYS;
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    long failed = syscall(SYS_clock_gettime, clock, out);
    if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        out->tv_sec += jump();
    }
    return (int)failed;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *out)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL) {
        *out = now.tv_sec;
    }
    return now.tv_sec;
}
