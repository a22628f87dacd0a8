/* SPDX-License-Identifier: Apache-2.0 */
/* shm_planted.c - thousands of files under names like ours, another user's or our own, in a process of thousands of
 * mappings: making a region stays within the two seconds that init may wait. What is counted is what this process spent,
 * which another's work on the machine does not change. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "shm/file_lock.h"
#include "tests/native/check.h"

#define FILES 5000u
#define LINKS 501u
#define MAPPINGS 3000u
#define BOUND_S 2.0
#define OTHER_USER 65534

static const char *folder;
static char path[LAGOM_PATH_BYTES];

/* Half of them as if a region was being made there, a quarter as if it was this very one. */
static void name_of(uint32_t number, char out[LAGOM_PATH_BYTES + 64])
{
    char other[LAGOM_PATH_BYTES];
    snprintf(other, sizeof(other), "%s/lagom-%u-%016x", folder, (unsigned)geteuid(), number);
    const char *base = number % 4 == 0 ? path : other;
    if (number % 2 == 0) {
        snprintf(out, LAGOM_PATH_BYTES + 64, "%s.tmp.%016x", base, number);
    } else {
        snprintf(out, LAGOM_PATH_BYTES + 64, "%s", base);
    }
}

static void plant(uint32_t from, uint32_t to, uid_t owner)
{
    char name[LAGOM_PATH_BYTES + 64];
    for (uint32_t i = from; i < to; i++) {
        name_of(i, name);
        int fd = open(name, O_CREAT | O_EXCL | O_RDWR, 0600);
        CHECK(fd >= 0 && fchown(fd, owner, (gid_t)-1) == 0);
        close(fd);
    }
}

static uint32_t still_there(uint32_t from, uint32_t to)
{
    char name[LAGOM_PATH_BYTES + 64];
    uint32_t count = 0;
    for (uint32_t i = from; i < to; i++) {
        name_of(i, name);
        count += access(name, F_OK) == 0;
    }
    return count;
}

static void clear_away(uint32_t from, uint32_t to)
{
    char name[LAGOM_PATH_BYTES + 64];
    for (uint32_t i = from; i < to; i++) {
        name_of(i, name);
        CHECK(unlink(name) == 0 || errno == ENOENT);
    }
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

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static double paused;

/* In the C library's place: what the code under test sleeps, of a pause no more than counts there. */
int nanosleep(const struct timespec *wanted, struct timespec *left)
{
    double began = seconds_of(CLOCK_MONOTONIC);
    int failure = clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, left);
    double took = seconds_of(CLOCK_MONOTONIC) - began;
    paused += took < 0.05 ? took : 0.05;
    return failure;
}

static void join_in_time(void)
{
    map_many();
    paused = 0.0;
    double began = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    struct lagom_mapping mapping = join_or_die("planted");
    double spent = paused + seconds_of(CLOCK_THREAD_CPUTIME_ID) - began;
    printf("  spent %.3f s\n", spent);
    CHECK(spent < 1.25 * BOUND_S);
    lagom_region_leave(&mapping, true);
}

static void in_a_child(void (*body)(void))
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        body();
        exit(0);
    }
    CHECK_EQUAL(status_of(child), 0);
}

static void another_users(void)
{
    if (geteuid() != 0) {
        printf("  not seen: only root can play another user\n");
        return;
    }
    plant(1, FILES, OTHER_USER);
    plant(FILES, FILES + 4, geteuid()); /* what a killed job of ours left is still cleared away */
    in_a_child(join_in_time);
    CHECK_EQUAL(still_there(1, FILES), FILES - 1);
    CHECK_EQUAL(still_there(FILES, FILES + 4), 0);
    clear_away(1, FILES);
}

static void our_own(void)
{
    plant(1, FILES, geteuid());
    in_a_child(join_in_time);
    CHECK(still_there(1, FILES) < FILES - 1);
    clear_away(1, FILES);
}

static void hold_a_region(void)
{
    join_or_die("held");
}

/* Where links to another's file may be made: one living region under thousands of names. */
static void links_to_our_own(void)
{
    char held[LAGOM_PATH_BYTES], name[LAGOM_PATH_BYTES + 64];
    CHECK(lagom_region_path("held", held));
    pid_t holder = child_that_stays(hold_a_region);
    for (uint32_t i = 1; i < FILES; i++) {
        name_of(i, name);
        CHECK(link(held, name) == 0);
    }
    in_a_child(join_in_time);
    CHECK_EQUAL(still_there(1, FILES), FILES - 1);
    clear_away(1, FILES);
    kill_child(holder);
    CHECK(unlink(held) == 0);
}

/* Symbolic links under names like ours are none of our files: they take no place among those that one job removes. In
 * whatever order the folder is read, they come before one of the two at least. */
static void symbolic_links_hide_no_file_of_ours(void)
{
    char name[LAGOM_PATH_BYTES + 64];
    plant(1, 2, geteuid());
    for (uint32_t i = 2; i < LINKS; i++) {
        name_of(i, name);
        CHECK(symlink("/nowhere", name) == 0);
    }
    plant(LINKS, LINKS + 1, geteuid());
    in_a_child(join_in_time);
    CHECK_EQUAL(still_there(1, 2) + still_there(LINKS, LINKS + 1), 0);
    clear_away(2, LINKS);
}

int main(void)
{
    folder = getenv("LAGOM_SHM_DIR");
    if (folder == NULL) {
        printf("LAGOM_SHM_DIR must name a folder for this test\n");
        return 77;
    }
    CHECK(lagom_region_path("planted", path));
    RUN(another_users);
    RUN(our_own);
    RUN(links_to_our_own);
    RUN(symbolic_links_hide_no_file_of_ours);
    return 0;
}
