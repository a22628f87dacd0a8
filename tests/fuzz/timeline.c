/* SPDX-License-Identifier: Apache-2.0 */
/* timeline.c - CUPTI's records, its buffers in any order, kernel names and NCCL's launch notes, into spans.
 *
 * Input: operations on a CUPTI of our own making. It keeps what the real one promises (a record lies whole in its
 * buffer, a name is a string or NULL) and nothing else: times, ids, grids, names, order, foreign and repeated buffers are the
 * input's. The region's ring and table of names may be damaged meanwhile. Every span that comes out must name only what
 * exists.
 */
#include "fuzz.h"

#include "shm/ring.h"
#include "timeline/reader.h"

#define OPERATIONS 200u
#define BUFFERS 8u
#define RECORDS 24u
#define STRIDE 160u /* room for the largest record we read */
#define NAMES 6u
#define NAME_ROOM 200u
#define PROCESS 3u

_Static_assert(STRIDE >= sizeof(struct cupti_kernel) && STRIDE % CUPTI_BUFFER_ALIGNMENT == 0, "");
_Static_assert(RECORDS * STRIDE <= LAGOM_ACTIVITY_BUFFER_BYTES, "");

static struct lagom_region region;
static struct lagom_reader reader;
static cupti_buffer_requested request;
static cupti_buffer_completed complete;
static uint8_t *out[BUFFERS];  /* what CUPTI has been given */
static uint32_t filled[BUFFERS];
static char *names[NAMES]; /* written over: modules are unloaded, and others take their memory */
static size_t dropped;

/* ---- A CUPTI ---------------------------------------------------------------------------------------------------- */

static int switch_kind(uint32_t kind)
{
    (void)kind;
    return CUPTI_RESULT_SUCCESS;
}

static int take_callbacks(cupti_buffer_requested requested, cupti_buffer_completed completed)
{
    request = requested;
    complete = completed;
    return CUPTI_RESULT_SUCCESS;
}

static int take_clock(cupti_timestamp timestamp)
{
    return timestamp() == 0;
}

static int tell_time(uint64_t *stamp)
{
    *stamp = 0;
    return CUPTI_RESULT_SUCCESS;
}

static int next_record(uint8_t *buffer, size_t valid, void **record)
{
    uint8_t *next = *record == NULL ? buffer : (uint8_t *)*record + STRIDE;
    if (next + STRIDE > buffer + valid) {
        return CUPTI_RESULT_MAX_LIMIT_REACHED;
    }
    *record = next;
    return CUPTI_RESULT_SUCCESS;
}

static int tell_dropped(void *context, uint32_t stream, size_t *count)
{
    (void)context;
    (void)stream;
    *count = dropped;
    dropped = 0;
    return CUPTI_RESULT_SUCCESS;
}

static const struct lagom_cupti cupti = {.enable = switch_kind,
                                         .disable = switch_kind,
                                         .register_callbacks = take_callbacks,
                                         .register_timestamp = take_clock,
                                         .get_timestamp = tell_time,
                                         .next_record = next_record,
                                         .dropped = tell_dropped};

/* ---- What comes out --------------------------------------------------------------------------------------------- */

static void push(struct lagom_region *into, uint32_t process, const struct lagom_kernel_span *span)
{
    EXPECT(into == &region && process == PROCESS);
    EXPECT(span->name <= LAGOM_MAX_KERNEL_NAMES && span->kind <= LAGOM_SPAN_OTHER);
    EXPECT(span->join < LAGOM_JOIN_RESULTS && span->end_ns >= span->start_ns);
    EXPECT(span->function < LAGOM_FUNCTIONS || span->function == LAGOM_NO_FUNCTION);
    lagom_kernel_ring_push(into, process, span);
}

static void expect_order(void)
{
    EXPECT(reader.join.held_count <= LAGOM_JOIN_HELD);
    EXPECT(lagom_launched_waiting(&reader.join.launched) <= LAGOM_LAUNCHED);
}

/* ---- What goes in ----------------------------------------------------------------------------------------------- */

static void make_name(struct feed *feed)
{
    static const char *const usual[] = {"ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
                                        "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "ncclDevKernel_SendRecv",
                                        "ncclSymkDevKernel_AllReduce", "void at::native::elementwise_kernel"};
    uint32_t which = feed_u8(feed) % NAMES, how = feed_u8(feed);
    char text[NAME_ROOM + 1] = "";
    if (how % 8 < 5) {
        snprintf(text, sizeof(text), "%s", usual[how % 8]);
        text[how >> 3] = how % 16 < 8 ? text[how >> 3] : (char)feed_u8(feed);
    } else {
        feed_bytes(feed, text, how % NAME_ROOM);
    }
    memcpy(names[which], text, sizeof(text));
    struct lagom_kernel_class class = lagom_kernel_classify(names[which]);
    EXPECT(class.kind <= LAGOM_SPAN_OTHER);
    EXPECT(lagom_kernel_name_intern(&region, names[which]) <= LAGOM_MAX_KERNEL_NAMES);
}

static const char *name_at(uint8_t which)
{
    return which % 8 < NAMES ? names[which % 8] : NULL;
}

static void write_kernel(uint8_t *place, struct feed *feed)
{
    struct cupti_kernel record;
    uint8_t how = feed_u8(feed);
    memset(&record, 0, sizeof(record));
    record.kind = CUPTI_KIND_CONCURRENT_KERNEL;
    record.start = (how & 8) != 0 ? feed_u64(feed) : 1000u * feed_u8(feed);
    record.end = (how & 16) != 0 ? feed_u64(feed) : record.start + feed_u8(feed);
    record.stream = how;
    record.grid[0] = (how & 32) != 0 ? (int32_t)feed_u32(feed) : feed_u8(feed) % 32;
    record.grid[1] = (how & 32) != 0 ? (int32_t)feed_u32(feed) : 1;
    record.grid[2] = (how & 64) != 0 ? (int32_t)feed_u32(feed) : 1;
    record.block[0] = (how & 64) != 0 ? (int32_t)feed_u32(feed) : 512;
    record.correlation = (how & 128) != 0 ? feed_u32(feed) : feed_u8(feed);
    record.graph_node = (how & 192) == 192;
    record.name = name_at(how);
    memcpy(place, &record, sizeof(record));
}

static void write_record(uint8_t *place, struct feed *feed)
{
    uint8_t kind = feed_u8(feed);
    memset(place, 0, STRIDE);
    if (kind % 4 != 0) {
        write_kernel(place, feed);
    } else if (kind % 8 == 0) {
        struct cupti_external record = {.kind = CUPTI_KIND_EXTERNAL_CORRELATION,
                                        .external_kind = CUPTI_EXTERNAL_CUSTOM2,
                                        .id = feed_u8(feed),
                                        .correlation = feed_u8(feed)};
        memcpy(place, &record, sizeof(record));
    } else if (kind % 16 == 4) {
        feed_bytes(feed, (char *)place, sizeof(struct cupti_peer_copy));
        memcpy(place, &(uint32_t){CUPTI_KIND_PEER_COPY}, sizeof(uint32_t));
    } else {
        feed_bytes(feed, place, sizeof(uint32_t)); /* a kind nobody asked for */
        place[0] |= 64;
    }
}

static void fill_buffer(struct feed *feed)
{
    uint32_t which = feed_u8(feed) % BUFFERS;
    size_t bytes, most;
    if (out[which] == NULL) {
        request(&out[which], &bytes, &most);
        filled[which] = 0;
    }
    if (out[which] == NULL) {
        return;
    }
    for (uint32_t count = feed_u8(feed) % RECORDS; count > 0 && filled[which] < RECORDS; count--) {
        write_record(out[which] + filled[which]++ * STRIDE, feed);
    }
}

static void return_buffer(struct feed *feed)
{
    static uint8_t foreign[STRIDE];
    uint8_t how = feed_u8(feed);
    uint32_t which = how % BUFFERS;
    if ((how & 128) != 0) {
        complete(NULL, 0, (how & 64) != 0 ? foreign : NULL, sizeof(foreign), sizeof(foreign));
    } else if (out[which] != NULL) {
        complete(NULL, 0, out[which], LAGOM_ACTIVITY_BUFFER_BYTES, filled[which] * STRIDE);
        out[which] = NULL;
    }
}

static void note(struct feed *feed)
{
    uint8_t how = feed_u8(feed);
    struct lagom_note note = {.kind = how % 4, .serial = feed_u8(feed), .begin_ns = 1000u * feed_u8(feed)};
    note.end_ns = note.begin_ns + feed_u8(feed);
    note.span = (struct lagom_kernel_span){.slot = how >> 4,
                                           .call = feed_u8(feed),
                                           .bytes = 1u << 20,
                                           .function = (how & 4) != 0 ? LAGOM_ALL_GATHER : LAGOM_REDUCE_SCATTER,
                                           .channels = feed_u8(feed) % 32};
    for (uint32_t times = (how & 8) != 0 ? 1 + feed_u8(feed) : 1; times > 0; times--) {
        lagom_note_add(&note);
        note.begin_ns += 1000;
        note.end_ns += 1000;
        note.span.call++;
    }
}

static void damage(struct feed *feed)
{
    uint8_t how = feed_u8(feed);
    size_t at = feed_u32(feed) % (sizeof(region.names) - 32);
    if ((how & 1) != 0) {
        feed_bytes(feed, (char *)region.names + at, how % 32);
    } else {
        region.processes[PROCESS].kernel_head = feed_u64(feed);
        region.processes[PROCESS].kernel_tail = (how & 2) != 0 ? feed_u64(feed) : region.processes[PROCESS].kernel_head;
    }
}

static void drain(void)
{
    static struct lagom_kernel_span spans[256];
    while (lagom_kernel_ring_drain(&region, PROCESS, spans, 256) > 0) {
    }
}

static void operate(struct feed *feed)
{
    uint8_t operation = feed_u8(feed);
    switch (operation % 10) {
    case 0: make_name(feed); break;
    case 1:
    case 2: fill_buffer(feed); break;
    case 3: return_buffer(feed); break;
    case 4:
    case 5: note(feed); break;
    case 6: lagom_reader_run(&reader); break;
    case 7: damage(feed); break;
    case 8: drain(); break;
    case 9:
        dropped = (operation & 32) != 0 ? feed_u8(feed) : 0;
        switch ((operation >> 6) % 4) {
        case 0: lagom_reader_finish(&reader); break;
        case 1: lagom_reader_drop(&reader); break;
        case 2: lagom_activity_abandon(); break;
        case 3: lagom_reader_start(&reader, feed_u16(feed), feed_u32(feed)); break;
        }
        break;
    }
    expect_order();
}

/* ---- One input -------------------------------------------------------------------------------------------------- */

static void begin(void)
{
    memset(region.names, 0, sizeof(region.names));
    memset(&region.processes[PROCESS], 0, sizeof(region.processes[PROCESS]));
    for (uint32_t i = 0; i < NAMES; i++) {
        names[i] = calloc(1, NAME_ROOM + 1);
    }
    reader.cupti = &cupti;
    reader.region = &region;
    reader.process = PROCESS;
    reader.push = push;
    reader.full_since_ns = 0;
    EXPECT(lagom_activity_enable(&cupti) == NULL);
    lagom_reader_start(&reader, 0, 1000);
}

static void end(void)
{
    lagom_reader_run(&reader);
    expect_order();
    lagom_reader_finish(&reader);
    EXPECT(reader.join.held_count == 0);
    for (uint32_t i = 0; i < BUFFERS; i++) {
        if (out[i] != NULL) {
            complete(NULL, 0, out[i], LAGOM_ACTIVITY_BUFFER_BYTES, 0);
            out[i] = NULL;
        }
    }
    lagom_reader_drop(&reader);
    EXPECT(lagom_activity_out() == 0);
    for (uint32_t i = 0; i < NAMES; i++) {
        free(names[i]);
        names[i] = NULL;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = {data, size};
    begin();
    for (uint32_t i = 0; i < OPERATIONS && feed.left > 0; i++) {
        operate(&feed);
    }
    end();
    return 0;
}
