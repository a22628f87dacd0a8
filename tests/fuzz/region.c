/* SPDX-License-Identifier: Apache-2.0 */
/* region.c - attaching to a region's file as rank, controller and onlooker, whatever lies in it.
 *
 * Input: what the file looks like (size, mode, whether a living process holds it), a list of damaged places, then
 * operations: join, control, inspect, leave, sweep, enter, take a slot, damage again. Nothing may be touched outside
 * the mapping, nothing may stay attached, and no file of another shape may ever be mapped.
 *
 * The damage is done through a mapping of our own whose descriptor stays open: closing it would drop this process's
 * locks. A child holds a lock where a living owner is wanted.
 */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plan/plan.h"
#include "agreement/publisher.h"
#include "shm/attachment.h"
#include "shm/file_lock.h"
#include "shm/node_rules.h"
#include "shm/region_file.h"
#include "shm/ring.h"
#include "timeline/kernel_name.h"

#define MAPPINGS 6u
#define OPERATIONS 48u
#define PLACES 24u
#define METADATA offsetof(struct lagom_region, calls)
#define HOLDER_PROCESS 9u

struct file {
    const char *key;
    char path[LAGOM_PATH_BYTES]; /* where Lagom looks */
    char spare[LAGOM_PATH_BYTES + 8]; /* a second name: what Lagom unlinks is put back */
    struct lagom_region *region;
    int fd;
};

#define PARENT "/dev/shm"
#define PREFIX "lagom-fuzz-"

static char folder[64];
static struct file held, unheld;
static struct lagom_region *pristine; /* metadata of a sound region */
static pid_t holder;

/* ---- Once ------------------------------------------------------------------------------------------------------- */

static void remove_folder(void)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0 || status.st_uid != geteuid()) {
        return; /* anybody may put a name like ours there */
    }
    DIR *files = fdopendir(fd);
    struct dirent *entry;
    while (files != NULL && (entry = readdir(files)) != NULL) {
        unlinkat(fd, entry->d_name, 0);
    }
    if (files != NULL) {
        closedir(files);
    }
    rmdir(folder);
}

static void clean_up(void)
{
    remove_folder();
    kill(holder, SIGKILL);
}

/* Of runs that were killed: their folder is named after their process, which is gone. */
static void remove_stale_regions(void)
{
    DIR *all = opendir(PARENT);
    struct dirent *entry;
    while (all != NULL && (entry = readdir(all)) != NULL) {
        int pid;
        if (sscanf(entry->d_name, PREFIX "%d-", &pid) == 1 && pid > 0 && kill(pid, 0) != 0 && errno == ESRCH) {
            snprintf(folder, sizeof(folder), PARENT "/%.48s", entry->d_name);
            remove_folder();
        }
    }
    if (all != NULL) {
        closedir(all);
    }
    snprintf(folder, sizeof(folder), PARENT "/" PREFIX "%d-XXXXXX", (int)getpid());
}

static void make_file(struct file *file, const char *key)
{
    file->key = key;
    lagom_region_path(key, file->path);
    snprintf(file->spare, sizeof(file->spare), "%s/%s.spare", folder, key);
    file->fd = open(file->path, O_RDWR | O_CREAT | O_EXCL, 0600);
    EXPECT(file->fd >= 0 && posix_fallocate(file->fd, 0, sizeof(struct lagom_region)) == 0);
    file->region = mmap(NULL, sizeof(struct lagom_region), PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, 0);
    EXPECT(file->region != MAP_FAILED && link(file->path, file->spare) == 0);
}

/* A rank that is alive and does nothing. */
static void start_holder(void)
{
    int ready[2];
    char byte;
    EXPECT(pipe(ready) == 0);
    holder = fork();
    if (holder == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int fd = open(held.path, O_RDWR);
        bool locked = lagom_lock_try(fd, LAGOM_LOCK_PROCESS + HOLDER_PROCESS);
        if (write(ready[1], locked ? "x" : "-", 1) == 1) {
            for (;;) {
                pause();
            }
        }
        _exit(1);
    }
    EXPECT(holder > 0 && read(ready[0], &byte, 1) == 1 && byte == 'x');
    close(ready[0]);
    close(ready[1]);
}

static void make_pristine(void)
{
    pristine = calloc(1, sizeof(*pristine));
    lagom_file_write_header(&pristine->header, held.key, LAGOM_CLOCK_MONOTONIC);
    pristine->processes[HOLDER_PROCESS].state = LAGOM_READY;
    struct lagom_communicator *entry = &pristine->communicators[0];
    *entry = (struct lagom_communicator){.comm_id = 7, .state = LAGOM_READY, .rank_count = 1, .node_count = 1};
    entry->entered = entry->taken = 1;
    pristine->slots[0] =
        (struct lagom_slot){.state = LAGOM_READY, .process = HOLDER_PROCESS, .rank = 0, .comm_id = 7, .calls = 3};
}

static void prepare(void)
{
    if (pristine != NULL) {
        return;
    }
    remove_stale_regions();
    EXPECT(mkdtemp(folder) != NULL && setenv("LAGOM_SHM_DIR", folder, 1) == 0);
    atexit(clean_up);
    make_file(&held, "held");
    make_file(&unheld, "unheld");
    start_holder();
    make_pristine();
}

/* ---- Each time -------------------------------------------------------------------------------------------------- */

static bool in_place(const struct file *file)
{
    struct stat there, ours;
    return stat(file->path, &there) == 0 && fstat(file->fd, &ours) == 0 && there.st_ino == ours.st_ino;
}

/* It was stale, was removed, and Lagom may have made a new one. */
static void put_back(struct file *file)
{
    if (!in_place(file)) {
        unlink(file->path);
        EXPECT(link(file->spare, file->path) == 0);
    }
    EXPECT(fchmod(file->fd, 0600) == 0 && ftruncate(file->fd, sizeof(struct lagom_region)) == 0);
    memcpy(file->region, pristine, METADATA);
    memset(&file->region->node_rules, 0, sizeof(file->region->node_rules));
}

static void damage(struct lagom_region *region, struct feed *feed)
{
    const struct {
        void *start;
        size_t bytes;
    } areas[] = {
        {&region->header, 48},
        {&region->header, sizeof(region->header)},
        {region->processes, sizeof(region->processes)},
        {region->communicators, sizeof(region->communicators)},
        {&region->plans[0], 128},
        {region->slots, sizeof(region->slots)},
        {region->slots, 2 * sizeof(region->slots[0])},
        {region->names, sizeof(region->names)},
        {&region->node_rules, sizeof(region->node_rules)},
    };
    uint32_t area = feed_u8(feed) % 9;
    size_t at = feed_u32(feed) % areas[area].bytes;
    size_t room = areas[area].bytes - at, length = feed_u8(feed) % 33;
    feed_bytes(feed, (char *)areas[area].start + at, length < room ? length : room);
}

static bool whole(const struct file *file)
{
    struct stat now;
    return fstat(file->fd, &now) == 0 && now.st_size == (off_t)sizeof(struct lagom_region);
}

static void deform(const struct file *file, struct feed *feed, uint8_t how)
{
    if ((how & 2) != 0) {
        EXPECT(ftruncate(file->fd, feed_u32(feed) % (2 * sizeof(struct lagom_region))) == 0);
    }
    if ((how & 4) != 0) {
        EXPECT(fchmod(file->fd, feed_u16(feed) & 07777) == 0);
    }
}

/* ---- Operations ------------------------------------------------------------------------------------------------- */

static void attach(struct lagom_mapping *mapping, const struct file *file, uint8_t how)
{
    if (mapping->region != NULL) {
        lagom_region_leave(mapping, (how & 1) != 0);
        return;
    }
    enum lagom_region_fault fault = LAGOM_REGION_OK;
    switch (how % 4) {
    case 0: fault = lagom_region_join(mapping, file->key, LAGOM_CLOCK_MONOTONIC); break;
    case 1: fault = lagom_region_control(mapping, file->key, (how & 16) != 0, LAGOM_CLOCK_MONOTONIC); break;
    case 2: fault = lagom_region_control_path(mapping, file->path); break;
    case 3: fault = lagom_region_inspect(mapping, file->path); break;
    }
    EXPECT((fault == LAGOM_REGION_OK) == (mapping->region != NULL));
    EXPECT(strlen(lagom_region_fault_text(fault)) > 10);
}

static void look(const struct lagom_mapping *mapping, uint8_t which)
{
    EXPECT(lagom_region_processes_alive(mapping) <= LAGOM_MAX_PROCESSES);
    lagom_region_controller_alive(mapping);
    lagom_region_process_alive(mapping, which);
    lagom_region_is_locked(mapping, which);
}

/* What a rank does with its region. */
static void take_part(struct lagom_mapping *mapping, struct feed *feed)
{
    uint32_t communicator = lagom_communicator_enter(mapping->region, feed_u8(feed), feed_u8(feed), 1, 0, "fuzzed");
    EXPECT(communicator == UINT32_MAX || communicator < LAGOM_MAX_COMMUNICATORS);
    uint32_t slot = lagom_slot_take(mapping, communicator, (struct lagom_identity){feed_u8(feed), feed_u8(feed)});
    EXPECT(slot == UINT32_MAX || slot < LAGOM_MAX_SLOTS);
    uint32_t name = lagom_kernel_name_intern(mapping->region, "ncclDevKernel_AllGather_RING_LL");
    EXPECT(name <= LAGOM_MAX_KERNEL_NAMES);
    if (feed_u8(feed) & 1) {
        lagom_slot_release(mapping, slot);
    }
    struct lagom_node_rules sizes = {.rule_count = 0};
    lagom_node_rules_settle(mapping, &sizes);
    EXPECT(lagom_node_rules_are_sound(&sizes));
}

/* What a controller does with its. */
static void decide(struct lagom_mapping *mapping, struct feed *feed)
{
    static struct lagom_call_record calls[16];
    static struct lagom_plan plan;
    uint32_t communicator = feed_u8(feed), slot = feed_u8(feed);
    uint64_t smallest, largest;
    EXPECT(lagom_region_sweep(mapping) <= LAGOM_MAX_SLOTS + LAGOM_MAX_PROCESSES + LAGOM_MAX_COMMUNICATORS);
    EXPECT(lagom_call_ring_drain(mapping->region, slot, calls, 16) <= 16);
    EXPECT(communicator >= LAGOM_MAX_COMMUNICATORS ||
           lagom_counters(mapping->region, communicator, &smallest, &largest) <= LAGOM_MAX_SLOTS);
    plan = (struct lagom_plan){.start_call = feed_u8(feed)};
    lagom_publish(mapping->region, communicator, &plan);
    lagom_publish_poll(mapping->region, communicator);
    lagom_publish_withdraw(mapping->region, communicator);
}

static bool may_write(const struct lagom_mapping *mapping)
{
    lagom_attachments_lock();
    const struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    bool writable = attachment != NULL && attachment->writable;
    lagom_attachments_unlock();
    return writable;
}

static void operate(struct lagom_mapping *mappings, const struct file *file, struct feed *feed)
{
    uint8_t operation = feed_u8(feed);
    struct lagom_mapping *mapping = &mappings[(operation >> 4) % MAPPINGS];
    switch (operation % 6) {
    case 0:
    case 1: attach(mapping, file, feed_u8(feed)); break;
    case 2: look(mapping, feed_u8(feed)); break;
    case 3: damage(file->region, feed); break;
    case 4:
        if (mapping->region != NULL && mapping->process != UINT32_MAX) {
            take_part(mapping, feed);
        }
        break;
    case 5:
        if (mapping->region != NULL && may_write(mapping)) {
            decide(mapping, feed);
        } else {
            lagom_region_remove_stale(file->path);
        }
        break;
    }
}

static void leave_all(struct lagom_mapping *mappings, const struct file *file)
{
    for (uint32_t i = 0; i < MAPPINGS; i++) {
        if (mappings[i].region != NULL) {
            lagom_region_leave(&mappings[i], false);
        }
    }
    lagom_attachments_lock();
    EXPECT(lagom_attachment_at(file->spare) == NULL && lagom_attachment_at(file->path) == NULL);
    lagom_attachments_unlock();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = {data, size};
    struct lagom_mapping mappings[MAPPINGS];
    prepare();
    uint8_t how = feed_u8(&feed);
    struct file *file = (how & 1) != 0 ? &unheld : &held;
    memset(mappings, 0, sizeof(mappings));
    put_back(file);
    for (uint32_t places = feed_u8(&feed) % PLACES; places > 0; places--) {
        damage(file->region, &feed);
    }
    deform(file, &feed, how);
    for (uint32_t i = 0; i < OPERATIONS && feed.left > 0; i++) {
        if (whole(file)) {
            operate(mappings, file, &feed);
        } else { /* only ways in: touching what the file does not cover would be our own SIGBUS */
            attach(&mappings[0], file, feed_u8(&feed));
            EXPECT(mappings[0].region == NULL || !in_place(file));
        }
    }
    leave_all(mappings, file);
    return 0;
}
