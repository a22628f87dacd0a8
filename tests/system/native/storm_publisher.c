/* SPDX-License-Identifier: Apache-2.0 */
/* storm_publisher.c - a controller without a brain: offers random legal plans on every communicator, as fast as it can.
 *
 *     storm_publisher JOB_KEY CONTROL SEED [intruder]
 *
 * Attaches with the controller's lock, so a killed one is replaced by simply starting the next. Ends at control.stop.
 *
 * The intruder is what the lock forbids: a second one without it, as if a controller that was stopped long ago woke up
 * and went on. It publishes, commits and withdraws by words it read before it was stopped, its own plans and the other's,
 * and now and then it writes random bytes over a plan.
 */
#include "agreement/publisher.h"
#include "protocol/lagom_atomic.h"
#include "shm/capture.h"
#include "shm/region.h"
#include "shm/ring.h"
#include "storm.h"

static struct lagom_mapping mapping;
static struct storm_control *control;
static struct storm_plans *count;
static bool intruder;
static uint64_t random_state;
static uint64_t margin[STORM_MAX_COMMUNICATORS];
static uint64_t open_epoch[STORM_MAX_COMMUNICATORS]; /* of the plan we have offered; 0 = none */
static bool open_lease[STORM_MAX_COMMUNICATORS];
static struct lagom_plan plan;

static uint64_t dice(uint64_t sides)
{
    return storm_random(&random_state) % sides;
}

static struct lagom_config random_config(void)
{
    struct lagom_config config = {.algorithm = LAGOM_LEAVE, .protocol = LAGOM_LEAVE};
    if (dice(2)) {
        config.algorithm = dice(4) ? LAGOM_RING : LAGOM_TREE;
        config.protocol = (int8_t)dice(3);
    }
    config.channels = (uint16_t)dice(25);
    if (dice(2)) {
        config.chunk_bytes = (uint32_t)(16384u << dice(8));
    }
    return config;
}

static void random_program(uint32_t communicator)
{
    plan.position_count = storm_period(communicator);
    plan.site_count = storm_sites(communicator);
    for (uint32_t position = 0; position < plan.position_count; position++) {
        plan.positions[position] = (uint16_t)storm_site_at(communicator, position);
    }
    for (uint32_t site = 0; site < plan.site_count; site++) {
        plan.sites[site] = (struct lagom_site){.bytes = storm_site_bytes(communicator, site), .function = 2 + site % 3};
        plan.sites[site].incumbent = random_config();
        plan.sites[site].candidate = dice(3) ? random_config() : plan.sites[site].incumbent;
    }
}

static void random_rules(void)
{
    plan.rule_count = (uint32_t)dice(4);
    for (uint32_t rule = 0; rule < plan.rule_count; rule++) {
        plan.rules[rule] = (struct lagom_rule){.bytes_min = dice(4u << 20), .bytes_max = (4u << 20) + dice(8u << 20)};
        plan.rules[rule].function = dice(3) ? LAGOM_ANY_FUNCTION : 2 + (uint32_t)dice(3);
        plan.rules[rule].incumbent = random_config();
        plan.rules[rule].candidate = random_config();
    }
}

/* The first call at or after `from` that is position 0 of the program. */
static uint64_t next_start(uint32_t communicator, uint64_t from)
{
    for (;; from++) {
        struct storm_call call = storm_call_at(communicator, from);
        if (call.program && call.position == 0) {
            return from;
        }
    }
}

static void random_plan(uint32_t communicator, uint64_t from)
{
    memset(&plan, 0, sizeof(plan));
    if (dice(8)) {
        random_program(communicator);
    }
    random_rules();
    plan.start_call = plan.position_count ? next_start(communicator, from) : from;
    if (plan.position_count && dice(8) == 0) {
        plan.flags |= LAGOM_PLAN_START_SEARCHING;
    }
    if (dice(3)) {
        plan.flags |= LAGOM_PLAN_HAS_CANDIDATE;
        plan.alternate_iterations = 1 + (uint32_t)dice(3);
        plan.end_call = plan.start_call + 1 + dice(20 * storm_period(communicator));
    }
}

/* Index of storm communicator `which` in the region, or UINT32_MAX while its ranks have not come. */
static uint32_t find(uint32_t which)
{
    for (uint32_t i = 0; i < LAGOM_MAX_COMMUNICATORS; i++) {
        if (lagom_load_acquire(&mapping.region->communicators[i].comm_id) == storm_comm_id(which)) {
            return i;
        }
    }
    return UINT32_MAX;
}

/* What became of ours is in the word, unless a later epoch stands there already. */
static void settle(uint32_t which, uint32_t communicator, enum lagom_outcome outcome)
{
    if (outcome == LAGOM_OUTCOME_OPEN) {
        return;
    }
    uint64_t word = lagom_load_acquire(&mapping.region->communicators[communicator].word);
    if (LAGOM_WORD_EPOCH(word) != open_epoch[which]) {
        count->overtaken++;
    } else if (LAGOM_WORD_STATE(word) == LAGOM_COMMITTED) {
        count->committed++;
        count->leases += open_lease[which];
        margin[which] -= margin[which] > 2;
    } else {
        count->aborted++;
        margin[which] = margin[which] < control->window ? margin[which] * 2 : control->window;
    }
    open_epoch[which] = 0;
}

static void offer(uint32_t which, uint32_t communicator)
{
    uint64_t smallest, largest;
    if (!lagom_publish_ready(mapping.region, communicator)) {
        return;
    }
    lagom_counters(mapping.region, communicator, &smallest, &largest);
    random_plan(which, largest + margin[which] + dice(16));
    enum lagom_publish_result result = lagom_publish(mapping.region, communicator, &plan);
    open_epoch[which] = result == LAGOM_PUBLISH_OK ? plan.epoch : 0;
    open_lease[which] = (plan.flags & LAGOM_PLAN_HAS_CANDIDATE) != 0;
    count->published += result == LAGOM_PUBLISH_OK;
    count->late += result == LAGOM_PUBLISH_LATE;
    count->refused += result == LAGOM_PUBLISH_BAD_PLAN;
}

static void drain(uint32_t which)
{
    static struct lagom_call_record records[LAGOM_CALL_RING_CAPACITY];
    for (uint32_t slot = which; slot < LAGOM_MAX_SLOTS; slot += (uint32_t)control->communicators) {
        lagom_call_ring_drain(mapping.region, slot, records, LAGOM_CALL_RING_CAPACITY);
    }
}

static void step(uint32_t which)
{
    uint32_t communicator = find(which);
    if (communicator == UINT32_MAX) {
        return;
    }
    if (open_epoch[which] != 0 && dice(500) == 0) {
        settle(which, communicator, lagom_publish_withdraw(mapping.region, communicator));
    } else if (open_epoch[which] != 0) {
        settle(which, communicator, lagom_publish_poll(mapping.region, communicator));
    } else {
        offer(which, communicator);
    }
    if (dice(200) == 0) {
        lagom_capture_set(mapping.region, communicator, dice(2) ? LAGOM_CAPTURE_CALLS : 0);
    }
    if (dice(50) == 0) {
        drain(which);
    }
}

/* Random bytes over the head of a plan, where every field counts, or over one of its rules. */
static void tear(struct lagom_plan *torn)
{
    unsigned char *start = dice(2) ? (unsigned char *)torn : (unsigned char *)&torn->rules[0];
    size_t offset = dice(64);
    for (uint64_t length = 1 + dice(8); length > 0; length--) {
        start[offset++] = (unsigned char)dice(256);
    }
    count->torn++;
}

/* A swap by a word that is long out of date: whatever stood here when we last looked, we make it an outcome. */
static void swap_by_a_stale_word(uint32_t which, uint32_t communicator)
{
    static uint64_t remembered[STORM_MAX_COMMUNICATORS];
    uint64_t old = remembered[which], now = lagom_load_acquire(&mapping.region->communicators[communicator].word);
    if (LAGOM_WORD_STATE(old) == LAGOM_PREPARED && LAGOM_WORD_EPOCH(old) != LAGOM_WORD_EPOCH(now)) {
        uint64_t outcome = LAGOM_WORD(dice(2) ? LAGOM_COMMITTED : LAGOM_ABORTED, LAGOM_WORD_EPOCH(old));
        count->stale++;
        count->stale_won += lagom_compare_exchange(&mapping.region->communicators[communicator].word, old, outcome);
    }
    remembered[which] = now;
}

static void meddle(uint32_t which)
{
    uint32_t communicator = find(which);
    if (communicator == UINT32_MAX) {
        return;
    }
    swap_by_a_stale_word(which, communicator);
    switch (dice(8)) {
    case 0: tear(&mapping.region->plans[communicator]); break;
    case 1: lagom_publish_poll(mapping.region, communicator); break; /* commits the other's, if all have answered */
    case 2: offer(which, communicator); break;
    default: break;
    }
    if (open_epoch[which] != 0) {
        settle(which, communicator, lagom_publish_poll(mapping.region, communicator));
    }
}

/* What a killed predecessor left open is ours now. On a busy machine that is the fate of most plans. */
static void adopt(uint32_t which)
{
    uint32_t communicator = find(which);
    margin[which] = 16;
    if (communicator != UINT32_MAX) {
        uint64_t word = lagom_load_acquire(&mapping.region->communicators[communicator].word);
        open_epoch[which] = LAGOM_WORD_STATE(word) == LAGOM_PREPARED ? LAGOM_WORD_EPOCH(word) : 0;
        open_lease[which] = (mapping.region->plans[communicator].flags & LAGOM_PLAN_HAS_CANDIDATE) != 0;
    }
}

static void attach(const char *job_key)
{
    enum lagom_region_fault fault = lagom_region_control(&mapping, job_key, true, LAGOM_CLOCK_MONOTONIC);
    if (fault != LAGOM_REGION_OK) {
        fprintf(stderr, "storm_publisher: %s\n", lagom_region_fault_text(fault));
        exit(1);
    }
    for (uint32_t which = 0; which < control->communicators; which++) {
        adopt(which);
    }
}

/* Past every check of the library, which would ask for the lock. */
static void break_in(const char *job_key)
{
    char path[LAGOM_PATH_BYTES];
    lagom_region_path(job_key, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    mapping.region = mmap(NULL, sizeof(struct lagom_region), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || mapping.region == MAP_FAILED) {
        perror(path);
        exit(1);
    }
    for (uint32_t which = 0; which < control->communicators; which++) {
        margin[which] = 2 * control->window; /* it looks seldom, so its plans need room */
    }
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        return 2;
    }
    intruder = argc > 4 && strcmp(argv[4], "intruder") == 0;
    control = storm_attach(argv[2]);
    count = &control->plans[intruder];
    random_state = strtoull(argv[3], NULL, 10);
    (intruder ? break_in : attach)(argv[1]);
    while (!__atomic_load_n(&control->stop, __ATOMIC_ACQUIRE)) {
        for (uint32_t which = 0; which < control->communicators; which++) {
            (intruder ? meddle : step)(which);
        }
        if (intruder) {
            usleep((useconds_t)dice(2000));
        } else {
            sched_yield();
        }
    }
    return 0;
}
