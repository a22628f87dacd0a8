/* SPDX-License-Identifier: Apache-2.0 */
/* shm_waits.c - how long NCCL's init can be held up: another process has the table's lock, or makes the region, and does not
 * let go. What is checked is what this process spent, which another's work on the machine does not change. */
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>

#include "shm/file_lock.h"
#include "shm/node_rules.h"
#include "tests/native/check.h"

#define COMMUNICATORS 20u
#define BOUND_S 2.0
#define MOST_COUNTED_S 0.05 /* of one pause */
#define MAPPINGS 20000u

static char path[LAGOM_PATH_BYTES], being_made[LAGOM_PATH_BYTES + 32];
static double paused; /* since the last spent_since() */

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

/* In the C library's place: what the code under test sleeps. */
int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    double began = seconds();
    int failure = clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
    double took = seconds() - began;
    paused += took < MOST_COUNTED_S ? took : MOST_COUNTED_S;
    return failure;
}

static double begin(void)
{
    paused = 0.0;
    return seconds_of(CLOCK_THREAD_CPUTIME_ID);
}

/* In pauses and CPU time. */
static double spent_since(double began)
{
    return paused + seconds_of(CLOCK_THREAD_CPUTIME_ID) - began;
}

static void hold_the_table(void)
{
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && lagom_lock_try(fd, LAGOM_LOCK_REGISTER));
}

static uint32_t enter(const struct lagom_mapping *mapping, uint64_t comm_id)
{
    return lagom_communicator_enter(mapping->region, comm_id, 2, 1, 0, "");
}

/* The bound is one for all: communicators, slots and the node's rules. */
static void one_bound_for_all_communicators(void)
{
    struct lagom_mapping mine = join_or_die("waits");
    struct lagom_node_rules rules = {.rule_count = 0};
    CHECK(enter(&mine, 1) == 0 && !lagom_region_gave_up());
    pid_t holder = child_that_stays(hold_the_table);
    double began = begin();
    for (uint64_t id = 2; id < 2 + COMMUNICATORS; id++) {
        CHECK_EQUAL(enter(&mine, id), UINT32_MAX);
    }
    CHECK_EQUAL(take_slot(&mine, 0, 0), UINT32_MAX);
    CHECK_EQUAL(lagom_node_rules_settle(&mine, &rules), LAGOM_NODE_RULES_ALONE);
    double spent = spent_since(began);
    CHECK(spent > 0.75 * BOUND_S && spent < 1.25 * BOUND_S);
    CHECK(lagom_region_gave_up());
    kill_child(holder);
    CHECK_EQUAL(enter(&mine, 1000), UINT32_MAX); /* for good: NCCL's init would wait with the next one again */
    lagom_region_leave(&mine, true);
}

/* Joining draws on the same two seconds. */
static void joining_counts(void)
{
    struct lagom_mapping first = join_or_die("waits"), late;
    pid_t holder = child_that_stays(hold_the_table), child = fork();
    if (child == 0) {
        double began = begin();
        CHECK_EQUAL(lagom_region_join(&late, "waits", LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_HELD);
        CHECK(spent_since(began) < 1.25 * BOUND_S && lagom_region_gave_up());
        exit(0);
    }
    CHECK_EQUAL(status_of(child), 0);
    kill_child(holder);
    child = fork();
    if (child == 0) {
        late = join_or_die("waits"); /* whoever attaches anew has all of it again */
        CHECK(enter(&late, 7) != UINT32_MAX && !lagom_region_gave_up());
        exit(0);
    }
    CHECK_EQUAL(status_of(child), 0);
    lagom_region_leave(&first, true);
}

/* A lock that others hold for a moment now and then is no reason to give up. */
static void short_holds_are_waited_out(void)
{
    struct lagom_mapping mine = join_or_die("waits");
    for (uint64_t id = 1; id <= 3; id++) {
        pid_t holder = child_that_stays(hold_the_table), killer = fork();
        if (killer == 0) {
            usleep(50 * 1000);
            kill(holder, SIGKILL);
            _exit(0);
        }
        double began = seconds();
        uint32_t entry = enter(&mine, id);
        bool judged = seconds() - began < 0.5; /* else the machine did not let the killer run */
        CHECK(entry != UINT32_MAX || !judged);
        CHECK(status_of(killer) == 0 && waitpid(holder, NULL, 0) == holder);
    }
    lagom_region_leave(&mine, true);
}

/* Three seconds without a processor are not three seconds of waiting for the lock. */
static void being_stopped_is_no_waiting(void)
{
    struct lagom_mapping mine = join_or_die("waits");
    pid_t holder = child_that_stays(hold_the_table), child = fork();
    if (child == 0) {
        struct lagom_mapping late;
        exit(lagom_region_join(&late, "waits", LAGOM_CLOCK_MONOTONIC) == LAGOM_REGION_OK ? 0 : 1);
    }
    usleep(100 * 1000);
    kill(child, SIGSTOP);
    usleep(3000 * 1000);
    double began = seconds();
    kill(child, SIGCONT);
    usleep(50 * 1000); /* it looks, and finds the lock still held */
    kill_child(holder);
    bool judged = seconds() - began < 0.5;
    int status = status_of(child);
    CHECK(status == 0 || !judged);
    lagom_region_leave(&mine, true);
}

static void hold_a_half_made_one(void)
{
    int fd = open(being_made, O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && lagom_lock_try(fd, LAGOM_LOCK_REGISTER));
}

/* Every other page of another kind: none is merged with its neighbour. */
static void map_many(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, MAPPINGS * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(pages != MAP_FAILED);
    for (size_t i = 0; i < MAPPINGS; i += 2) {
        CHECK(mprotect(pages + i * page, page, PROT_READ | PROT_WRITE) == 0);
    }
}

/* Each look at a region that is being made reads this process's mappings: that is counted too. */
static void looking_counts(void)
{
    snprintf(being_made, sizeof(being_made), "%s.tmp.0123456789abcdef", path);
    pid_t maker = child_that_stays(hold_a_half_made_one), child = fork();
    if (child == 0) {
        map_many();
        double began = begin();
        join_or_die("waits");
        CHECK(spent_since(began) < 1.25 * BOUND_S);
        exit(0);
    }
    CHECK_EQUAL(status_of(child), 0);
    kill_child(maker);
    CHECK(unlink(being_made) == 0);
}

int main(void)
{
    if (getenv("LAGOM_SHM_DIR") == NULL) {
        printf("LAGOM_SHM_DIR must name a folder for this test\n");
        return 77;
    }
    lagom_region_path("waits", path);
    RUN(one_bound_for_all_communicators);
    RUN(joining_counts);
    RUN(short_holds_are_waited_out);
    RUN(being_stopped_is_no_waiting);
    RUN(looking_counts);
    return 0;
}
