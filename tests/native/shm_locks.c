/* SPDX-License-Identifier: Apache-2.0 */
/* shm_locks.c - who counts as alive: across kill, fork, a second join in the same process, and looks by doctor. */
#include "tests/native/check.h"

static char path[LAGOM_PATH_BYTES];

static void join_it(void)
{
    join_or_die("job");
}

static bool alive_elsewhere(uint32_t process)
{
    pid_t child = fork();
    if (child == 0) {
        struct lagom_mapping mapping;
        if (lagom_region_control_path(&mapping, path) != LAGOM_REGION_OK) {
            exit(2);
        }
        exit(lagom_region_process_alive(&mapping, process) ? 1 : 0);
    }
    int status = status_of(child);
    CHECK(status == 0 || status == 1);
    return status == 1;
}

static void death_frees_the_lock(void)
{
    struct lagom_mapping mapping = join_or_die("job");
    pid_t child = child_that_stays(join_it);
    CHECK_EQUAL(lagom_region_processes_alive(&mapping), 2);
    CHECK_EQUAL(mapping.region->header.processes_seen, 2);
    kill(child, SIGSTOP);
    CHECK(lagom_region_process_alive(&mapping, 1));
    kill_child(child);
    CHECK(!lagom_region_process_alive(&mapping, 1));
    CHECK_EQUAL(lagom_region_processes_alive(&mapping), 1);
    CHECK(!lagom_region_process_alive(&mapping, LAGOM_MAX_PROCESSES));
    lagom_region_leave(&mapping, true);
}

static void a_second_join_shares_and_a_leave_keeps_the_lock(void)
{
    struct lagom_mapping first = join_or_die("job"), second = join_or_die("job");
    CHECK(first.region == second.region && first.fd == second.fd && first.process == second.process);
    CHECK_EQUAL(first.region->header.processes_seen, 1);
    lagom_region_leave(&first, true);
    CHECK(access(path, F_OK) == 0 && second.region->header.magic == LAGOM_MAGIC);
    CHECK(alive_elsewhere(second.process));
    lagom_region_leave(&second, true);
    CHECK(access(path, F_OK) != 0);
}

static void looking_does_not_drop_the_lock(void)
{
    struct lagom_mapping rank = join_or_die("job"), look;
    for (int i = 0; i < 3; i++) {
        CHECK_EQUAL(lagom_region_inspect(&look, path), LAGOM_REGION_OK);
        CHECK(look.region == rank.region);
        lagom_region_leave(&look, false);
        CHECK(alive_elsewhere(rank.process));
    }
    lagom_region_leave(&rank, true);
}

/* Joined while only looked at so far: the read-only mapping becomes writable in place. */
static void a_look_can_become_a_join(void)
{
    pid_t child = child_that_stays(join_it);
    struct lagom_mapping look;
    CHECK_EQUAL(lagom_region_inspect(&look, path), LAGOM_REGION_OK);
    CHECK_EQUAL(lagom_communicator_enter(look.region, 5, 1, 1, 0, ""), UINT32_MAX); /* read-only */
    CHECK_EQUAL(lagom_region_sweep(&look), 0);
    struct lagom_mapping rank = join_or_die("job");
    CHECK(look.region == rank.region && rank.process == 1);
    kill_child(child);
    lagom_region_leave(&look, false);
    CHECK(alive_elsewhere(1));
    lagom_region_leave(&rank, true);
}

static void rank_and_controller_in_one_process(void)
{
    struct lagom_mapping rank = join_or_die("job"), controller, another;
    CHECK_EQUAL(lagom_region_control(&controller, "job", false, LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_OK);
    CHECK_EQUAL(lagom_region_control(&another, "job", false, LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_HELD);
    CHECK(lagom_region_controller_alive(&rank) && !lagom_region_is_locked(&rank, LAGOM_LOCK_CONTROLLER));
    lagom_region_leave(&controller, false);
    CHECK(!lagom_region_controller_alive(&rank) && alive_elsewhere(rank.process));
    lagom_region_leave(&rank, true);
}

/* A forked child (a DataLoader worker) shares nothing: what it writes stays its own, and its death changes nothing. */
static void a_forked_child_is_inert(void)
{
    struct lagom_mapping mapping = join_or_die("job");
    struct lagom_region *region = mapping.region;
    uint32_t communicator = lagom_communicator_enter(region, 9, 2, 1, 0, "group");
    uint32_t slot = take_slot(&mapping, communicator, 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK_EQUAL(region->header.magic, 0);
        region->slots[slot].calls = 77;
        lagom_slot_release(&mapping, slot);
        CHECK_EQUAL(lagom_region_processes_alive(&mapping), 0);
        CHECK_EQUAL(lagom_communicator_enter(region, 10, 2, 1, 0, ""), UINT32_MAX);
        CHECK_EQUAL(take_slot(&mapping, communicator, 1), UINT32_MAX);
        lagom_region_leave(&mapping, true);
        exit(0);
    }
    CHECK_EQUAL(status_of(child), 0);
    CHECK_EQUAL(region->slots[slot].calls, 0);
    CHECK_EQUAL(region->slots[slot].state, LAGOM_READY);
    CHECK(region->communicators[1].comm_id == 0 && access(path, F_OK) == 0);
    CHECK(alive_elsewhere(mapping.process));
    lagom_region_leave(&mapping, true);
}

static void a_forked_child_may_join_on_its_own(void)
{
    struct lagom_mapping mapping = join_or_die("job");
    pid_t child = fork();
    if (child == 0) {
        struct lagom_mapping mine = join_or_die("job");
        CHECK_EQUAL(mine.process, 1);
        CHECK_EQUAL(lagom_region_processes_alive(&mine), 2);
        lagom_region_leave(&mine, true);
        exit(0);
    }
    CHECK_EQUAL(status_of(child), 0);
    CHECK_EQUAL(lagom_region_processes_alive(&mapping), 1);
    CHECK_EQUAL(mapping.region->processes[1].state, LAGOM_GONE);
    lagom_region_leave(&mapping, true);
}

int main(void)
{
    if (getenv("LAGOM_SHM_DIR") == NULL) {
        printf("LAGOM_SHM_DIR must name a folder for this test\n");
        return 77;
    }
    lagom_region_path("job", path);
    RUN(death_frees_the_lock);
    RUN(a_second_join_shares_and_a_leave_keeps_the_lock);
    RUN(looking_does_not_drop_the_lock);
    RUN(a_look_can_become_a_join);
    RUN(rank_and_controller_in_one_process);
    RUN(a_forked_child_is_inert);
    RUN(a_forked_child_may_join_on_its_own);
    return 0;
}
