/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - what the tests of csrc share: checks that say where and what, children, and a communicator ready to use. */
#ifndef LAGOM_CHECK_H
#define LAGOM_CHECK_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"
#include "plan/choose.h"
#include "plan/plan.h"
#include "protocol/lagom_protocol.h"
#include "shm/region.h"

#define MIB (1ull << 20)
#define STOCK LAGOM_CONFIG_STOCK

/* Deterministic, so that a failure can be repeated: xorshift64*. */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dULL;
}

static inline struct lagom_config channels(uint16_t count)
{
    struct lagom_config config = STOCK;
    config.channels = count;
    return config;
}

/* One site of the plan; the candidate is the incumbent plus one channel. */
static inline void add_site(struct lagom_plan *plan, uint32_t function, uint64_t bytes, uint16_t incumbent)
{
    plan->sites[plan->site_count++] = (struct lagom_site){.function = function,
                                                          .bytes = bytes,
                                                          .incumbent = channels(incumbent),
                                                          .candidate = channels((uint16_t)(incumbent + 1))};
}

static inline void add_position(struct lagom_plan *plan, uint16_t site)
{
    plan->positions[plan->position_count++] = site;
}

static inline void add_rule(struct lagom_plan *plan, uint32_t function, uint64_t smallest, uint64_t largest,
                            uint16_t incumbent)
{
    plan->rules[plan->rule_count++] = (struct lagom_rule){.function = function,
                                                          .bytes_min = smallest,
                                                          .bytes_max = largest,
                                                          .incumbent = channels(incumbent),
                                                          .candidate = channels((uint16_t)(incumbent + 1))};
}

static inline bool same_config(struct lagom_config a, struct lagom_config b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

static inline struct lagom_mapping join_or_die(const char *job)
{
    struct lagom_mapping mapping;
    enum lagom_region_fault fault = lagom_region_join(&mapping, job, LAGOM_CLOCK_MONOTONIC);
    if (fault != LAGOM_REGION_OK) {
        fprintf(stderr, "join: %s errno %d\n", lagom_region_fault_text(fault), mapping.error);
        exit(1);
    }
    return mapping;
}

static inline uint32_t take_slot(struct lagom_mapping *mapping, uint32_t communicator, uint32_t rank)
{
    return lagom_slot_take(mapping, communicator, (struct lagom_identity){rank, LAGOM_UNKNOWN_DEVICE});
}

/* Runs body() in a child; returns its exit status, or 128 + signal. */
static inline int status_of(pid_t child)
{
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A child that has run `body` and then sleeps until it is killed. The pipe says when body is done. */
static inline pid_t child_that_stays(void (*body)(void))
{
    int ready[2];
    char byte = 0;
    CHECK(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        body();
        CHECK(write(ready[1], "x", 1) == 1);
        for (;;) {
            pause();
        }
    }
    close(ready[1]);
    CHECK(child > 0 && read(ready[0], &byte, 1) == 1);
    close(ready[0]);
    return child;
}

static inline void kill_child(pid_t child)
{
    kill(child, SIGKILL);
    CHECK_EQUAL(status_of(child), 128 + SIGKILL);
}

/* Each case by name, so that the output says which one was running. */
#define RUN(name)                                                                                                      \
    do {                                                                                                               \
        printf("%s\n", #name);                                                                                         \
        fflush(stdout);                                                                                                \
        name();                                                                                                        \
    } while (0)

#endif
