/* SPDX-License-Identifier: Apache-2.0 */
/* shm_inherited.c - what a process finds in a region that was there before it: holes in the file, and the claim to start
 * the controller of the one whose entry it takes. */
#include <fcntl.h>
#include <sys/stat.h>

#include "protocol/lagom_atomic.h"
#include "tests/native/check.h"

static char path[LAGOM_PATH_BYTES];

static void join_it(void)
{
    join_or_die("inherited");
}

static void join_and_claim(void)
{
    struct lagom_mapping mapping = join_or_die("inherited");
    lagom_store_release(&mapping.region->header.spawn_claim, (uint64_t)mapping.process + 1);
}

static void join_and_sweep(void)
{
    struct lagom_mapping mapping = join_or_die("inherited");
    CHECK(lagom_region_sweep(&mapping) > 0);
}

static uint64_t allocated(void)
{
    struct stat file;
    CHECK(stat(path, &file) == 0);
    return (uint64_t)file.st_blocks * 512;
}

/* A hole is SIGBUS at its first touch once the tmpfs is full, so whoever may write fills it, or does not attach. */
static void a_region_with_holes_is_filled_before_it_is_mapped(void)
{
    pid_t owner = child_that_stays(join_it);
    uint64_t whole = allocated();
    CHECK(whole >= sizeof(struct lagom_region));
    int fd = open(path, O_RDWR);
    off_t hole = (off_t)sizeof(struct lagom_region) / 2;
    bool made = fd >= 0 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, hole, hole / 2) == 0;
    close(fd);
    if (!made || allocated() >= whole) {
        printf("skipped: this file system makes no holes\n");
        kill_child(owner);
        return;
    }
    struct lagom_mapping mapping = join_or_die("inherited");
    CHECK(allocated() >= whole);
    lagom_region_leave(&mapping, false);
    kill_child(owner);
}

/* Else nobody would start a controller after an elastic restart: the dead rank's claim would be the new one's. */
static void the_claim_of_a_dead_owner_does_not_pass_on_with_its_entry(void)
{
    pid_t other = child_that_stays(join_it); /* keeps the region alive */
    kill_child(child_that_stays(join_and_claim));
    pid_t sweeper = child_that_stays(join_and_sweep);
    struct lagom_mapping mapping = join_or_die("inherited");
    CHECK_EQUAL(mapping.process, 1); /* the dead one's entry */
    CHECK_EQUAL(lagom_load_acquire(&mapping.region->header.spawn_claim), 0);
    lagom_store_release(&mapping.region->header.spawn_claim, (uint64_t)1); /* that of a living process stays */
    pid_t another = child_that_stays(join_it);
    CHECK_EQUAL(lagom_load_acquire(&mapping.region->header.spawn_claim), 1);
    kill_child(another);
    kill_child(sweeper);
    kill_child(other);
    lagom_region_leave(&mapping, true);
}

int main(void)
{
    CHECK(lagom_region_path("inherited", path));
    unlink(path);
    RUN(a_region_with_holes_is_filled_before_it_is_mapped);
    unlink(path);
    RUN(the_claim_of_a_dead_owner_does_not_pass_on_with_its_entry);
    return 0;
}
