/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_limits.c - a limit of the process that the kernel answers by a signal: the job goes on, stock, one sentence says
 * why, and no file is left. */
#include <dirent.h>
#include <sys/resource.h>

#include "tests/native/plugin_harness.h"

#define COMM 0x71u

static struct plugin plugin;

static void limit_files_to(rlim_t bytes)
{
    const struct rlimit limit = {bytes, bytes};
    const struct sigaction plain = {.sa_handler = SIG_DFL}; /* Python ignores it, and so would a child of Python's */
    CHECK(sigaction(SIGXFSZ, &plain, NULL) == 0 && setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

static int files_in_folder(void)
{
    const struct dirent *entry;
    int count = 0;
    DIR *folder = opendir(case_folder);
    CHECK(folder != NULL);
    while ((entry = readdir(folder)) != NULL) {
        count += strncmp(entry->d_name, "lagom-", 6) == 0;
    }
    closedir(folder);
    return count;
}

/* What the plugin says on stderr while it makes a communicator, which is none of ours. */
static const char *said_while_falling_back(void)
{
    static char text[8192];
    int ends[2], before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    CHECK(before >= 0 && pipe(ends) == 0 && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
    CHECK(dup2(before, STDERR_FILENO) == STDERR_FILENO && close(ends[1]) == 0);
    ssize_t bytes = read(ends[0], text, sizeof(text) - 1);
    text[bytes > 0 ? bytes : 0] = '\0';
    CHECK(rank.context == NULL);
    return text;
}

static void falls_back_where_files_may_have(rlim_t bytes)
{
    sigset_t pending;
    limit_files_to(bytes);
    const char *text = said_while_falling_back();
    const char *sentence = strstr(text, "not tuned, NCCL runs stock");
    CHECK(sentence != NULL && strstr(sentence, "limit") != NULL && strstr(sentence, "ulimit -f") != NULL);
    CHECK(strstr(sentence + 1, "not tuned") == NULL);
    CHECK_EQUAL(files_in_folder(), 0);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 0);
}

static void no_byte(void)
{
    falls_back_where_files_may_have(0);
}

static void one_megabyte(void)
{
    falls_back_where_files_may_have(MIB);
}

static void one_byte_too_few(void)
{
    falls_back_where_files_may_have(sizeof(struct lagom_region) - 1);
}

static void in_mode_replay(void)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/config", case_folder);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fputs("lagom-config 1\ncommunicator ranks=2 nodes=1 ordinal=0\nrule allgather 0 - nc=3\nend\n", file);
    fclose(file);
    setenv("LAGOM_MODE", "replay", 1);
    setenv("LAGOM_CONFIG", path, 1);
    falls_back_where_files_may_have(7 * MIB);
}

static void just_enough(void)
{
    plugin = load_plugin();
    limit_files_to(sizeof(struct lagom_region));
    struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
    CHECK(rank.context != NULL && files_in_folder() == 1);
    end_rank(&rank);
}

/* Another rank has made the region: nothing has to grow. */
static void where_the_region_is_there_already(void)
{
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    fflush(NULL);
    pid_t other = fork();
    if (other == 0) {
        plugin = load_plugin();
        make_rank(&plugin, 6, COMM, 2, 1);
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    limit_files_to(0);
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
    CHECK(rank.context != NULL);
    end_rank(&rank);
    kill(other, SIGKILL);
    CHECK(waitpid(other, NULL, 0) == other);
}

/* A line to a stderr that is a file, where files may not grow: the line is lost, nobody is killed. */
static void a_line_beyond_the_limit(void)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/stderr", case_folder);
    int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10), out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 10);
    int file = open(path, O_WRONLY | O_CREAT, 0600);
    CHECK(before >= 0 && out >= 0 && file >= 0);
    fflush(NULL);
    CHECK(dup2(file, STDERR_FILENO) == STDERR_FILENO && dup2(file, STDOUT_FILENO) == STDOUT_FILENO);
    limit_files_to(0);
    plugin = load_plugin();
    make_rank(&plugin, 6, COMM, 2, 1);
    CHECK(dup2(before, STDERR_FILENO) == STDERR_FILENO && dup2(out, STDOUT_FILENO) == STDOUT_FILENO);
    struct stat written;
    CHECK(stat(path, &written) == 0 && written.st_size == 0);
}

int main(void)
{
    int failures = 0;
    failures += RUN(no_byte);
    failures += RUN(one_megabyte);
    failures += RUN(one_byte_too_few);
    failures += RUN(in_mode_replay);
    failures += RUN(just_enough);
    failures += RUN(where_the_region_is_there_already);
    failures += RUN(a_line_beyond_the_limit);
    return failures != 0;
}
