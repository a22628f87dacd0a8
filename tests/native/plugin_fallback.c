/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_fallback.c - falling back to NCCL: whatever is missing, damaged or hostile before the first commit, NCCL
 * gets its own table and channel count back byte for byte, its own chunk, and success. */
#include "shm/file_lock.h"
#include "tests/native/plugin_harness.h"

#define COMM 0x5151u
#define SEEDS 1000

static struct plugin plugin;

static char logged[4096];

static void logs_to_memory(int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)flags;
    (void)file;
    (void)line;
    size_t used = strlen(logged);
    used += (size_t)snprintf(logged + used, sizeof(logged) - used, "%d:", level);
    vsnprintf(logged + used, sizeof(logged) - used, format, arguments);
    va_end(arguments);
    strncat(logged, "\n", sizeof(logged) - strlen(logged) - 1);
}

/* A communicator of NCCL 2.30 that is told nothing useful: stock from the first call to the last. */
static void expect_stock(void)
{
    void *context = &context;
    plugin = load_plugin();
    CHECK(plugin.v6->init(&context, COMM, 8, 1, logs_to_memory, NULL, NULL) == 0);
    struct rank rank = {.plugin = plugin, .api = 6, .context = context};
    hold(NULL, context);
    for (int i = 0; i < 2000; i++) {
        call(&rank, i % LAGOM_FUNCTIONS, (size_t)i * 4096);
        CHECK(untouched(&rank));
        CHECK_EQUAL(chunk_of(&rank, i % LAGOM_FUNCTIONS, LAGOM_RING, LAGOM_SIMPLE, 2 * MIB), 2 * MIB);
    }
    end_rank(&rank);
}

static void region_path(char path[LAGOM_PATH_BYTES])
{
    char key[LAGOM_PATH_BYTES];
    lagom_job_key(key, 0);
    lagom_region_path(key, path);
}

static void mode_off(void)
{
    setenv("LAGOM_MODE", "off", 1);
    expect_stock();
    char path[LAGOM_PATH_BYTES];
    region_path(path);
    CHECK(access(path, F_OK) != 0); /* it does nothing at all */
    CHECK(logged[0] == '\0');
}

static void an_unknown_mode(void)
{
    setenv("LAGOM_MODE", "turbo", 1);
    expect_stock();
    CHECK(strstr(logged, "LAGOM_MODE") != NULL);
}

static void no_controller_comes(void)
{
    expect_stock();
    CHECK(strstr(logged, "loaded v") != NULL && strstr(logged, "mode tune") != NULL);
}

static void no_folder_for_the_region(void)
{
    setenv("LAGOM_SHM_DIR", "/nonexistent/lagom", 1);
    expect_stock();
    CHECK(strstr(logged, "2:lagom: this job is not tuned") != NULL); /* one warning, with a reason */
}

static void a_folder_that_cannot_be_written(void)
{
    setenv("LAGOM_SHM_DIR", "/proc", 1);
    expect_stock();
    CHECK(strstr(logged, "this job is not tuned") != NULL);
}

static void put_file(const void *bytes, size_t length, mode_t mode)
{
    char path[LAGOM_PATH_BYTES];
    region_path(path);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, bytes, length) == (ssize_t)length);
    CHECK(fchmod(fd, mode) == 0);
    close(fd);
}

static void a_file_of_random_bytes(void)
{
    static uint32_t noise[MIB];
    for (size_t i = 0; i < MIB; i++) {
        noise[i] = (uint32_t)i * 2654435761u;
    }
    put_file(noise, sizeof(noise), 0600);
    expect_stock();
    CHECK(strstr(logged, "this job is not tuned") != NULL);
}

static void a_truncated_file(void)
{
    const struct lagom_header header = {.magic = LAGOM_MAGIC,
                                        .protocol_version = LAGOM_PROTOCOL_VERSION,
                                        .header_bytes = sizeof(header),
                                        .region_bytes = sizeof(struct lagom_region),
                                        .owner_uid = geteuid(),
                                        .boot_hash = lagom_boot_hash()};
    put_file(&header, sizeof(header), 0600);
    expect_stock();
}

/* Held by a job of that version; were it not, ours would take its place. */
static void put_another_version(void)
{
    static struct lagom_region region;
    region.header = (struct lagom_header){.magic = LAGOM_MAGIC, .protocol_version = 99};
    put_file(&region, sizeof(region), 0600);
}

/* Somebody lives in it: it is theirs. */
static void another_version(void)
{
    char path[LAGOM_PATH_BYTES];
    int ready[2];
    put_another_version();
    region_path(path);
    CHECK(pipe(ready) == 0);
    pid_t holder = fork();
    if (holder == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LAGOM_LOCK_PROCESS, .l_len = 1};
        CHECK(fcntl(open(path, O_RDWR), F_SETLK, &lock) == 0);
        CHECK(write(ready[1], "r", 1) == 1);
        pause();
    }
    char byte;
    CHECK(read(ready[0], &byte, 1) == 1);
    expect_stock();
    CHECK(strstr(logged, "this job is not tuned") != NULL);
    CHECK(kill(holder, SIGKILL) == 0 && waitpid(holder, NULL, 0) == holder);
}

/* Nobody does: it is what a job of an earlier version left, and goes. */
static void another_version_that_nobody_holds(void)
{
    put_another_version();
    expect_stock();
    CHECK(strstr(logged, "loaded v") != NULL);
}

static void a_file_others_can_write(void)
{
    static struct lagom_region region;
    put_file(&region, sizeof(region), 0666);
    expect_stock();
    CHECK(strstr(logged, "this job is not tuned") != NULL);
}

static void a_link_instead_of_a_file(void)
{
    char path[LAGOM_PATH_BYTES];
    region_path(path);
    CHECK(symlink("/etc/passwd", path) == 0);
    expect_stock();
    CHECK(strstr(logged, "this job is not tuned") != NULL);
}

static void communicators_of_one_rank(void)
{
    void *context = &context;
    plugin = load_plugin();
    CHECK(plugin.v6->init(&context, COMM, 1, 1, NULL, NULL, NULL) == 0);
    CHECK(context == NULL);
    char path[LAGOM_PATH_BYTES];
    region_path(path);
    CHECK(access(path, F_OK) != 0);
}

/* 2.24..2.26 tell nobody an id, 2.27 only the profiler plugin: ranks that cannot name their communicator cannot agree. */
static void tuner_v4_alone(void)
{
    void *context = &context;
    plugin = load_plugin();
    CHECK(plugin.v4->init(8, 1, logs_to_memory, &context) == 0);
    CHECK(context == NULL);
    CHECK(strstr(logged, "NCCL_PROFILER_PLUGIN") != NULL);
    CHECK(!(map_region()->processes[0].knobs & LAGOM_KNOB_ONLINE));
}

/* The region fills up: the rest of the communicators run stock, those that have a place keep it. */
static void more_communicators_than_places(void)
{
    static void *contexts[LAGOM_MAX_COMMUNICATORS + 8];
    plugin = load_plugin();
    int without = 0;
    for (uint32_t i = 0; i < LAGOM_MAX_COMMUNICATORS + 8; i++) {
        CHECK(plugin.v6->init(&contexts[i], 1000 + i, 8, 1, NULL, NULL, NULL) == 0);
        without += contexts[i] == NULL;
    }
    CHECK_EQUAL(without, 8);
    CHECK(map_region()->header.places_refused >= 8);
    CHECK(strstr(map_region()->processes[0].remark, "no more room") != NULL);
    struct rank rank = {.plugin = plugin, .api = 6, .context = contexts[0]};
    call(&rank, LAGOM_ALL_GATHER, MIB);
    CHECK(untouched(&rank));
    CHECK_EQUAL(map_region()->slots[0].calls, 1);
}

static void hold_the_table(int ready)
{
    char key[LAGOM_PATH_BYTES], path[LAGOM_PATH_BYTES];
    lagom_job_key(key, 0);
    lagom_region_path(key, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0 && lagom_lock_try(fd, LAGOM_LOCK_REGISTER) && write(ready, "x", 1) == 1);
    pause();
}

/* Another process was stopped while it held the table: NCCL's init waits two seconds for it in all, not for each
 * communicator, and what the job had before goes on. */
static void the_table_is_held(void)
{
    int ready[2];
    char byte;
    plugin = load_plugin();
    struct rank early = make_rank(&plugin, 6, COMM, 2, 1);
    CHECK(early.context != NULL && pipe(ready) == 0);
    pid_t holder = fork();
    if (holder == 0) {
        hold_the_table(ready[1]);
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    uint64_t began = lagom_milliseconds_now();
    for (uint64_t i = 1; i <= 20; i++) {
        CHECK(make_rank(&plugin, 6, COMM + i, 2, 1).context == NULL);
    }
    CHECK(lagom_milliseconds_now() - began < 30000);
    struct lagom_region *region = map_region();
    CHECK(strstr(region->processes[0].remark, "locked for 2 s") != NULL);
    kill(holder, SIGKILL);
    CHECK(waitpid(holder, NULL, 0) == holder);
    CHECK(make_rank(&plugin, 6, COMM + 21, 2, 1).context == NULL);
    call(&early, LAGOM_ALL_GATHER, MIB);
    CHECK(untouched(&early));
    CHECK_EQUAL(region->slots[0].calls, 1);
    end_rank(&early);
}

/* Everything in the region turns to noise while the rank works, but for the word, which only its owner can write: the
 * header, plans, rings, counters and acknowledgements of others. 1,000 seeds. */
static uint64_t random_state;
static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void scribble(void *start, size_t bytes)
{
    uint64_t *words = start;
    for (size_t i = 0; i < bytes / 8; i++) {
        words[i] = random_next();
    }
}

/* PREPARED announces a plan that is noise, or looks nearly right. */
static void announce_garbage(struct lagom_region *region, uint32_t communicator, uint64_t epoch)
{
    struct lagom_communicator *shared = &region->communicators[communicator];
    struct lagom_plan *plan = &region->plans[communicator];
    scribble(plan, random_next() % 2 ? sizeof(*plan) : 72);
    if (random_next() % 2) {
        plan->epoch = epoch;
        plan->comm_id = COMM;
        plan->start_call = region->slots[0].calls + 2;
        plan->history_call = region->slots[0].calls;
    }
    if (random_next() % 4 == 0) { /* so right that only its contents are wrong */
        plan->position_count = 1 + random_next() % 8;
        plan->site_count = 1;
        plan->rule_count = 0;
        plan->flags = 0;
        plan->end_call = 0;
        plan->hash = lagom_plan_hash(plan);
    }
    lagom_store_release(&shared->word, LAGOM_WORD(LAGOM_PREPARED, epoch));
}

static void noise_in_the_region(void)
{
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
    struct lagom_region *region = map_region();
    uint32_t communicator = find_communicator_of(region, COMM);
    struct lagom_communicator *shared = &region->communicators[communicator];
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        random_state = seed * 0x9e3779b97f4a7c15ULL;
        scribble(&region->header, sizeof(region->header));
        scribble(region->processes, sizeof(region->processes));
        scribble(region->calls[seed % LAGOM_MAX_CALL_RINGS], sizeof(region->calls[0]));
        scribble(region->kernels[0], sizeof(region->kernels[0]) / 16);
        scribble(&region->slots[0], sizeof(region->slots[0]));
        scribble(&region->slots[1 + seed % 63], sizeof(region->slots[0]));
        shared->capture = (uint32_t)random_next();
        announce_garbage(region, communicator, seed);
        for (int i = 0; i < 6; i++) {
            call(&rank, (int)(random_next() % LAGOM_FUNCTIONS), random_next() % (64 * MIB));
            CHECK(untouched(&rank));
            CHECK_EQUAL(chunk_of(&rank, LAGOM_ALL_GATHER, LAGOM_RING, LAGOM_SIMPLE, MIB), MIB);
        }
        CHECK(LAGOM_WORD_STATE(lagom_load_acquire(&shared->word)) != LAGOM_COMMITTED);
    }
}

/* A DataLoader worker inherits all this by fork. It must neither use it nor disturb it. */
static void a_forked_child_is_inert(void)
{
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
    struct lagom_region *region = map_region();
    call(&rank, LAGOM_ALL_GATHER, MIB);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++) {
            call(&rank, LAGOM_ALL_GATHER, MIB);
        }
        void *context = &context;
        CHECK(plugin.v6->init(&context, COMM + 1, 2, 1, NULL, NULL, NULL) == 0 && context == NULL);
        CHECK(plugin.v6->finalize(rank.context) == 0);
        exit(0); /* runs destructors: they must not touch the parent's region either */
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK_EQUAL(region->slots[0].calls, 1);
    CHECK_EQUAL(region->slots[0].state, LAGOM_READY);
    char path[LAGOM_PATH_BYTES];
    region_path(path);
    CHECK(access(path, F_OK) == 0);
    call(&rank, LAGOM_ALL_GATHER, MIB);
    CHECK_EQUAL(region->slots[0].calls, 2);
}

/* Without a controller nobody else would remove the file. */
static void the_last_one_out_removes_the_file(void)
{
    char path[LAGOM_PATH_BYTES];
    region_path(path);
    pid_t child = fork();
    if (child == 0) {
        plugin = load_plugin();
        make_rank(&plugin, 6, COMM, 2, 1);
        CHECK(access(path, F_OK) == 0);
        exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(access(path, F_OK) != 0);
}

int main(void)
{
    int failures = 0;
    failures += RUN(mode_off);
    failures += RUN(an_unknown_mode);
    failures += RUN(no_controller_comes);
    failures += RUN(no_folder_for_the_region);
    failures += RUN(a_folder_that_cannot_be_written);
    failures += RUN(a_file_of_random_bytes);
    failures += RUN(a_truncated_file);
    failures += RUN(another_version);
    failures += RUN(another_version_that_nobody_holds);
    failures += RUN(a_file_others_can_write);
    failures += RUN(a_link_instead_of_a_file);
    failures += RUN(communicators_of_one_rank);
    failures += RUN(tuner_v4_alone);
    failures += RUN(more_communicators_than_places);
    failures += RUN(the_table_is_held);
    failures += RUN(noise_in_the_region);
    failures += RUN(a_forked_child_is_inert);
    failures += RUN(the_last_one_out_removes_the_file);
    return failures != 0;
}
