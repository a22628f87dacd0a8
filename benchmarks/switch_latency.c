/* SPDX-License-Identifier: Apache-2.0 */
/* switch_latency.c - what a switch costs the calls around it: the real library, called through its exported tables.
 *
 * A round: a plan is published; every rank's next call copies, checks and acknowledges it; the controller commits; calls
 * go on as before; the call it starts at puts it in force; its lease ends by itself. Each call is timed alone and booked
 * under what happened in it. In other rounds the second rank and the controller stand still from the publication on:
 * then the first rank aborts by itself at the start, and its calls are booked too. "Waiting time added: none" means that
 * no class of calls waits: no system call in a whole round (seccomp), no voluntary context switch, no allocation, and
 * a stopped partner changes nothing. Two ranks of one communicator live in this process. Last: ranks here, a controller
 * that publishes as fast as it can in another process, against one that sleeps. One JSON object a line.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agreement/publisher.h"
#include "benchmarks/latency/latency.h"
#include "shm/capture.h"

#define STEADY_ROOM 2000000u
#define DRAIN_EVERY 200u
#define LIVE_NS 3000000000u
#define LIVE_LIMIT_NS 20000000000ull
#define LIVE_PAUSE_NS 2000u /* between calls, or no controller on two busy processors could keep up */
#define SECCOMP_ROUNDS 20u

enum moment { STEADY, PREPARED, COMMITTED, START, LEASE_END, ABORT, ALONE, MOMENTS };

static const char *const names[MOMENTS] = {
    [STEADY] = "steady",
    [PREPARED] = "prepared: copied, checked, acknowledged",
    [COMMITTED] = "commit noticed",
    [START] = "start: in force",
    [LEASE_END] = "lease end",
    [ABORT] = "abort, all others stopped",
    [ALONE] = "steady, all others stopped",
};

struct shape {
    const char *name;
    uint32_t period; /* calls an iteration; a plan begins at a multiple of it */
    uint32_t rounds;
    bool rules_only;
};

static const struct shape shapes[] = {
    {"size rules", 64, 4000, true},
    {"program of 512 positions", 512, 1000, false},
    {"program of 4096 positions", 4096, 150, false},
};

static const char *library_path;
static uint32_t share = 1; /* only every share-th round, for a test */
static const struct shape *shape;
static struct rank pair[2];
static struct samples booked[MOMENTS];

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

static struct lagom_site next_site(struct rank *rank)
{
    return site_at(site_of_position((uint32_t)(rank->step++ % shape->period)));
}

static void timed_call(uint32_t r, enum moment moment)
{
    struct lagom_site site = next_site(&pair[r]);
    offer();
    uint64_t start = ticks_before();
    ask(&pair[r], &site);
    add_sample(&booked[moment], ticks_after() - start);
    if (pair[r].step % DRAIN_EVERY == 0) {
        drain(r);
    }
}

static void both(enum moment moment)
{
    timed_call(0, moment);
    timed_call(1, moment);
}

static void both_until(uint64_t call)
{
    while (pair[1].step < call) {
        both(STEADY);
    }
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

static uint64_t next_boundary(void)
{
    return (pair[0].step / shape->period + 1) * shape->period;
}

/* Incumbent, candidate, candidate, incumbent: one iteration each. */
static struct lagom_plan *lease(uint64_t start)
{
    static struct lagom_plan plan;
    memset(&plan, 0, sizeof(plan));
    if (shape->rules_only) {
        fill_rules(&plan, LAGOM_MAX_RULES);
    } else {
        fill_program(&plan, shape->period);
        plan.alternate_iterations = 1;
    }
    plan.flags = LAGOM_PLAN_HAS_CANDIDATE;
    plan.start_call = start;
    plan.end_call = start + 4 * shape->period;
    return &plan;
}

static void publish(uint64_t start)
{
    if (lagom_publish(region, communicator, lease(start)) != LAGOM_PUBLISH_OK) {
        fail("a plan was not taken");
    }
}

static void round_that_is_agreed(void)
{
    uint64_t start = next_boundary() + shape->period, end = start + 4 * shape->period;
    publish(start);
    both(PREPARED);
    if (lagom_publish_poll(region, communicator) != LAGOM_OUTCOME_COMMITTED) {
        fail("two ranks did not agree");
    }
    both(COMMITTED);
    both_until(start);
    both(START);
    both_until(end);
    both(LEASE_END);
    both_until(next_boundary());
}

/* The second rank makes no call and the controller does not look again until the first has passed the start. */
static void round_alone(void)
{
    uint64_t start = next_boundary() + shape->period;
    publish(start);
    timed_call(0, PREPARED);
    while (pair[0].step < start) {
        timed_call(0, ALONE);
    }
    timed_call(0, ABORT);
    while (pair[0].step < start + shape->period) {
        timed_call(0, ALONE);
    }
    while (pair[1].step < pair[0].step) {
        timed_call(1, STEADY);
    }
}

static void open_pair(void)
{
    setenv("LAGOM_MODE", "tune", 1);
    pair[0] = open_rank(library_path, 6);
    pair[1] = open_rank(library_path, 6);
    map_region();
    lagom_capture_set(region, communicator, LAGOM_CAPTURE_CALLS);
    for (uint32_t i = 0; i < MOMENTS; i++) {
        booked[i] = make_samples(STEADY_ROOM);
    }
    both_until(shape->period);
    round_that_is_agreed(); /* warm */
    round_alone();
    for (uint32_t i = 0; i < MOMENTS; i++) {
        booked[i].count = 0;
    }
}

static long voluntary_switches(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_nvcsw;
}

/* ---- What is printed --------------------------------------------------------------------------------------------- */

static void print_quantiles(struct samples *samples, uint64_t empty, double tick_ns)
{
    sort_samples(samples);
    static const struct {
        const char *name;
        double share;
    } asked[] = {{"p10", 0.1}, {"median", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"max", 1.0}};
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        printf(", \"%s_ns\": %.1f", asked[i].name,
               nanoseconds_above(quantile(samples, asked[i].share), empty, tick_ns));
    }
    printf(", \"samples\": %zu", samples->count);
}

static void print_moment(enum moment moment, uint64_t empty, double tick_ns)
{
    printf("{\"plan\": \"%s\", \"moment\": \"%s\"", shape->name, names[moment]);
    print_quantiles(&booked[moment], empty, tick_ns);
    printf("}\n");
}

static void run_rounds(void)
{
    uint64_t empty = empty_ticks();
    double tick_ns = nanoseconds_a_tick();
    open_pair();
    uint64_t allocated = allocations;
    long switches = voluntary_switches();
    for (uint32_t i = 0; i < shape->rounds / share; i++) {
        round_that_is_agreed();
        if (i % 4 == 0) {
            round_alone();
        }
    }
    switches = voluntary_switches() - switches;
    allocated = allocations - allocated;
    for (uint32_t i = 0; i < MOMENTS; i++) {
        print_moment((enum moment)i, empty, tick_ns);
    }
    printf("{\"plan\": \"%s\", \"rounds\": %u, \"allocations\": %llu, \"voluntary_switches\": %ld, ", shape->name,
           shape->rounds / share, (unsigned long long)allocated, switches);
}

static void rounds_under_seccomp(const void *unused)
{
    (void)unused;
    open_pair();
    if (!forbid_system_calls()) {
        _exit(77);
    }
    for (uint32_t i = 0; i < SECCOMP_ROUNDS; i++) {
        round_that_is_agreed();
        round_alone();
    }
}

/* ---- A controller in another process ----------------------------------------------------------------------------- */

/* Publishes, polls, withdraws; never sleeps. Counts commits in a word of the region that is reserved. */
static void publish_for_ever(void)
{
    for (bool settled = true;;) {
        uint64_t smallest, largest;
        lagom_counters(region, communicator, &smallest, &largest);
        uint64_t start = (largest / shape->period + 2) * shape->period;
        if (lagom_publish_ready(region, communicator)) {
            lagom_publish(region, communicator, lease(start));
            settled = false;
        } else if (!settled && lagom_publish_poll(region, communicator) != LAGOM_OUTCOME_OPEN) {
            settled = true;
            bool agreed = LAGOM_WORD_STATE(region->communicators[communicator].word) == LAGOM_COMMITTED;
            __atomic_fetch_add(&region->header.reserved[0], agreed, __ATOMIC_RELAXED);
        }
    }
}

/* The ranks may have left the controller no processor: they go on until it has come to publish something. */
static bool is_live_enough(uint64_t passed_ns, bool publishing)
{
    bool in_vain = publishing && __atomic_load_n(&region->header.reserved[0], __ATOMIC_RELAXED) == 0;
    return passed_ns >= (in_vain ? LIVE_LIMIT_NS : LIVE_NS / share);
}

static void run_live(bool publishing)
{
    uint64_t empty = empty_ticks();
    double tick_ns = nanoseconds_a_tick();
    open_pair();
    fflush(NULL);
    pid_t controller = fork();
    if (controller == 0) {
        map_region(); /* a child's copy of the plugin is inert; this mapping is its own */
        if (publishing) {
            publish_for_ever();
        }
        pause();
    }
    long switches = voluntary_switches();
    uint64_t calls = pair[0].step;
    booked[STEADY].count = 0;
    for (uint64_t start = monotonic_ns(); !is_live_enough(monotonic_ns() - start, publishing);) {
        both(STEADY);
        for (uint64_t pause = monotonic_ns(); monotonic_ns() - pause < LIVE_PAUSE_NS;) {
        }
    }
    switches = voluntary_switches() - switches;
    kill(controller, SIGKILL);
    waitpid(controller, NULL, 0);
    printf("{\"plan\": \"%s\", \"live\": \"%s\", \"calls\": %llu, \"plans\": %llu, \"voluntary_switches\": %ld",
           shape->name, publishing ? "a controller publishes all the time" : "a controller sleeps",
           (unsigned long long)(pair[0].step - calls), (unsigned long long)region->header.reserved[0], switches);
    print_quantiles(&booked[STEADY], empty, tick_ns);
    printf("}\n");
}

/* ---- The whole --------------------------------------------------------------------------------------------------- */

static void in_a_child(void (*body)(const void *argument), const void *argument)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        body(argument);
        exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) {
        fail("a scenario failed");
    }
}

static void measure_rounds(const void *unused)
{
    (void)unused;
    run_rounds();
}

static void measure_live(const void *publishing)
{
    run_live(*(const bool *)publishing);
}

int main(int argument_count, char **arguments)
{
    static const bool both_ways[] = {false, true};
    if (argument_count != 3 || (share = (uint32_t)atoi(arguments[2])) == 0) {
        fail("usage: switch_latency PLUGIN.so SHARE (run it through `python -m benchmarks.switch_latency`)");
    }
    library_path = arguments[1];
    setenv("LAGOM_CONTROLLER", "none", 1);
    unsetenv("LAGOM_CONFIG");
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        shape = &shapes[i];
        in_a_child(measure_rounds, NULL);
        printf("\"system_calls\": \"%s\"}\n", verdict_under_seccomp(rounds_under_seccomp, NULL));
    }
    shape = &shapes[1];
    in_a_child(measure_live, &both_ways[0]);
    in_a_child(measure_live, &both_ways[1]);
    return 0;
}
