/* SPDX-License-Identifier: Apache-2.0 */
/* recorder.c - a tuner and profiler that only writes down how it was called: a virtual NCCL seen from inside.
 * One line a call, to the file named by RECORDER_LOG. Its answers come from RECORDER_NC and RECORDER_CHUNK. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*logger)(int, unsigned long, const char *, int, const char *, ...);

static void write_line(const char *format, ...)
{
    FILE *file = fopen(getenv("RECORDER_LOG"), "a");
    va_list arguments;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fputc('\n', file);
    fclose(file);
}

static int number(const char *name)
{
    return getenv(name) ? atoi(getenv(name)) : 0;
}

static int *activation_mask;

static int init_v4(size_t ranks, size_t nodes, logger log, void **context)
{
    write_line("tuner init v4 ranks=%zu nodes=%zu", ranks, nodes);
    log(3, 0x40, __FILE__, __LINE__, "%s", "hello from the recorder");
    *context = context;
    return 0;
}

static int init_v5(void **context, uint64_t id, size_t ranks, size_t nodes, logger log, void *domain, double *constants)
{
    (void)log;
    write_line("tuner init v5 id=%#llx ranks=%zu nodes=%zu domain=%d,%d,%d constant=%g", (unsigned long long)id, ranks,
               nodes, ((int *)domain)[0], ((int *)domain)[1], ((int *)domain)[2], constants[143]);
    *context = context;
    return 0;
}

static int get_coll_info(void *context, int function, size_t bytes, int pipe_ops, float **table, int algorithms,
                         int protocols, int registered, int *channels)
{
    float *flat = (float *)table;
    write_line("ask f=%d bytes=%zu pipe=%d table=%dx%d tree_ll=%g ring_simple=%g reg=%d nc=%d context=%d", function,
               bytes, pipe_ops, algorithms, protocols, flat[0], flat[protocols + 2], registered, *channels,
               context != NULL);
    *channels = number("RECORDER_NC");
    if (number("RECORDER_MASK_OFF")) {
        *activation_mask = 0;
    }
    return 0;
}

static int get_chunk_size(void *context, int function, size_t bytes, int algorithm, int protocol, int channels,
                          size_t *chunk)
{
    (void)context;
    write_line("chunk f=%d bytes=%zu a=%d p=%d nc=%d chunk=%zu", function, bytes, algorithm, protocol, channels,
               *chunk);
    if (number("RECORDER_CHUNK")) {
        *chunk = (size_t)number("RECORDER_CHUNK");
    }
    return 0;
}

static int finalize(void *context)
{
    write_line("tuner finalize context=%d", context != NULL);
    return 0;
}

struct tuner_v4 {
    const char *name;
    int (*init)(size_t, size_t, logger, void **);
    int (*get_coll_info)(void *, int, size_t, int, float **, int, int, int, int *);
    int (*destroy)(void *);
};
struct tuner_v6 {
    const char *name;
    int (*init)(void **, uint64_t, size_t, size_t, logger, void *, double *);
    int (*get_coll_info)(void *, int, size_t, int, float **, int, int, int, int *);
    int (*finalize)(void *);
    int (*get_chunk_size)(void *, int, size_t, int, int, int, size_t *);
};
struct tuner_v4 ncclTunerPlugin_v4 = {"recorder", init_v4, get_coll_info, finalize};
struct tuner_v6 ncclTunerPlugin_v5 = {"recorder", init_v5, get_coll_info, finalize, NULL};
struct tuner_v6 ncclTunerPlugin_v6 = {"recorder", init_v5, get_coll_info, finalize, get_chunk_size};

/* ---- profiler v5 and v6: type is a 64-bit word, then parent, rank, and the event's own fields ---- */

struct coll {
    uint64_t sequence;
    const char *function;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *datatype;
    uint8_t channels, warps;
    const char *algorithm, *protocol;
    void *parent_group;
};
struct event {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct coll coll;
        struct {
            uint8_t channel;
            uint64_t timer;
        } kernel_channel;
    };
};

static int profiler_init(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank,
                         logger log)
{
    (void)log;
    write_line("profiler init id=%#llx name=%s nodes=%d ranks=%d rank=%d", (unsigned long long)id, name, nodes, ranks,
               rank);
    *mask = number("RECORDER_MASK");
    activation_mask = mask;
    *context = context;
    return 0;
}

static int start_event(void *context, void **handle, struct event *event)
{
    (void)context;
    if (event->type == 1 << 1) {
        write_line("coll %s count=%zu nc=%d warps=%d %s %s seq=%llu", event->coll.function, event->coll.count,
                   event->coll.channels, event->coll.warps, event->coll.algorithm, event->coll.protocol,
                   (unsigned long long)event->coll.sequence);
    } else if (event->type == 1 << 6) {
        write_line("kernel channel=%d start=%llu parent=%d", event->kernel_channel.channel,
                   (unsigned long long)event->kernel_channel.timer, event->parent != NULL);
    } else {
        write_line("event %llu", (unsigned long long)event->type);
    }
    *handle = (void *)(uintptr_t)(event->type + 1);
    return 0;
}

static int stop_event(void *handle)
{
    write_line("stop %llu", (unsigned long long)(uintptr_t)handle - 1);
    return 0;
}

static int record_state(void *handle, int state, uint64_t *timer)
{
    (void)handle;
    write_line("state %d %llu", state, (unsigned long long)*timer);
    return 0;
}

static int profiler_finalize(void *context)
{
    write_line("profiler finalize context=%d", context != NULL);
    return 0;
}

struct profiler_v5 {
    const char *name;
    int (*init)(void **, uint64_t, int *, const char *, int, int, int, logger);
    int (*start_event)(void *, void **, struct event *);
    int (*stop_event)(void *);
    int (*record_state)(void *, int, uint64_t *);
    int (*finalize)(void *);
};
#define RECORDER {"recorder", profiler_init, start_event, stop_event, record_state, profiler_finalize}
struct profiler_v5 ncclProfiler_v5 = RECORDER;
struct profiler_v5 ncclProfiler_v6 = RECORDER;
