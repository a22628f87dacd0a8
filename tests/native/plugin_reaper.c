/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_reaper.c - who becomes the controller's parent: never a process that the job could wait in for it. A rank that is
 * process 1 of its PID namespace or a child subreaper, or has a rank among its ancestors, starts no controller and says so; a
 * launcher that is one and waits for all its children comes back, because the controller ends when no rank is there. */
#include <errno.h>
#include <sched.h>
#include <sys/prctl.h>

#include "tests/native/plugin_harness.h"

#define COMM 0x9eau
#define HANG_SECONDS 60
#define NOT_PERMITTED 77

static struct plugin plugin;

static void path_in_folder(char out[256], const char *name)
{
    snprintf(out, 256, "%s/%s", case_folder, name);
}

/* Instead of Python: a controller, which lives as long as the region does. */
static void fake_python(void)
{
    char path[256], key[LAGOM_PATH_BYTES], region[LAGOM_PATH_BYTES];
    lagom_job_key(key, 0);
    lagom_region_path(key, region);
    path_in_folder(path, "python");
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fprintf(file, "#!/bin/sh\necho $$ > %s/started\nwhile [ -e %s ]; do sleep 0.1; done\n", case_folder, region);
    fclose(file);
    CHECK(chmod(path, 0700) == 0);
    setenv("LAGOM_PYTHON", path, 1);
    setenv("LAGOM_CONTROLLER", "auto", 1);
}

static bool was_started(int milliseconds)
{
    char path[256];
    path_in_folder(path, "started");
    for (int waited = 0; waited < milliseconds && access(path, F_OK) != 0; waited += 10) {
        usleep(10000);
    }
    return access(path, F_OK) == 0;
}

/* As a rank does that reaps whatever ended before it goes on: it is still a rank meanwhile. */
static void wait_for_all_children(void)
{
    while (wait(NULL) > 0 || errno == EINTR) {
    }
}

static void a_rank_that_waits_for_all(void)
{
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
    CHECK(rank.context != NULL);
    bool started = was_started(300);
    wait_for_all_children();
    CHECK(!started);
    CHECK(strstr(map_region()->processes[0].remark, "lagom run") != NULL);
    end_rank(&rank);
}

static int status_of_bounded(pid_t child)
{
    int status = 0;
    for (int i = 0; i < HANG_SECONDS * 100; i++) {
        if (waitpid(child, &status, WNOHANG) == child) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return 128 + SIGKILL;
}

/* `body` as process 1 of a PID namespace. */
static int status_of_process_1(void (*body)(void))
{
    fflush(NULL);
    pid_t outside = fork();
    if (outside == 0) {
        if (unshare(CLONE_NEWPID) != 0) {
            _exit(NOT_PERMITTED);
        }
        pid_t first = fork();
        if (first == 0) {
            CHECK_EQUAL(getpid(), 1);
            body();
            exit(0);
        }
        _exit(first > 0 ? status_of_bounded(first) : NOT_PERMITTED);
    }
    int status = 0;
    CHECK(waitpid(outside, &status, 0) == outside && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void check_as_process_1(void (*body)(void))
{
    int status = status_of_process_1(body);
    if (status == NOT_PERMITTED) {
        printf("  not seen: a PID namespace is not permitted here\n");
        return;
    }
    CHECK_EQUAL(status, 0);
}

static void a_rank_that_is_process_1(void)
{
    fake_python();
    check_as_process_1(a_rank_that_waits_for_all);
}

static void subreaper(void)
{
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    a_rank_that_waits_for_all();
}

static int status_of_child(void (*body)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        body();
        exit(0);
    }
    return status_of_bounded(child);
}

static void a_rank_that_is_a_subreaper(void)
{
    fake_python();
    CHECK_EQUAL(status_of_child(subreaper), 0);
}

static void rank_without_children(void)
{
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
    CHECK(was_started(HANG_SECONDS * 1000));
    end_rank(&rank);
}

/* torchrun in a container, or a launcher under a supervisor: no rank itself. */
static void launcher_that_waits_for_all(void)
{
    fflush(NULL);
    pid_t rank = fork();
    if (rank == 0) {
        rank_without_children();
        exit(0);
    }
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    wait_for_all_children();
    CHECK(was_started(0));
}

static void a_launcher_that_is_process_1(void)
{
    fake_python();
    check_as_process_1(launcher_that_waits_for_all);
}

static void a_launcher_that_is_a_subreaper(void)
{
    fake_python();
    CHECK_EQUAL(status_of_child(launcher_that_waits_for_all), 0);
}

/* The first rank of a node is the launcher of the others, and replays or is forbidden to start one; they are not. */
static void first_rank_is_the_launcher(void)
{
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0);
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t other = fork();
    if (other == 0) {
        CHECK(read(ready[0], &byte, 1) == 1);
        plugin = load_plugin();
        struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
        CHECK(!was_started(300));
        CHECK(strstr(map_region()->processes[1].remark, "lagom run") != NULL);
        end_rank(&rank);
        exit(0);
    }
    setenv("LAGOM_CONTROLLER", "none", 1);
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
    CHECK(write(ready[1], "x", 1) == 1);
    wait_for_all_children();
    end_rank(&rank);
}

static void a_rank_whose_parent_is_a_rank(void)
{
    fake_python();
    CHECK_EQUAL(status_of_child(first_rank_is_the_launcher), 0);
}

int main(void)
{
    int failures = 0;
    failures += RUN(a_rank_that_is_process_1);
    failures += RUN(a_rank_that_is_a_subreaper);
    failures += RUN(a_launcher_that_is_process_1);
    failures += RUN(a_launcher_that_is_a_subreaper);
    failures += RUN(a_rank_whose_parent_is_a_rank);
    return failures != 0;
}
