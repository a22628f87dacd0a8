/* SPDX-License-Identifier: Apache-2.0 */
/* storm.h - what the ranks, the publisher and the referee of an agreement storm share.
 *
 * Ranks call the real plugin in a tight loop with random skew; the publisher offers random plans as fast as the ranks
 * take them. Every call's effective config goes to a referee that lies in shared memory: the first rank to make a call
 * writes what it ran, every later one compares. A difference is kept with call, rank and both words.
 */
#ifndef STORM_H
#define STORM_H

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STORM_MAX_RANKS 8
#define STORM_MAX_COMMUNICATORS 16
#define STORM_CELLS 4096u /* referee's memory a communicator: far more than any window, so no cell is reused early */

/* One line of memory a rank and communicator: written by that rank only. */
struct storm_progress {
    uint64_t calls;
    uint64_t changed; /* calls that differed from stock */
    uint64_t waits;   /* times the rank gave its processor away while the tuner had the call; steady_rank.c only */
    uint64_t worst_ns; /* processor time of the dearest call, chunks included; steady_rank.c only */
    uint64_t total_ns; /* of all calls */
    uint64_t faults;   /* page faults in them */
    uint64_t pad[2];
};

/* What one publisher had its hands in. The intruder (a second one, without the controller's lock) has its own. */
struct storm_plans {
    uint64_t published;
    uint64_t committed;
    uint64_t aborted;
    uint64_t overtaken; /* somebody else's epoch stood in the word when we looked */
    uint64_t refused; /* lagom_publish said BAD_PLAN or INCOMPLETE */
    uint64_t late;
    uint64_t leases; /* committed plans that carried a candidate */
    uint64_t torn;   /* times random bytes were written over a plan */
    uint64_t stale;  /* swaps tried by a word that was out of date */
    uint64_t stale_won; /* those that went through: there must be none */
    uint64_t pad[6];
};

struct storm_control {
    uint64_t stop;
    uint64_t seed;
    uint64_t ranks;
    uint64_t communicators;
    uint64_t window; /* calls the fastest rank may be ahead of the slowest: a launch queue holds about 400 */
    uint64_t difference; /* CAS 0 -> 1 by the rank that finds one; then the five fields below are valid */
    uint64_t difference_communicator;
    uint64_t difference_call;
    uint64_t difference_rank;
    uint64_t difference_mine;
    uint64_t difference_theirs;
    uint64_t pad[5];
    struct storm_plans plans[2]; /* of the controller, of the intruder */
    struct storm_progress progress[STORM_MAX_COMMUNICATORS][STORM_MAX_RANKS];
    uint64_t cells[STORM_MAX_COMMUNICATORS][STORM_CELLS];
};

static inline uint64_t storm_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

static inline uint64_t storm_comm_id(uint32_t communicator)
{
    return 0xc0ffee00u + communicator;
}

/* The call sequence of a communicator, the same on every rank: five repeats of a program, some transparent calls, five
 * repeats, some calls the program does not expect. */
struct storm_call {
    uint32_t function;
    uint64_t bytes;
    bool program;
    uint32_t position;
};

static inline uint32_t storm_period(uint32_t communicator)
{
    static const uint32_t periods[] = {3, 8, 17, 48};
    return periods[communicator % 4];
}

static inline uint64_t storm_site_bytes(uint32_t communicator, uint32_t site)
{
    return (1u << 20) + 65536u * (site + 1) * (communicator + 1);
}

static inline uint32_t storm_sites(uint32_t communicator)
{
    uint32_t period = storm_period(communicator);
    return period < 6 ? period : 6;
}

static inline uint32_t storm_site_at(uint32_t communicator, uint32_t position)
{
    /* Position 0 has a site of its own, so that the period is one and not a divisor of it. */
    return position == 0 ? 0 : 1 + position % (storm_sites(communicator) - 1);
}

static inline struct storm_call storm_call_at(uint32_t communicator, uint64_t number)
{
    uint32_t period = storm_period(communicator), half = 5 * period;
    uint32_t place = (uint32_t)(number % (2 * half + 7));
    uint64_t noise = number * 31 + communicator;
    noise = storm_random(&noise);
    if (place >= half && place < half + 3) {
        return (struct storm_call){.function = (uint32_t)(noise % 5), .bytes = 4 + noise % 60000};
    }
    if (place >= 2 * half + 3) {
        return (struct storm_call){.function = 2 + (uint32_t)(noise % 3), .bytes = 65536 + noise % (8u << 20)};
    }
    uint32_t position = (place < half ? place : place - half - 3) % period;
    uint32_t site = storm_site_at(communicator, position);
    return (struct storm_call){2 + site % 3, storm_site_bytes(communicator, site), true, position};
}

static inline struct storm_control *storm_attach(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    int how = MAP_SHARED | MAP_POPULATE; /* our own page faults are not the tuner's */
    void *memory = mmap(NULL, sizeof(struct storm_control), PROT_READ | PROT_WRITE, how, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

#endif
