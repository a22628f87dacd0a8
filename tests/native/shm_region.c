/* SPDX-License-Identifier: Apache-2.0 */
/* shm_region.c - the file: made whole, found, refused with the right reason, judged stale, removed. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "shm/attachment.h"
#include "shm/job_key.h"
#include "tests/native/check.h"

static char path[LAGOM_PATH_BYTES];

static bool exists(void)
{
    return access(path, F_OK) == 0;
}

static void join_it(void)
{
    join_or_die("job");
}

static void control_it(void)
{
    struct lagom_mapping mapping;
    CHECK_EQUAL(lagom_region_control(&mapping, "job", true, LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_OK);
}

/* A region whose maker is dead. */
static void leave_a_stale_one(void)
{
    unlink(path);
    kill_child(child_that_stays(join_it));
    CHECK(exists());
}

static void overwrite(off_t offset, const void *bytes, size_t length)
{
    int fd = open(path, O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, bytes, length, offset) == (ssize_t)length);
    close(fd);
}

static enum lagom_region_fault try_join(void)
{
    struct lagom_mapping mapping;
    enum lagom_region_fault fault = lagom_region_join(&mapping, "job", LAGOM_CLOCK_MONOTONIC);
    CHECK((mapping.region != NULL) == (fault == LAGOM_REGION_OK));
    lagom_region_leave(&mapping, fault == LAGOM_REGION_OK);
    return fault;
}

static int next_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY);
    CHECK(fd >= 0 && close(fd) == 0);
    return fd;
}

/* What a rank and a controller by path both say to the file as it lies there; and they leave no descriptor of it. */
static void check_refused(enum lagom_region_fault wanted)
{
    struct lagom_mapping mapping;
    int next = next_descriptor();
    CHECK_EQUAL(try_join(), wanted);
    CHECK_EQUAL(lagom_region_control_path(&mapping, path), wanted);
    CHECK_EQUAL(lagom_region_inspect(&mapping, path), wanted);
    CHECK_EQUAL(next_descriptor(), next);
    CHECK(exists());
    CHECK(strlen(lagom_region_fault_text(wanted)) > 20);
    unlink(path);
}

static void a_rank_creates_it_whole(void)
{
    struct stat file;
    struct lagom_mapping mapping = join_or_die("job");
    const struct lagom_header *header = &mapping.region->header;
    CHECK(strcmp(mapping.path, path) == 0 && stat(path, &file) == 0);
    CHECK_EQUAL(file.st_size, sizeof(struct lagom_region));
    CHECK_EQUAL(file.st_mode & 07777, 0600);
    CHECK((uint64_t)file.st_blocks * 512 >= sizeof(struct lagom_region));
    CHECK(header->magic == LAGOM_MAGIC && header->protocol_version == LAGOM_PROTOCOL_VERSION);
    CHECK_EQUAL(header->processes_seen, 1);
    CHECK(strcmp(header->job_key, "job") == 0 && header->created_ns > 0);
    CHECK_EQUAL(mapping.region->processes[mapping.process].state, LAGOM_READY);
    CHECK_EQUAL(mapping.region->processes[mapping.process].pid, getpid());
    lagom_region_leave(&mapping, true);
    CHECK(mapping.region == NULL && !exists());
}

/* Another copy of this library sees by that that it must keep away. /proc names the folder that a link leads to. */
static void it_is_seen_to_be_mapped_through_a_linked_folder(void)
{
    char folder[LAGOM_PATH_BYTES], link[LAGOM_PATH_BYTES], through[2 * LAGOM_PATH_BYTES];
    const char *name = strrchr(path, '/') + 1;
    snprintf(folder, sizeof(folder), "%.*s", (int)(name - path), path);
    snprintf(link, sizeof(link), "%.*slink", (int)(name - path), path);
    snprintf(through, sizeof(through), "%.*slink/%s", (int)(name - path), path, name);
    CHECK(symlink(folder, link) == 0);
    struct lagom_mapping mapping = join_or_die("job");
    CHECK_EQUAL(lagom_attachment_mappings(path), 1);
    CHECK_EQUAL(lagom_attachment_mappings(through), 1);
    lagom_region_leave(&mapping, true);
    CHECK(unlink(link) == 0);
}

static void the_clock_is_kept(void)
{
    struct lagom_mapping mapping;
    CHECK_EQUAL(lagom_region_join(&mapping, "job", LAGOM_CLOCK_SIMULATED), LAGOM_REGION_OK);
    CHECK_EQUAL(mapping.region->header.clock, LAGOM_CLOCK_SIMULATED);
    lagom_region_leave(&mapping, true);
}

static void missing_is_said(void)
{
    struct lagom_mapping mapping;
    CHECK_EQUAL(lagom_region_control(&mapping, "job", false, LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_MISSING);
    CHECK_EQUAL(lagom_region_control_path(&mapping, path), LAGOM_REGION_MISSING);
    CHECK_EQUAL(lagom_region_inspect(&mapping, path), LAGOM_REGION_MISSING);
    CHECK(mapping.region == NULL);
    lagom_region_leave(&mapping, true); /* of nothing: allowed */
}

static void foreign_files_are_refused(void)
{
    leave_a_stale_one();
    CHECK(chmod(path, 0644) == 0);
    check_refused(LAGOM_REGION_FOREIGN);
    CHECK(mkdir(path, 0700) == 0);
    CHECK_EQUAL(try_join(), LAGOM_REGION_FOREIGN);
    CHECK(rmdir(path) == 0 && mkfifo(path, 0600) == 0);
    check_refused(LAGOM_REGION_FOREIGN);
    leave_a_stale_one();
    if (chown(path, 12345, (gid_t)-1) == 0) { /* only root can make a file somebody else's */
        check_refused(LAGOM_REGION_FOREIGN);
    }
    unlink(path);
}

static void symbolic_links_are_not_followed(void)
{
    char elsewhere[LAGOM_PATH_BYTES + 8];
    leave_a_stale_one();
    snprintf(elsewhere, sizeof(elsewhere), "%s.x", path);
    CHECK(rename(path, elsewhere) == 0 && symlink(elsewhere, path) == 0);
    check_refused(LAGOM_REGION_FOREIGN);
    unlink(elsewhere);
}

static void damaged_files_are_refused(void)
{
    static const off_t lengths[] = {
        0, 1, 511, 512, 4096, (off_t)sizeof(struct lagom_region) - 1, (off_t)sizeof(struct lagom_region) + 1};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        leave_a_stale_one();
        CHECK(truncate(path, lengths[i]) == 0);
        check_refused(LAGOM_REGION_DAMAGED);
    }
    leave_a_stale_one();
    overwrite(0, "not a re", 8);
    check_refused(LAGOM_REGION_DAMAGED);
    leave_a_stale_one();
    overwrite(offsetof(struct lagom_header, header_bytes), "\1\0\0\0", 4);
    check_refused(LAGOM_REGION_DAMAGED);
    leave_a_stale_one();
    overwrite(offsetof(struct lagom_header, region_bytes), "\1", 1);
    check_refused(LAGOM_REGION_DAMAGED);
}

static void garbage_is_refused(void)
{
    uint64_t seed = 11, noise[64];
    for (int round = 0; round < 50; round++) {
        leave_a_stale_one();
        for (size_t i = 0; i < 64; i++) {
            noise[i] = next_random(&seed);
        }
        overwrite(0, noise, sizeof(noise));
        check_refused(LAGOM_REGION_DAMAGED);
    }
}

static void claim_another_version(void)
{
    uint32_t version = LAGOM_PROTOCOL_VERSION + 1;
    overwrite(offsetof(struct lagom_header, protocol_version), &version, sizeof(version));
}

/* A running job of another version is left alone; what a killed one left does not stand in an upgrade's way. */
static void another_version_is_refused_while_it_lives(void)
{
    unlink(path);
    pid_t child = child_that_stays(join_it);
    claim_another_version();
    CHECK_EQUAL(try_join(), LAGOM_REGION_VERSION);
    check_refused(LAGOM_REGION_VERSION);
    kill_child(child);
    leave_a_stale_one();
    claim_another_version();
    CHECK_EQUAL(try_join(), LAGOM_REGION_OK);
}

static void a_stale_one_is_replaced(void)
{
    struct stat before, after;
    leave_a_stale_one();
    CHECK(stat(path, &before) == 0);
    struct lagom_mapping mapping;
    CHECK_EQUAL(lagom_region_control_path(&mapping, path), LAGOM_REGION_STALE);
    CHECK_EQUAL(lagom_region_inspect(&mapping, path), LAGOM_REGION_STALE);
    mapping = join_or_die("job");
    CHECK(stat(path, &after) == 0);
    CHECK_EQUAL(mapping.region->header.processes_seen, 1);
    lagom_region_leave(&mapping, true);
}

static void another_boot_is_stale(void)
{
    struct lagom_mapping mapping;
    uint64_t boot = lagom_boot_hash() + 1;
    leave_a_stale_one();
    overwrite(offsetof(struct lagom_header, boot_hash), &boot, sizeof(boot));
    CHECK_EQUAL(lagom_region_inspect(&mapping, path), LAGOM_REGION_STALE);
    CHECK_EQUAL(try_join(), LAGOM_REGION_OK);
}

/* As on a disk after a power cut, where a process of today happens to hold the same bytes. */
static void another_boot_is_stale_whoever_holds_it(void)
{
    struct lagom_mapping mapping;
    uint64_t boot = lagom_boot_hash() + 1;
    pid_t child = child_that_stays(join_it);
    CHECK_EQUAL(lagom_region_inspect(&mapping, path), LAGOM_REGION_OK);
    lagom_region_leave(&mapping, false);
    overwrite(offsetof(struct lagom_header, boot_hash), &boot, sizeof(boot));
    CHECK_EQUAL(lagom_region_inspect(&mapping, path), LAGOM_REGION_STALE);
    CHECK_EQUAL(lagom_region_control_path(&mapping, path), LAGOM_REGION_STALE);
    kill_child(child);
}

static void remove_stale_removes_only_the_dead(void)
{
    pid_t child = child_that_stays(join_it);
    CHECK_EQUAL(lagom_region_remove_stale(path), LAGOM_REGION_HELD);
    kill_child(child);
    CHECK_EQUAL(lagom_region_remove_stale(path), LAGOM_REGION_OK);
    CHECK_EQUAL(lagom_region_remove_stale(path), LAGOM_REGION_MISSING);
    struct lagom_mapping mapping = join_or_die("job");
    CHECK_EQUAL(lagom_region_remove_stale(path), LAGOM_REGION_HELD); /* our own: its descriptor must not be doubled */
    CHECK(lagom_region_process_alive(&mapping, mapping.process));
    lagom_region_leave(&mapping, true);
}

static void two_jobs_have_two_regions(void)
{
    char other[LAGOM_PATH_BYTES];
    struct lagom_mapping mine = join_or_die("job"), theirs = join_or_die("another job");
    lagom_region_path("another job", other);
    CHECK(mine.region != theirs.region && strcmp(other, theirs.path) == 0 && strcmp(mine.path, theirs.path) != 0);
    lagom_region_leave(&theirs, true);
    CHECK(exists() && mine.region->header.magic == LAGOM_MAGIC);
    lagom_region_leave(&mine, true);
}

static void one_controller_at_a_time(void)
{
    struct lagom_mapping mapping;
    pid_t child = child_that_stays(control_it);
    CHECK_EQUAL(lagom_region_control(&mapping, "job", true, LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_HELD);
    CHECK_EQUAL(lagom_region_control_path(&mapping, path), LAGOM_REGION_HELD);
    struct lagom_mapping rank = join_or_die("job"); /* keeps the region alive beyond the controller's death */
    CHECK(lagom_region_controller_alive(&rank));
    kill(child, SIGSTOP); /* stopped is not dead: nobody else may publish */
    CHECK(lagom_region_controller_alive(&rank));
    CHECK_EQUAL(lagom_region_control_path(&mapping, path), LAGOM_REGION_HELD);
    kill_child(child);
    CHECK(!lagom_region_controller_alive(&rank));
    CHECK_EQUAL(lagom_region_control_path(&mapping, path), LAGOM_REGION_OK);
    CHECK_EQUAL(mapping.region->header.controller_generation, 2);
    CHECK(lagom_region_controller_alive(&rank));
    lagom_region_leave(&mapping, true); /* goes; the rank, and the next controller, must still find the file */
    CHECK(!lagom_region_controller_alive(&rank) && exists());
    lagom_region_leave(&rank, true);
    CHECK(!exists());
}

/* A rank's wish to remove the file is granted to the last one only. */
static void the_last_rank_removes_the_file(void)
{
    pid_t child = child_that_stays(join_it);
    struct lagom_mapping mapping = join_or_die("job");
    lagom_region_leave(&mapping, true);
    CHECK(exists());
    mapping = join_or_die("job");
    kill_child(child);
    lagom_region_leave(&mapping, true);
    CHECK(!exists());
}

/* Children that all create, find or replace the same region end in one and the same. */
static void many_at_once_find_one(void)
{
    for (int round = 0; round < 10; round++) {
        pid_t children[8];
        int ready[2], go[2];
        ino_t inodes[8];
        if (round % 2 == 1) {
            leave_a_stale_one();
        }
        CHECK(pipe(ready) == 0 && pipe(go) == 0);
        for (int i = 0; i < 8; i++) {
            children[i] = fork();
            if (children[i] == 0) {
                char byte;
                struct stat file;
                struct lagom_mapping mapping = join_or_die("job");
                CHECK(stat(path, &file) == 0 && write(ready[1], &file.st_ino, sizeof(file.st_ino)) > 0);
                close(go[1]);
                CHECK_EQUAL(read(go[0], &byte, 1), 0); /* all hold it until all have it */
                lagom_region_leave(&mapping, true);
                exit(0);
            }
        }
        close(go[0]);
        for (int i = 0; i < 8; i++) {
            CHECK_EQUAL(read(ready[0], &inodes[i], sizeof(inodes[i])), sizeof(inodes[i]));
            CHECK_EQUAL(inodes[i], inodes[0]);
        }
        close(go[1]);
        for (int i = 0; i < 8; i++) {
            CHECK_EQUAL(status_of(children[i]), 0);
        }
        close(ready[0]);
        close(ready[1]);
        unlink(path);
    }
}

/* Joining and leaving as fast as possible: nobody is left in a region that another has removed. */
static void come_and_go(void)
{
    pid_t children[4];
    for (int i = 0; i < 4; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            for (int round = 0; round < 100; round++) {
                struct stat file, held;
                struct lagom_mapping mapping = join_or_die("job");
                CHECK(fstat(mapping.fd, &held) == 0 && stat(path, &file) == 0 && file.st_ino == held.st_ino);
                lagom_region_leave(&mapping, true);
            }
            exit(0);
        }
    }
    for (int i = 0; i < 4; i++) {
        CHECK_EQUAL(status_of(children[i]), 0);
    }
    CHECK(!exists());
}

static void an_unwritable_folder_is_said(void)
{
    struct lagom_mapping mapping;
    const char *folder = getenv("LAGOM_SHM_DIR");
    char *kept = strdup(folder);
    setenv("LAGOM_SHM_DIR", "/nonexistent/folder", 1);
    CHECK_EQUAL(lagom_region_join(&mapping, "job", LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_SYSTEM);
    CHECK_EQUAL(mapping.error, ENOENT);
    setenv("LAGOM_SHM_DIR", kept, 1);
    free(kept);
}

/* Needs a file system of a known size, hence a mount of its own; where that is not allowed the case says so. */
static bool join_in_a_small_tmpfs(const char *size, enum lagom_region_fault wanted)
{
    pid_t child = fork();
    if (child == 0) {
        struct lagom_mapping mapping;
        if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("none", getenv("LAGOM_SHM_DIR"), "tmpfs", 0, size) != 0) {
            exit(77);
        }
        int next = next_descriptor();
        CHECK_EQUAL(lagom_region_join(&mapping, "job", LAGOM_CLOCK_MONOTONIC), wanted);
        CHECK((next_descriptor() == next) == (wanted != LAGOM_REGION_OK)); /* held only while joined */
        CHECK((access(path, F_OK) == 0) == (wanted == LAGOM_REGION_OK));
        exit(0);
    }
    int status = status_of(child);
    CHECK(status == 0 || status == 77);
    return status == 0;
}

static void no_more_than_a_quarter_of_what_is_free(void)
{
    if (!join_in_a_small_tmpfs("size=20m", LAGOM_REGION_NO_SPACE) ||
        !join_in_a_small_tmpfs("size=40m", LAGOM_REGION_OK) ||
        !join_in_a_small_tmpfs("size=1m", LAGOM_REGION_NO_SPACE)) {
        printf("  not seen: mounting a small tmpfs is not allowed here\n");
    }
}

static void join_where_no_file_may_be_so_long(void)
{
    const struct rlimit limit = {4096, 4096};
    struct lagom_mapping mapping;
    int next = next_descriptor();
    signal(SIGXFSZ, SIG_DFL); /* which would end this process */
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK_EQUAL(lagom_region_join(&mapping, "job", LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_LIMIT);
    CHECK_EQUAL(next_descriptor(), next);
    CHECK(!exists());
}

static void what_could_not_be_made_leaves_nothing(void)
{
    pid_t child = fork();
    if (child == 0) {
        join_where_no_file_may_be_so_long();
        exit(0);
    }
    CHECK_EQUAL(status_of(child), 0);
}

int main(void)
{
    if (getenv("LAGOM_SHM_DIR") == NULL) {
        printf("LAGOM_SHM_DIR must name a folder for this test\n");
        return 77;
    }
    lagom_region_path("job", path);
    RUN(a_rank_creates_it_whole);
    RUN(it_is_seen_to_be_mapped_through_a_linked_folder);
    RUN(the_clock_is_kept);
    RUN(missing_is_said);
    RUN(foreign_files_are_refused);
    RUN(symbolic_links_are_not_followed);
    RUN(damaged_files_are_refused);
    RUN(garbage_is_refused);
    RUN(another_version_is_refused_while_it_lives);
    RUN(a_stale_one_is_replaced);
    RUN(another_boot_is_stale);
    RUN(another_boot_is_stale_whoever_holds_it);
    RUN(remove_stale_removes_only_the_dead);
    RUN(two_jobs_have_two_regions);
    RUN(one_controller_at_a_time);
    RUN(the_last_rank_removes_the_file);
    RUN(many_at_once_find_one);
    RUN(come_and_go);
    RUN(an_unwritable_folder_is_said);
    RUN(no_more_than_a_quarter_of_what_is_free);
    RUN(what_could_not_be_made_leaves_nothing);
    return 0;
}
