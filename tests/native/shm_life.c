/* SPDX-License-Identifier: Apache-2.0 */
/* shm_life.c - what jobs do to each other's regions: killed whole, ended by a power cut, in containers with process ids
 * of their own, of another user, stopped at the worst moment. */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>

#include "shm/file_lock.h"
#include "shm/job_key.h"
#include "tests/native/check.h"

static char path[LAGOM_PATH_BYTES];

static bool exists(const char *file)
{
    return access(file, F_OK) == 0;
}

/* Of races between processes, which a sanitizer does not see but makes slow. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ROUNDS (is_full() ? 300 : 30)
#else
#define ROUNDS (is_full() ? 3000 : 60)
#endif
#define FAR_TOO_LONG 60 /* seconds for what takes two, even on a busy machine; fifty times two are a hundred */

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int files_of_ours(void)
{
    int count = 0;
    DIR *files = opendir(getenv("LAGOM_SHM_DIR"));
    for (const struct dirent *entry; (entry = readdir(files)) != NULL;) {
        count += strncmp(entry->d_name, "lagom-", 6) == 0;
    }
    closedir(files);
    return count;
}

/* ---- Killed whole ------------------------------------------------------------------------------------------------ */

static const char *job_of_child;

static void join_as_told(void)
{
    join_or_die(job_of_child);
}

static void control_as_told(void)
{
    struct lagom_mapping mapping;
    CHECK_EQUAL(lagom_region_control(&mapping, job_of_child, true, LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_OK);
}

/* The file of a job whose controller and rank were killed with SIGKILL. */
static void leave_behind(const char *job, char out[LAGOM_PATH_BYTES])
{
    job_of_child = job;
    pid_t controller = child_that_stays(control_as_told), rank = child_that_stays(join_as_told);
    kill_child(controller);
    kill_child(rank);
    lagom_region_path(job, out);
    CHECK(exists(out));
}

static void the_next_job_clears_what_killed_ones_left(void)
{
    char killed[LAGOM_PATH_BYTES], living[LAGOM_PATH_BYTES], half_made[LAGOM_PATH_BYTES + 32];
    leave_behind("killed", killed);
    snprintf(half_made, sizeof(half_made), "%s.tmp.0123456789abcdef", killed);
    close(open(half_made, O_CREAT | O_RDWR, 0600));
    job_of_child = "living";
    pid_t child = child_that_stays(join_as_told);
    lagom_region_path("living", living);
    struct lagom_mapping mine = join_or_die("job");
    CHECK(!exists(killed) && !exists(half_made));
    CHECK(exists(living) && exists(path));
    CHECK_EQUAL(files_of_ours(), 2);
    kill_child(child);
    lagom_region_leave(&mine, true);
    unlink(living);
}

/* On tmpfs nothing outlives a power cut; on a disk the file does, under a name with the old boot id in it. */
static void what_a_power_cut_left_is_cleared(void)
{
    char old[LAGOM_PATH_BYTES];
    uint64_t boot = lagom_boot_hash() + 1;
    leave_behind("before the power cut", old);
    int fd = open(old, O_WRONLY);
    CHECK(pwrite(fd, &boot, sizeof(boot), offsetof(struct lagom_header, boot_hash)) == sizeof(boot));
    close(fd);
    struct lagom_mapping mine = join_or_die("job");
    CHECK(!exists(old));
    lagom_region_leave(&mine, true);
}

static void only_our_own_files_are_cleared(void)
{
    char linked[LAGOM_PATH_BYTES + 32], open_to_all[LAGOM_PATH_BYTES + 32], folder[LAGOM_PATH_BYTES + 32];
    snprintf(linked, sizeof(linked), "%s.tmp.00000000000000aa", path);
    snprintf(open_to_all, sizeof(open_to_all), "%s.tmp.00000000000000ab", path);
    snprintf(folder, sizeof(folder), "%s.tmp.00000000000000ac", path);
    CHECK(symlink("/etc/hostname", linked) == 0 && mkdir(folder, 0700) == 0);
    close(open(open_to_all, O_CREAT | O_RDWR, 0644));
    struct lagom_mapping mine = join_or_die("job");
    struct stat file;
    CHECK(lstat(linked, &file) == 0 && lstat(folder, &file) == 0 && lstat(open_to_all, &file) == 0);
    CHECK(exists("/etc/hostname"));
    lagom_region_leave(&mine, true);
    CHECK(unlink(linked) == 0 && unlink(open_to_all) == 0 && rmdir(folder) == 0);
}

/* ---- Coming and going at the same moment ------------------------------------------------------------------------- */

/* Both see the other's lock, or neither wants to wait for the judge: then the file would stay for ever. */
static void two_that_leave_at_once_leave_nothing(void)
{
    for (int round = 0; round < ROUNDS / 2; round++) {
        int gate[2];
        pid_t children[2];
        CHECK(pipe(gate) == 0);
        struct lagom_mapping first = join_or_die("job");
        for (int i = 0; i < 2; i++) {
            children[i] = fork();
            if (children[i] == 0) {
                char byte;
                struct lagom_mapping mapping = join_or_die("job");
                close(gate[1]);
                CHECK_EQUAL(read(gate[0], &byte, 1), 0);
                lagom_region_leave(&mapping, true);
                _exit(0);
            }
        }
        while (lagom_region_processes_alive(&first) < 3) {
            sched_yield();
        }
        lagom_region_leave(&first, false);
        close(gate[0]);
        close(gate[1]);
        CHECK_EQUAL(status_of(children[0]) | status_of(children[1]), 0);
        CHECK(!exists(path));
    }
}

static char being_made[LAGOM_PATH_BYTES + 32];

static void hold_a_half_made_one(void)
{
    int fd = open(being_made, O_CREAT | O_RDWR, 0600);
    CHECK(fd >= 0 && lagom_lock_try(fd, LAGOM_LOCK_REGISTER));
}

/* Who is making one is waited for; who was killed at it is not; who was stopped at it is for a second, no more. */
static void a_maker_is_waited_for(void)
{
    snprintf(being_made, sizeof(being_made), "%s.tmp.0123456789abcdef", path);
    pid_t maker = child_that_stays(hold_a_half_made_one);
    double began = seconds();
    pid_t killer = fork();
    if (killer == 0) {
        usleep(200 * 1000);
        kill(maker, SIGKILL);
        _exit(0);
    }
    struct lagom_mapping mine = join_or_die("job");
    CHECK(seconds() - began > 0.1);
    CHECK_EQUAL(files_of_ours(), 1);
    lagom_region_leave(&mine, true);
    CHECK(status_of(killer) == 0 && waitpid(maker, NULL, 0) == maker);

    maker = child_that_stays(hold_a_half_made_one);
    kill(maker, SIGSTOP);
    began = seconds();
    mine = join_or_die("job");
    double waited = seconds() - began;
    printf("  waited %.3f s\n", waited);
    CHECK(waited > 0.5 && waited < FAR_TOO_LONG);
    kill_child(maker);
    lagom_region_leave(&mine, true);
    CHECK(unlink(being_made) == 0);
}

static int gate[2]; /* closed = everybody may go */

static void join_at_the_gate(void)
{
    char byte;
    close(gate[1]);
    CHECK_EQUAL(read(gate[0], &byte, 1), 0);
    struct lagom_mapping mapping = join_or_die("job");
    while (mapping.region->header.processes_seen < 8) {
        usleep(1000);
    }
    lagom_region_leave(&mapping, true);
    _exit(0);
}

/* Eight ranks come at the same moment where there is room for one region and its reserve, not for two. */
static void fill_a_small_memory(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        pid_t children[8];
        CHECK(pipe(gate) == 0);
        for (int i = 0; i < 8; i++) {
            if ((children[i] = fork()) == 0) {
                alarm(600);
                join_at_the_gate();
            }
        }
        close(gate[0]);
        close(gate[1]);
        for (int i = 0; i < 8; i++) {
            CHECK_EQUAL(status_of(children[i]), 0);
        }
        CHECK_EQUAL(files_of_ours(), 0);
    }
}

static void all_ranks_find_room_in_a_small_memory(void)
{
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("none", getenv("LAGOM_SHM_DIR"), "tmpfs", 0, "size=32m") != 0) {
            _exit(77);
        }
        fill_a_small_memory();
        _exit(0);
    }
    int status = status_of(child);
    if (status == 77) {
        printf("  not seen: mounting in a namespace of one's own is not allowed here\n");
    } else {
        CHECK_EQUAL(status, 0);
    }
}

/* An elastic restart: the last rank has gone, the next one comes while the controller makes up its mind. */
static void a_controller_goes_only_where_no_rank_is(void)
{
    struct lagom_mapping controller;
    job_of_child = "job";
    CHECK_EQUAL(lagom_region_control(&controller, "job", true, LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_OK);
    pid_t child = child_that_stays(join_as_told);
    CHECK(!lagom_region_retire(&controller) && exists(path));
    CHECK(lagom_region_controller_alive(&controller));
    kill_child(child);
    CHECK(lagom_region_retire(&controller) && !exists(path));
    child = child_that_stays(join_as_told); /* finds nothing and makes its own */
    CHECK(exists(path));
    lagom_region_leave(&controller, true);
    CHECK(exists(path));
    kill_child(child);
    unlink(path);
}

static void hold_the_judges_byte(void)
{
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && lagom_lock_try(fd, LAGOM_LOCK_JANITOR));
}

/* Stopped while it judged a file: whoever comes then gives up once, not fifty times. */
static void a_stopped_judge_holds_nobody_up(void)
{
    struct lagom_mapping late;
    job_of_child = "job";
    pid_t rank = child_that_stays(join_as_told), judge = child_that_stays(hold_the_judges_byte);
    kill(judge, SIGSTOP);
    double began = seconds();
    CHECK_EQUAL(lagom_region_join(&late, "job", LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_HELD);
    CHECK(seconds() - began < FAR_TOO_LONG);
    kill_child(judge);
    late = join_or_die("job");
    kill_child(rank);
    lagom_region_leave(&late, true);
}

/* ---- Containers -------------------------------------------------------------------------------------------------- */

/* In a PID namespace of its own, where it is process 1, as in a container; 77 = not allowed here. */
static pid_t in_a_container(void (*body)(void))
{
    pid_t outside = fork();
    if (outside != 0) {
        return outside;
    }
    if (unshare(CLONE_NEWPID) != 0) {
        _exit(77);
    }
    pid_t inside = fork();
    if (inside == 0) {
        CHECK_EQUAL(getpid(), 1);
        body();
        _exit(0);
    }
    close(gate[1]);
    _exit(status_of(inside));
}

static void join_and_wait(void)
{
    char byte;
    struct lagom_mapping mapping = join_or_die("job");
    CHECK_EQUAL(mapping.region->processes[mapping.process].pid, 1);
    alarm(600);
    while (lagom_region_processes_alive(&mapping) < 9) { /* told by locks: everybody's process id is the same */
        usleep(1000);
    }
    close(gate[1]);
    CHECK_EQUAL(read(gate[0], &byte, 1), 0);
}

static bool one_has_ended(void)
{
    siginfo_t child = {0};
    return waitid(P_ALL, 0, &child, WEXITED | WNOHANG | WNOWAIT) == 0 && child.si_pid != 0;
}

static void ranks_in_containers_find_each_other(void)
{
    pid_t children[8]; /* who all make the region at once */
    CHECK(pipe(gate) == 0);
    for (int i = 0; i < 8; i++) {
        children[i] = in_a_container(join_and_wait);
    }
    struct lagom_mapping mine = join_or_die("job");
    double end = seconds() + 600;
    while (lagom_region_processes_alive(&mine) < 9 && seconds() < end && !one_has_ended()) {
        usleep(1000);
    }
    uint32_t alive = lagom_region_processes_alive(&mine);
    close(gate[0]);
    close(gate[1]);
    int statuses = 0;
    for (int i = 0; i < 8; i++) {
        int status = status_of(children[i]);
        statuses = status > statuses ? status : statuses;
    }
    if (statuses == 77) {
        printf("  not seen: a PID namespace is not allowed here\n");
    } else {
        CHECK(alive == 9 && statuses == 0);
        CHECK_EQUAL(lagom_region_processes_alive(&mine), 1);
    }
    lagom_region_leave(&mine, true);
}

/* ---- Another user ------------------------------------------------------------------------------------------------ */

#define NOBODY 65534

static void as_nobody(void)
{
    struct lagom_mapping mapping, theirs;
    char mine[LAGOM_PATH_BYTES];
    CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    lagom_region_path("job", mine);
    CHECK(strcmp(mine, path) != 0);
    CHECK_EQUAL(lagom_region_control_path(&theirs, path), LAGOM_REGION_FOREIGN);
    CHECK_EQUAL(lagom_region_inspect(&theirs, path), LAGOM_REGION_FOREIGN);
    CHECK_EQUAL(lagom_region_remove_stale(path), LAGOM_REGION_FOREIGN);
    CHECK(open(path, O_RDONLY) < 0 && open(path, O_RDWR) < 0 && unlink(path) != 0 && chmod(path, 0666) != 0);
    mapping = join_or_die("job"); /* the same job name: a region of its own */
    CHECK_EQUAL(lagom_region_processes_alive(&mapping), 1);
    CHECK(strcmp(mapping.path, mine) == 0);
    lagom_region_leave(&mapping, true);
    CHECK(!exists(mine));
}

/* As /dev/shm is: anybody may make files, nobody removes another's. */
static void open_folder(char *folder)
{
    CHECK(mkdtemp(folder) != NULL && chmod(folder, 01777) == 0);
    setenv("LAGOM_SHM_DIR", folder, 1);
    lagom_region_path("job", path);
}

static void take_our_name(void)
{
    CHECK(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
    close(open(path, O_CREAT | O_RDWR, 0600));
}

static void two_users_share_nothing_but_the_folder(void)
{
    char folder[] = "/tmp/lagom-two-users-XXXXXX", *kept = strdup(getenv("LAGOM_SHM_DIR"));
    if (geteuid() != 0) {
        printf("  not seen: only root can become another user\n");
        free(kept);
        return;
    }
    open_folder(folder);
    struct lagom_mapping mine = join_or_die("job");
    pid_t child = fork();
    if (child == 0) {
        as_nobody();
        _exit(0);
    }
    CHECK_EQUAL(status_of(child), 0);
    CHECK(exists(path) && mine.region->header.magic == LAGOM_MAGIC);
    lagom_region_leave(&mine, true);
    kill_child(child_that_stays(take_our_name)); /* a squatter: refused, and not removed by us */
    CHECK_EQUAL(lagom_region_join(&mine, "job", LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_FOREIGN);
    CHECK(unlink(path) == 0 && rmdir(folder) == 0);
    setenv("LAGOM_SHM_DIR", kept, 1);
    lagom_region_path("job", path);
    free(kept);
}

int main(void)
{
    if (getenv("LAGOM_SHM_DIR") == NULL) {
        printf("LAGOM_SHM_DIR must name a folder for this test\n");
        return 77;
    }
    lagom_region_path("job", path);
    RUN(the_next_job_clears_what_killed_ones_left);
    RUN(what_a_power_cut_left_is_cleared);
    RUN(only_our_own_files_are_cleared);
    RUN(two_that_leave_at_once_leave_nothing);
    RUN(a_maker_is_waited_for);
    RUN(all_ranks_find_room_in_a_small_memory);
    RUN(a_controller_goes_only_where_no_rank_is);
    RUN(a_stopped_judge_holds_nobody_up);
    RUN(ranks_in_containers_find_each_other);
    RUN(two_users_share_nothing_but_the_folder);
    return 0;
}
