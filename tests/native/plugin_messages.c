/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_messages.c - what becomes of the plugin's lines where stderr is closed, full, stopped, or not meant for them: no
 * init waits, no signal is raised, no byte of anybody's data is written over, and what was lost is counted. */
#include <arpa/inet.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>

#include "tests/native/plugin_harness.h"

#define LINE "lagom: LAGOM_MODE must be"

static struct plugin plugin;

/* The first communicator says one line: this mode does not exist. */
static void say_a_line(void)
{
    setenv("LAGOM_MODE", "no-such-mode", 1);
    plugin = load_plugin();
    make_rank(&plugin, 6, 1, 2, 1);
}

/* With `fd` as stderr, of which -1 = none. Ours comes back: the checks speak there. */
static void say_a_line_to(int fd)
{
    int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    CHECK(before >= 0);
    CHECK(fd < 0 ? close(STDERR_FILENO) == 0 : dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    say_a_line();
    CHECK(dup2(before, STDERR_FILENO) == STDERR_FILENO);
    close(before);
}

static void path_in_folder(char out[256], const char *name)
{
    snprintf(out, 256, "%s/%s", case_folder, name);
}

static int fill(int fd)
{
    static const char much[65536];
    int bytes = 0, flags = fcntl(fd, F_GETFL);
    ssize_t written;
    CHECK(fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0);
    for (size_t part = sizeof(much); part > 0; part = written > 0 ? part : part / 2) {
        written = write(fd, much, part);
        bytes += written > 0 ? (int)written : 0;
    }
    CHECK(fcntl(fd, F_SETFL, flags) == 0);
    return bytes;
}

static void empty(int fd, int bytes)
{
    static char much[65536];
    while (bytes > 0) {
        ssize_t count = read(fd, much, (size_t)bytes < sizeof(much) ? (size_t)bytes : sizeof(much));
        CHECK(count > 0);
        bytes -= (int)count;
    }
}

static const char *read_line(int fd)
{
    static char text[8192];
    ssize_t count = read(fd, text, sizeof(text) - 1);
    text[count > 0 ? count : 0] = '\0';
    return text;
}

/* ---- Pipes ------------------------------------------------------------------------------------------------------ */

static void a_pipe_takes_it(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    say_a_line_to(ends[1]);
    close(ends[1]);
    CHECK(strncmp(read_line(ends[0]), LINE, strlen(LINE)) == 0);
}

/* A C program, whose SIGPIPE is as it was at its start. */
static void a_closed_pipe_does_not_kill(void)
{
    int ends[2];
    sigset_t pending;
    CHECK(pipe(ends) == 0 && signal(SIGPIPE, SIG_DFL) != SIG_ERR);
    close(ends[0]);
    say_a_line_to(ends[1]);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 0);
}

/* One that holds SIGPIPE back itself, and has one waiting: that is its own. */
static void a_pending_signal_stays(void)
{
    int ends[2];
    sigset_t set, pending;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    CHECK(pipe(ends) == 0 && pthread_sigmask(SIG_BLOCK, &set, NULL) == 0 && raise(SIGPIPE) == 0);
    close(ends[0]);
    say_a_line_to(ends[1]);
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &set) == 0 && sigismember(&set, SIGPIPE) == 1);
}

static void a_full_pipe_is_not_waited_for(void)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    int bytes = fill(ends[1]), flags = fcntl(ends[1], F_GETFL);
    say_a_line_to(ends[1]);
    CHECK_EQUAL(fcntl(ends[1], F_GETFL), flags); /* the program's own writes wait as before */
    close(ends[1]);
    empty(ends[0], bytes);
    CHECK_EQUAL(read(ends[0], &bytes, 1), 0);
}

static void *write_for_ever(void *fd)
{
    static const char much[65536];
    while (write((int)(intptr_t)fd, much, sizeof(much)) > 0) {
    }
    return NULL;
}

/* Whoever asked the pipe whether there is room may find none when he writes. */
static void nor_is_one_that_another_thread_fills(void)
{
    int ends[2];
    pthread_t writer;
    CHECK(pipe(ends) == 0 && signal(SIGPIPE, SIG_IGN) != SIG_ERR);
    fill(ends[1]);
    CHECK(pthread_create(&writer, NULL, write_for_ever, (void *)(intptr_t)ends[1]) == 0);
    usleep(50000);
    say_a_line_to(ends[1]);
    close(ends[0]); /* ends the writer */
    pthread_join(writer, NULL);
}

static void fake_controller(void)
{
    char path[256];
    path_in_folder(path, "python");
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs("#!/bin/sh\n", file) >= 0 && fclose(file) == 0 && chmod(path, 0700) == 0);
    setenv("LAGOM_PYTHON", path, 1);
    setenv("LAGOM_CONTROLLER", "auto", 1);
}

/* The line of the start finds a full pipe, that of the end does not. */
static void what_was_dropped_is_counted(void)
{
    int ends[2], go[2], status;
    char byte;
    fake_controller();
    CHECK(pipe(ends) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, go) == 0);
    int bytes = fill(ends[1]);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        plugin = load_plugin();
        make_rank(&plugin, 6, 1, 2, 1);
        CHECK(write(go[1], "x", 1) == 1 && read(go[1], &byte, 1) == 1);
        exit(0);
    }
    close(ends[1]);
    CHECK(read(go[0], &byte, 1) == 1);
    empty(ends[0], bytes);
    CHECK(write(go[0], "x", 1) == 1);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    const char *text = read_line(ends[0]);
    CHECK(strstr(text, "stderr could not take them: 1\n") != NULL && strstr(text, "lagom: ended;") != NULL);
}

/* ---- NCCL's log ------------------------------------------------------------------------------------------------- */

static uint32_t in_log, log_may_go;
static char logged[8192];

static void slow_log(int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
    va_list arguments;
    (void)level;
    (void)flags;
    (void)file;
    (void)line;
    va_start(arguments, format);
    size_t used = strlen(logged);
    vsnprintf(logged + used, sizeof(logged) - used, format, arguments);
    va_end(arguments);
    __atomic_store_n(&in_log, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&log_may_go, __ATOMIC_ACQUIRE) == 0) {
        usleep(1000);
    }
}

static void *enter_with_slow_log(void *unused)
{
    void *context = NULL;
    CHECK(plugin.v6->init(&context, 9, 2, 1, slow_log, NULL, NULL) == 0);
    hold(NULL, context);
    return unused;
}

/* NCCL writes its log to a stream of the user's choice, which may stand still too: then only who writes waits. */
static void nobody_waits_for_anothers_log(void)
{
    pthread_t first;
    plugin = load_plugin();
    CHECK(pthread_create(&first, NULL, enter_with_slow_log, NULL) == 0);
    while (__atomic_load_n(&in_log, __ATOMIC_ACQUIRE) == 0) {
        usleep(1000);
    }
    struct rank second = make_rank(&plugin, 6, 10, 2, 1);
    CHECK(second.context != NULL);
    end_rank(&second);
    __atomic_store_n(&log_may_go, 1, __ATOMIC_RELEASE);
    pthread_join(first, NULL);
}

static void nccls_log_gets_what_stderr_does_not(void)
{
    int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    void *context = NULL;
    fake_controller();
    log_may_go = 1;
    plugin = load_plugin();
    close(STDERR_FILENO);
    CHECK(plugin.v6->init(&context, 9, 2, 1, slow_log, NULL, NULL) == 0);
    dup2(before, STDERR_FILENO);
    hold(NULL, context);
    CHECK(strstr(logged, "not written to stderr: plan: tune while it runs") != NULL);
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

static void say_a_line_into(int open_flags, const char *content, size_t bytes, off_t position)
{
    char path[256], text[4096];
    path_in_folder(path, "file");
    int maker = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(maker >= 0 && write(maker, content, bytes) == (ssize_t)bytes);
    int fd = open(path, open_flags);
    CHECK(fd >= 0 && lseek(fd, position, SEEK_SET) == position);
    say_a_line_to(fd);
    close(fd);
    int reader = open(path, O_RDONLY);
    CHECK_EQUAL(read(reader, text, sizeof(text)), (ssize_t)bytes);
    CHECK(memcmp(text, content, bytes) == 0);
}

/* In a process of its own: one says the line only once. */
static void check_file(int open_flags, const char *content, size_t bytes, off_t position)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        say_a_line_into(open_flags, content, bytes, position);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
}

static const char words[] = "a warning of the program's\n";
static const char data[64] = "words that are\0 data";
#define WORDS (sizeof(words) - 1)

/* What only this process has may be a file of its own, whatever is in it. */
static void a_data_file_stays_as_it_is(void)
{
    static const int ways[] = {O_RDWR, O_WRONLY, O_WRONLY | O_APPEND};
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        check_file(ways[i], data, sizeof(data), sizeof(data));
        check_file(ways[i], data, sizeof(data), 3);
        check_file(ways[i], words, WORDS, WORDS);
        check_file(ways[i], "", 0, 0);
    }
}

/* Its locks go when any descriptor of it is closed. */
static void and_locked_as_it_is(void)
{
    char path[256];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    path_in_folder(path, "locked");
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    CHECK(fd >= 0 && write(fd, words, WORDS) == (ssize_t)WORDS && fcntl(fd, F_SETLK, &lock) == 0);
    int before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    CHECK(dup2(fd, STDERR_FILENO) == STDERR_FILENO);
    say_a_line();
    int status;
    pid_t child = fork();
    if (child == 0) {
        _exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_WRLCK ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(dup2(before, STDERR_FILENO) == STDERR_FILENO);
    CHECK_EQUAL(status, 0);
}

/* `> file 2>&1`: still empty, and asked for in so many words. */
static void one_file_for_both_takes_it(void)
{
    char path[256], text[256] = "";
    path_in_folder(path, "both");
    int fd = open(path, O_RDWR | O_CREAT, 0600), writer = open(path, O_WRONLY), before = dup(STDOUT_FILENO);
    CHECK(fd >= 0 && writer >= 0);
    fflush(NULL);
    CHECK(dup2(writer, STDOUT_FILENO) == STDOUT_FILENO);
    say_a_line_to(writer);
    CHECK(dup2(before, STDOUT_FILENO) == STDOUT_FILENO);
    CHECK(read(fd, text, sizeof(text) - 1) > 0 && strncmp(text, LINE, strlen(LINE)) == 0);
}

/* As torchrun redirects its workers: still empty, but the parent holds it too. */
static void one_that_the_parent_gave_takes_it(void)
{
    char path[256], text[256] = "";
    int status;
    path_in_folder(path, "given");
    int reader = open(path, O_RDONLY | O_CREAT, 0600), fd = open(path, O_WRONLY);
    CHECK(reader >= 0 && fd >= 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        say_a_line_to(fd);
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_EQUAL(status, 0);
    CHECK(read(reader, text, sizeof(text) - 1) > 0 && strncmp(text, LINE, strlen(LINE)) == 0);
}

/* Opened close-on-exec, it cannot be what this process was started with. */
static void what_came_after_the_start_is_not_stderr(void)
{
    int ends[2], before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    char byte;
    CHECK(pipe(ends) == 0 && dup3(ends[1], STDERR_FILENO, O_CLOEXEC) == STDERR_FILENO);
    say_a_line();
    CHECK(dup2(before, STDERR_FILENO) == STDERR_FILENO);
    close(ends[1]);
    CHECK_EQUAL(read(ends[0], &byte, 1), 0);
}

/* pipe() of a program that was started without stderr and without stdin or stdout: its ends are the lowest free numbers. */
static void check_own_pipe(int reading_end)
{
    int ends[2], before = fcntl(reading_end, F_DUPFD_CLOEXEC, 10), err = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    char byte;
    fflush(NULL);
    CHECK(pipe(ends) == 0 && dup2(ends[0], reading_end) == reading_end);
    CHECK(dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
    say_a_line();
    CHECK(dup2(before, reading_end) == reading_end && dup2(err, STDERR_FILENO) == STDERR_FILENO);
    close(ends[1]);
    CHECK_EQUAL(read(ends[0], &byte, 1), 0);
}

static void a_pipe_of_its_own_stays_as_it_is(void)
{
    check_own_pipe(STDOUT_FILENO);
}

static void read_with_stdin_too(void)
{
    check_own_pipe(STDIN_FILENO);
}

static void none_is_none(void)
{
    say_a_line_to(-1);
}

/* ---- Sockets and terminals -------------------------------------------------------------------------------------- */

static void a_socket_of_this_machine_takes_it(void)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    say_a_line_to(ends[0]);
    CHECK(strncmp(read_line(ends[1]), LINE, strlen(LINE)) == 0);
}

static void a_full_one_is_not_waited_for(void)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    fill(ends[0]);
    say_a_line_to(ends[0]);
}

/* NCCL's and MPI's own are of this kind, and not close-on-exec. */
static void a_connection_stays_as_it_is(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(address);
    char byte;
    int listener = socket(AF_INET, SOCK_STREAM, 0), ours = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&address, bytes) == 0 && listen(listener, 1) == 0);
    CHECK(getsockname(listener, (struct sockaddr *)&address, &bytes) == 0);
    CHECK(connect(ours, (struct sockaddr *)&address, bytes) == 0);
    int theirs = accept(listener, NULL, NULL);
    CHECK(theirs >= 0);
    say_a_line_to(ours);
    close(ours);
    CHECK_EQUAL(read(theirs, &byte, 1), 0);
}

static int open_terminal(int *controlling)
{
    char name[128];
    *controlling = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(*controlling >= 0 && grantpt(*controlling) == 0 && unlockpt(*controlling) == 0);
    CHECK(ptsname_r(*controlling, name, sizeof(name)) == 0);
    int terminal = open(name, O_RDWR | O_NOCTTY);
    CHECK(terminal >= 0);
    return terminal;
}

static void a_terminal_takes_it(void)
{
    int controlling, terminal = open_terminal(&controlling);
    say_a_line_to(terminal);
    CHECK(strncmp(read_line(controlling), LINE, strlen(LINE)) == 0);
}

/* Ctrl-S. */
static void a_stopped_one_is_not_waited_for(void)
{
    int controlling, waiting = 0, terminal = open_terminal(&controlling);
    CHECK(tcflow(terminal, TCOOFF) == 0);
    say_a_line_to(terminal);
    CHECK(ioctl(controlling, FIONREAD, &waiting) == 0);
    CHECK_EQUAL(waiting, 0);
}

/* 0 = `body` came to its end, else the signal that has stopped it: in a process group that is not the terminal's, where
 * the terminal stops such groups as they write (stty tostop). */
static int stopped_in_background(void (*body)(int terminal), int terminal)
{
    int status, ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        CHECK(setpgid(0, 0) == 0 && write(ready[1], "x", 1) == 1);
        body(terminal);
        exit(0);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(waitpid(child, &status, WUNTRACED) == child);
    if (!WIFSTOPPED(status)) {
        CHECK_EQUAL(status, 0);
        return 0;
    }
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    return WSTOPSIG(status);
}

static void write_as_anybody(int terminal)
{
    CHECK(write(terminal, "x", 1) == 1);
}

/* A session of its own, with the terminal as its controlling one. */
static void a_job_in_the_background(void)
{
    struct termios settings;
    int controlling, terminal = open_terminal(&controlling);
    const struct sigaction plain = {.sa_handler = SIG_DFL};
    CHECK(sigaction(SIGTTOU, &plain, NULL) == 0);
    CHECK(setsid() >= 0 && ioctl(terminal, TIOCSCTTY, 0) == 0 && tcgetattr(terminal, &settings) == 0);
    settings.c_lflag |= TOSTOP;
    CHECK(tcsetattr(terminal, TCSANOW, &settings) == 0);
    if (stopped_in_background(write_as_anybody, terminal) != SIGTTOU) {
        printf("  not seen: this kernel stops nobody who writes from the background\n");
        exit(0);
    }
    CHECK_EQUAL(stopped_in_background(say_a_line_to, terminal), 0);
    CHECK(strncmp(read_line(controlling), LINE, strlen(LINE)) == 0);
    exit(0);
}

static void a_background_job_is_not_stopped(void)
{
    int status;
    fflush(NULL);
    pid_t leader = fork();
    if (leader == 0) {
        a_job_in_the_background();
    }
    CHECK(waitpid(leader, &status, 0) == leader);
    CHECK_EQUAL(status, 0);
}

int main(void)
{
    int failures = 0;
    failures += RUN(a_pipe_takes_it);
    failures += RUN(a_closed_pipe_does_not_kill);
    failures += RUN(a_pending_signal_stays);
    failures += RUN(a_full_pipe_is_not_waited_for);
    failures += RUN(nor_is_one_that_another_thread_fills);
    failures += RUN(what_was_dropped_is_counted);
    failures += RUN(nobody_waits_for_anothers_log);
    failures += RUN(nccls_log_gets_what_stderr_does_not);
    failures += RUN(one_file_for_both_takes_it);
    failures += RUN(one_that_the_parent_gave_takes_it);
    failures += RUN(a_data_file_stays_as_it_is);
    failures += RUN(and_locked_as_it_is);
    failures += RUN(a_pipe_of_its_own_stays_as_it_is);
    failures += RUN(read_with_stdin_too);
    failures += RUN(what_came_after_the_start_is_not_stderr);
    failures += RUN(none_is_none);
    failures += RUN(a_socket_of_this_machine_takes_it);
    failures += RUN(a_full_one_is_not_waited_for);
    failures += RUN(a_connection_stays_as_it_is);
    failures += RUN(a_terminal_takes_it);
    failures += RUN(a_stopped_one_is_not_waited_for);
    failures += RUN(a_background_job_is_not_stopped);
    return failures != 0;
}
