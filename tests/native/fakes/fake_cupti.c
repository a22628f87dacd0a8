/* SPDX-License-Identifier: Apache-2.0 */
/* fake_cupti.c - a CUPTI whose kernels are told to it: built as libcupti.so.13 by the timeline_* programs.
 *
 * Records are written byte by byte at the offsets of NVIDIA's headers (tests/contract/test_cupti.py checks those), not
 * through our own struct. What a test asks for goes through the fake_* functions.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void (*requested_function)(uint8_t **, size_t *, size_t *);
typedef void (*completed_function)(void *, uint32_t, uint8_t *, size_t, size_t);

enum { KERNEL = 10, COPY = 22, EXTERNAL = 39, KINDS = 64, EXTERNAL_BYTES = 24, COPY_BYTES = 96 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static requested_function requested;
static completed_function completed;
static uint8_t *buffer;
static size_t room, used, dropped;
static int enabled[KINDS], enables, disables, registrations, externals_wanted, refuse;
static size_t kernel_bytes = 216;
static uint32_t correlation = 1000;
static _Thread_local uint64_t pushed[16];
static _Thread_local int pushed_count;

static int delay_next;
static uint8_t *delayed;
static size_t delayed_valid;

static void deliver(void)
{
    uint8_t *full = buffer, *late = delayed;
    size_t bytes = room, valid = used, late_valid = delayed_valid;
    completed_function to = completed;
    buffer = NULL;
    used = 0;
    if (full == NULL || to == NULL) {
        return;
    }
    if (delay_next) {
        delay_next = 0;
        delayed = full;
        delayed_valid = valid;
        return;
    }
    delayed = NULL;
    pthread_mutex_unlock(&lock);
    to(NULL, 0, full, bytes, valid);
    if (late != NULL) {
        to(NULL, 0, late, bytes, late_valid);
    }
    pthread_mutex_lock(&lock);
}

static uint8_t *space(size_t bytes)
{
    if (buffer != NULL && used + bytes > room) {
        deliver();
    }
    if (buffer == NULL && requested != NULL) {
        size_t most;
        requested(&buffer, &room, &most);
    }
    if (buffer == NULL) {
        dropped++;
        return NULL;
    }
    used += bytes;
    return memset(buffer + used - bytes, 0xee, bytes);
}

static void put(uint8_t *record, size_t offset, const void *value, size_t bytes)
{
    memcpy(record + offset, value, bytes);
}

static void put32(uint8_t *record, size_t offset, uint32_t value)
{
    put(record, offset, &value, 4);
}

static void put64(uint8_t *record, size_t offset, uint64_t value)
{
    put(record, offset, &value, 8);
}

/* ---- What a test asks for --------------------------------------------------------------------------------------- */

uint32_t fake_launch(const char *name, uint32_t grid, uint32_t stream, uint64_t start, uint64_t end, uint64_t node)
{
    pthread_mutex_lock(&lock);
    uint32_t id = correlation++;
    if (enabled[KERNEL]) {
        uint8_t *external = enabled[EXTERNAL] && externals_wanted && pushed_count > 0 ? space(EXTERNAL_BYTES) : NULL;
        if (external != NULL) {
            put32(external, 0, EXTERNAL);
            put32(external, 4, 5);
            put64(external, 8, pushed[pushed_count - 1]);
            put32(external, 16, id);
        }
        uint8_t *record = space(kernel_bytes);
        if (record != NULL) {
            put32(record, 0, KERNEL);
            put64(record, 16, start);
            put64(record, 24, end);
            put32(record, 48, stream);
            put32(record, 52, grid);
            put32(record, 56, 3);
            put32(record, 60, 1);
            put32(record, 64, 128);
            put32(record, 68, 2);
            put32(record, 72, 1);
            put32(record, 92, id);
            put(record, 104, &name, sizeof(name));
            put64(record, 144, node);
        }
    }
    pthread_mutex_unlock(&lock);
    return id;
}

/* Between two GPUs, or on one where both are the same. */
void fake_copy(uint32_t source, uint32_t destination, uint64_t bytes, uint32_t stream, uint64_t start, uint64_t end)
{
    pthread_mutex_lock(&lock);
    uint32_t id = correlation++;
    uint8_t *record = enabled[COPY] ? space(COPY_BYTES) : NULL;
    if (record != NULL) {
        put32(record, 0, COPY);
        put64(record, 8, bytes);
        put64(record, 16, start);
        put64(record, 24, end);
        put32(record, 40, stream);
        put32(record, 44, source);
        put32(record, 52, destination);
        put32(record, 60, id);
    }
    pthread_mutex_unlock(&lock);
}

void fake_set(size_t bytes, int externals, int refused)
{
    kernel_bytes = bytes;
    externals_wanted = externals;
    refuse = refused;
}

/* enables, disables, registrations, bytes that wait */
void fake_counts(int out[4])
{
    pthread_mutex_lock(&lock);
    out[0] = enables;
    out[1] = disables;
    out[2] = registrations;
    out[3] = (int)used;
    pthread_mutex_unlock(&lock);
}

static uint64_t (*clock_of_records)(void);
static int theirs;

static uint64_t their_clock(void)
{
    return 12345;
}

/* Kineto registers its own clock before it takes the callbacks. */
void fake_take_clock(void)
{
    __atomic_store_n(&clock_of_records, their_clock, __ATOMIC_RELEASE);
}

/* The next full buffer comes back after the one that follows it. */
void fake_delay(void)
{
    pthread_mutex_lock(&lock);
    delay_next = 1;
    pthread_mutex_unlock(&lock);
}

void fake_flush(void)
{
    pthread_mutex_lock(&lock);
    deliver();
    pthread_mutex_unlock(&lock);
}
static void their_request(uint8_t **out, size_t *bytes, size_t *most)
{
    static uint8_t pool[64][4096]; /* reused before it is returned: nobody looks at theirs */
    static unsigned next;
    *out = pool[next++ % 64];
    *bytes = 4096;
    *most = 0;
}

/* As Kineto: what is not its own is logged and left. */
static void their_completion(void *context, uint32_t stream, uint8_t *filled, size_t bytes, size_t valid)
{
    (void)context, (void)stream, (void)filled, (void)bytes, (void)valid;
    theirs++;
}

/* Another profiler registers its callbacks, silently. */
void fake_steal(void)
{
    pthread_mutex_lock(&lock);
    requested = their_request;
    completed = their_completion;
    enabled[KERNEL] = 1;
    pthread_mutex_unlock(&lock);
}

/* A buffer of another profiler's reaches whoever is registered; returned for the test to free. */
uint8_t *fake_foreign_buffer(void)
{
    uint8_t *foreign = malloc(4096);
    completed(NULL, 0, foreign, 4096, 208);
    return foreign;
}

int fake_delivered_to_them(void)
{
    return theirs;
}

/* ---- CUPTI ------------------------------------------------------------------------------------------------------ */

int cuptiGetVersion(uint32_t *version)
{
    *version = 130001;
    return 0;
}

int cuptiActivityEnable(uint32_t kind)
{
    pthread_mutex_lock(&lock);
    enables += kind == KERNEL;
    enabled[kind] = !refuse;
    pthread_mutex_unlock(&lock);
    return refuse ? 15 : 0;
}

int cuptiActivityDisable(uint32_t kind)
{
    pthread_mutex_lock(&lock);
    disables += kind == KERNEL;
    enabled[kind] = 0;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuptiActivityRegisterCallbacks(requested_function request, completed_function complete)
{
    pthread_mutex_lock(&lock);
    requested = request;
    completed = complete;
    registrations++;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuptiActivityRegisterTimestampCallback(uint64_t (*timestamp)(void))
{
    if (timestamp == NULL) {
        return 1;
    }
    __atomic_store_n(&clock_of_records, timestamp, __ATOMIC_RELEASE);
    return 0;
}

int cuptiGetTimestamp(uint64_t *stamp)
{
    uint64_t (*clock)(void) = __atomic_load_n(&clock_of_records, __ATOMIC_ACQUIRE);
    *stamp = clock == NULL ? 1 : clock();
    return 0;
}

int cuptiActivityFlushAll(uint32_t flag)
{
    (void)flag;
    pthread_mutex_lock(&lock);
    if (used > 0) {
        deliver();
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *records, size_t valid, uint8_t **record)
{
    uint8_t *next = records;
    if (*record != NULL) {
        uint32_t kind;
        memcpy(&kind, *record, 4);
        next = *record + (kind == KERNEL ? kernel_bytes : kind == COPY ? COPY_BYTES : EXTERNAL_BYTES);
    }
    if (next >= records + valid) {
        return 12;
    }
    *record = next;
    return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *count)
{
    (void)context, (void)stream;
    pthread_mutex_lock(&lock);
    *count = dropped;
    dropped = 0;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id)
{
    (void)kind;
    pushed[pushed_count++ & 15] = id;
    return 0;
}

int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t *id)
{
    (void)kind;
    if (pushed_count == 0) {
        return 18;
    }
    *id = pushed[--pushed_count & 15];
    return 0;
}
