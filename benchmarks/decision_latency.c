/* SPDX-License-Identifier: Apache-2.0 */
/* decision_latency.c - what a decision costs NCCL: the real library, called through its exported tables as NCCL does.
 *
 * Two ranks of one communicator live in this process; the region is mapped beside the plugin to publish the program and
 * to drain the rings. Two views: every call timed by itself with the processor's counter, less the counter's own cost
 * (median and tail; some processors count in steps of 10 ns), and batches of calls back to back (typical cost, to a
 * tenth of a nanosecond, without the tail). Each scenario is a child of its own, since the plugin reads its settings
 * once. Output: one JSON object a line, for decision_latency.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agreement/publisher.h"
#include "benchmarks/latency/latency.h"
#include "shm/capture.h"

#define POSITIONS 512
#define SAMPLES 200000
#define BATCHES 4000
#define BATCH 256 /* within the call ring */
#define UNTIMED_CHECKS 100000
#define WARM_NS 300000000u /* past the first calibration of the plugin's clock */
#define DRAIN_EVERY 256

static uint32_t share = 1; /* only every share-th sample, for a test */

enum state { OFF, NO_CONTROLLER, PROGRAM, SUSPENDED, RULES };

struct scenario {
    const char *name;
    int api;
    enum state state;
    bool recording;
};

static const struct scenario scenarios[] = {
    {"mode off", 5, OFF, false},
    {"mode off", 6, OFF, false},
    {"no controller (stock)", 5, NO_CONTROLLER, false},
    {"no controller (stock)", 6, NO_CONTROLLER, false},
    {"program of 512 positions", 5, PROGRAM, false},
    {"program of 512 positions", 6, PROGRAM, false},
    {"program, calls recorded", 5, PROGRAM, true},
    {"program, calls recorded", 6, PROGRAM, true},
    {"program suspended, recorded", 5, SUSPENDED, true},
    {"program suspended, recorded", 6, SUSPENDED, true},
    {"size rules only, recorded", 5, RULES, true},
    {"size rules only, recorded", 6, RULES, true},
};

static const char *library_path;
static struct samples samples;

/* ---- A scenario -------------------------------------------------------------------------------------------------- */

static struct lagom_site next_site(struct rank *rank, bool as_expected)
{
    struct lagom_site site = site_at(site_of_position((uint32_t)(rank->step++ % POSITIONS)));
    site.bytes += as_expected ? 0 : 64;
    return site;
}

static void call(struct rank *rank, bool as_expected)
{
    struct lagom_site site = next_site(rank, as_expected);
    ask(rank, &site);
}

static void put_plan_in_force(struct rank pair[2], enum state state)
{
    static struct lagom_plan plan;
    plan.start_call = POSITIONS;
    if (state == RULES) {
        fill_rules(&plan, LAGOM_MAX_RULES);
    } else {
        fill_program(&plan, POSITIONS);
    }
    if (lagom_publish(region, communicator, &plan) != LAGOM_PUBLISH_OK) {
        fail("the plan was not taken");
    }
    for (int i = 0; i < 2 * POSITIONS; i++) {
        offer();
        call(&pair[0], true);
        offer();
        call(&pair[1], true);
        lagom_publish_poll(region, communicator);
    }
    if (region->slots[0].active_epoch == 0 || region->slots[1].active_epoch == 0) {
        fail("the plan did not come into force");
    }
}

static void prepare(struct rank pair[2], const struct scenario *scenario)
{
    setenv("LAGOM_MODE", scenario->state == OFF ? "off" : "tune", 1);
    pair[0] = open_rank(library_path, scenario->api);
    pair[1] = open_rank(library_path, scenario->api);
    if (scenario->state == OFF) {
        return;
    }
    map_region();
    if (scenario->state != NO_CONTROLLER) {
        put_plan_in_force(pair, scenario->state);
    }
    lagom_capture_set(region, communicator, scenario->recording ? LAGOM_CAPTURE_CALLS : 0);
}

/* Untimed, and with everything NCCL does: from v6 on it asks for the chunk too. */
static void one_call(struct rank *rank, const struct scenario *scenario)
{
    call(rank, scenario->state != SUSPENDED);
    if (rank->chunk != NULL) {
        rank->chunk(rank->context, LAGOM_ALL_GATHER, 65536, LAGOM_RING, LAGOM_SIMPLE, 1, &chunk_bytes);
    }
}

static void time_calls(struct rank *rank, const struct scenario *scenario)
{
    samples.count = 0;
    for (size_t i = 0; i < SAMPLES / share; i++) {
        struct lagom_site site = next_site(rank, scenario->state != SUSPENDED);
        offer();
        uint64_t start = ticks_before();
        ask(rank, &site);
        add_sample(&samples, ticks_after() - start);
        if (scenario->recording && i % DRAIN_EVERY == 0) {
            drain(0);
        }
    }
    sort_samples(&samples);
}

static void time_chunks(struct rank *rank)
{
    samples.count = 0;
    for (size_t i = 0; i < SAMPLES / share; i++) {
        offer();
        call(rank, true);
        uint64_t start = ticks_before();
        rank->chunk(rank->context, LAGOM_ALL_GATHER, 65536, LAGOM_RING, LAGOM_SIMPLE, 1, &chunk_bytes);
        add_sample(&samples, ticks_after() - start);
        if (i % DRAIN_EVERY == 0) {
            drain(0);
        }
    }
    sort_samples(&samples);
}

/* Nanoseconds a call, median over batches. The table and what is asked are prepared outside. */
static double batch_ns(struct rank *rank, const struct scenario *scenario)
{
    struct lagom_site sites[POSITIONS];
    for (uint32_t i = 0; i < POSITIONS; i++) {
        sites[i] = site_at(site_of_position(i));
        sites[i].bytes += scenario->state == SUSPENDED ? 64 : 0;
    }
    samples.count = 0;
    offer(); /* RING/SIMPLE is the stock pick and what the program asks for, so the table stays as it is */
    for (size_t batch = 0; batch < BATCHES / share; batch++) {
        uint64_t start = monotonic_ns();
        for (int i = 0; i < BATCH; i++) {
            ask(rank, &sites[rank->step++ % POSITIONS]);
        }
        add_sample(&samples, monotonic_ns() - start);
        if (scenario->recording) {
            drain(0);
        }
    }
    sort_samples(&samples);
    return (double)quantile(&samples, 0.5) / BATCH;
}

static void print_line(const char *name, int api, uint64_t empty, double tick_ns, double batch, uint64_t allocated)
{
    printf("{\"scenario\": \"%s\", \"api\": %d, \"median_ns\": %.1f, \"p99_ns\": %.1f, \"p999_ns\": %.1f, "
           "\"batch_ns\": %.1f, \"step_ns\": %.1f, \"allocations\": %llu, \"samples\": %d}\n",
           name, api, nanoseconds_above(quantile(&samples, 0.5), empty, tick_ns),
           nanoseconds_above(quantile(&samples, 0.99), empty, tick_ns),
           nanoseconds_above(quantile(&samples, 0.999), empty, tick_ns), batch, counter_step_ticks() * tick_ns,
           (unsigned long long)allocated, (int)(SAMPLES / share));
}

static void warm_up(struct rank *rank, const struct scenario *scenario)
{
    uint64_t start = monotonic_ns();
    while (monotonic_ns() - start < WARM_NS) {
        offer();
        one_call(rank, scenario);
        if (share > 1) {
            usleep(1000); /* time has to pass, not to be filled */
        }
    }
    if (scenario->recording) {
        drain(0);
    }
}

/* Everything that allocates or frees in this process is counted. */
static uint64_t allocations_of(struct rank *rank, const struct scenario *scenario)
{
    uint64_t before = allocations;
    for (int i = 0; i < UNTIMED_CHECKS; i++) {
        offer();
        one_call(rank, scenario);
    }
    return allocations - before;
}

static void run_scenario(const struct scenario *scenario)
{
    struct rank pair[2];
    uint64_t empty = empty_ticks();
    double tick_ns = nanoseconds_a_tick();
    samples = make_samples(SAMPLES);
    prepare(pair, scenario);
    warm_up(&pair[0], scenario);
    uint64_t allocated = allocations_of(&pair[0], scenario);
    if (scenario->state == PROGRAM && channels == 0) {
        fail("the program is not in force: this would measure something else");
    }
    double batch = batch_ns(&pair[0], scenario);
    time_calls(&pair[0], scenario);
    print_line(scenario->name, scenario->api, empty, tick_ns, batch, allocated);
    if (scenario->state == PROGRAM && scenario->recording && pair[0].chunk != NULL) {
        time_chunks(&pair[0]);
        print_line("getChunkSize", scenario->api, empty, tick_ns, 0, allocated);
    }
}

/* ---- No system call ---------------------------------------------------------------------------------------------- */

static void calls_under_seccomp(const void *argument)
{
    const struct scenario *scenario = argument;
    struct rank pair[2];
    prepare(pair, scenario);
    monotonic_ns();
    if (!forbid_system_calls()) {
        _exit(77);
    }
    for (int i = 0; i < UNTIMED_CHECKS; i++) {
        offer();
        one_call(&pair[0], scenario);
    }
}

/* Whether reading the clock is itself a system call on this machine. */
static void clock_under_seccomp(const void *argument)
{
    (void)argument;
    monotonic_ns();
    if (!forbid_system_calls()) {
        _exit(77);
    }
    for (int i = 0; i < UNTIMED_CHECKS; i++) {
        monotonic_ns();
    }
}

static void check_system_calls(void)
{
    const char *clock = verdict_under_seccomp(clock_under_seccomp, NULL);
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        const struct scenario *scenario = &scenarios[i];
        const char *verdict = verdict_under_seccomp(calls_under_seccomp, scenario);
        if (strcmp(verdict, "made") == 0 && strcmp(clock, "made") == 0 && scenario->recording) {
            verdict = "not checked: clock_gettime is a system call on this machine";
        }
        printf("{\"scenario\": \"%s\", \"api\": %d, \"recording\": %d, \"system_calls\": \"%s\"}\n", scenario->name,
               scenario->api, scenario->recording, verdict);
    }
}

int main(int argument_count, char **arguments)
{
    if (argument_count != 3 || (share = (uint32_t)atoi(arguments[2])) == 0) {
        fail("usage: decision_latency PLUGIN.so SHARE (run it through `python -m benchmarks.decision_latency`)");
    }
    library_path = arguments[1];
    setenv("LAGOM_CONTROLLER", "none", 1);
    unsetenv("LAGOM_CONFIG");
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            run_scenario(&scenarios[i]);
            exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
        if (status != 0) {
            fail("a scenario failed");
        }
    }
    check_system_calls();
    return 0;
}
