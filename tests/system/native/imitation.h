/* SPDX-License-Identifier: Apache-2.0 */
/* imitation.h - NCCL 2.30 as a tuner sees it, in C and in a hurry: flat cost table, getCollInfo, pick, getChunkSize for
 * each part. lagom/sim/virtual/nccl.py is the careful version; this one makes a million calls in seconds.
 *
 * fail() ends the process where NCCL would have failed or crashed the user's job.
 */
#ifndef IMITATION_H
#define IMITATION_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALGORITHMS 7
#define PROTOCOLS 3
#define TREE 0
#define RING 1
#define BUILT_CHANNELS 32

typedef void (*nccl_logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

struct tuner_v6 {
    const char *name;
    int (*init)(void **context, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, void *domain,
                void *constants);
    int (*get_coll_info)(void *context, int function, size_t bytes, int pipe_ops, float **table, int algorithms,
                         int protocols, int registered, int *channels);
    int (*finalize)(void *context);
    int (*get_chunk_size)(void *context, int function, size_t bytes, int algorithm, int protocol, int channels,
                          size_t *chunk);
};

/* One collective between the call and the launch. */
struct task {
    uint32_t function;
    uint64_t bytes;
    int algorithm, protocol, channels;
    uint64_t chunk;
    bool changed; /* table, nChannels or chunk differ from what NCCL had without the tuner */
};

static inline void fail(const char *what)
{
    fprintf(stderr, "virtual rank: %s\n", what);
    exit(1);
}

static inline void silent_log(int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
    (void)level, (void)flags, (void)file, (void)line, (void)format;
}

static inline const struct tuner_v6 *load_tuner(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fail(dlerror());
    }
    const struct tuner_v6 *tuner = dlsym(library, "ncclTunerPlugin_v6");
    if (tuner == NULL) {
        fail("the plugin has no ncclTunerPlugin_v6");
    }
    return tuner;
}

static inline void *init_tuner(const struct tuner_v6 *tuner, uint64_t comm_id, uint32_t ranks)
{
    void *memory = calloc(1, 4096); /* a stand-in for ncclComm: NCCL passes the address of a field inside it */
    void **context = (void **)memory + 256;
    double constants[144] = {0};
    int domain[3] = {1, (int)ranks, (int)ranks};
    if (tuner->init(context, comm_id, ranks, 1, silent_log, domain, constants) != 0) {
        fail("tuner init failed");
    }
    return *context;
}

/* RING always, TREE for AllReduce, LL128 only at some sizes, so that some (A, P) are not available. */
static inline void offer_costs(float *table, uint32_t function, uint64_t bytes)
{
    for (int entry = 0; entry < ALGORITHMS * PROTOCOLS; entry++) {
        table[entry] = -1.0f;
    }
    for (int protocol = 0; protocol < PROTOCOLS; protocol++) {
        if (protocol == 1 && bytes % 3 == 0) {
            continue;
        }
        table[RING * PROTOCOLS + protocol] = 10.0f + (float)(bytes % 97) / (float)(protocol + 1);
        if (function == 4) {
            table[TREE * PROTOCOLS + protocol] = 12.0f + (float)(bytes % 89) / (float)(protocol + 1);
        }
    }
}

/* NCCL <= 2.30: the smallest entry >= 0, ties to the lowest index. */
static inline int cheapest(const float *table)
{
    int best = -1;
    for (int entry = 0; entry < ALGORITHMS * PROTOCOLS; entry++) {
        if (table[entry] >= 0 && (best < 0 || table[entry] < table[best])) {
            best = entry;
        }
    }
    return best;
}

static inline void ask_tuner(const struct tuner_v6 *tuner, void *context, struct task *task, int registered)
{
    float table[ALGORITHMS * PROTOCOLS], offered[ALGORITHMS * PROTOCOLS];
    int channels = 0;
    offer_costs(table, task->function, task->bytes);
    memcpy(offered, table, sizeof(table));
    if (tuner->get_coll_info(context, (int)task->function, task->bytes, 1, (float **)(void *)table, ALGORITHMS,
                             PROTOCOLS, registered, &channels) != 0) {
        fail("getCollInfo failed");
    }
    int entry = cheapest(table);
    if (entry < 0 || offered[entry] < 0) {
        fail("getCollInfo left nothing available, or chose what was not offered");
    }
    if (channels < 0 || channels > 127) {
        fail("nChannels does not fit NCCL's eight bits");
    }
    task->algorithm = entry / PROTOCOLS;
    task->protocol = entry % PROTOCOLS;
    task->channels = channels == 0 || channels > BUILT_CHANNELS ? BUILT_CHANNELS : channels;
    task->changed = channels != 0 || memcmp(table, offered, sizeof(table)) != 0;
}

static inline uint64_t ask_chunk(const struct tuner_v6 *tuner, void *context, struct task *task, uint64_t share)
{
    static const uint64_t grain[PROTOCOLS] = {16, 1920, 512};
    static const uint64_t largest[PROTOCOLS] = {32768, 576000, 2097152};
    size_t chunk = largest[task->protocol];
    if (tuner->get_chunk_size(context, (int)task->function, share, task->algorithm, task->protocol, 1, &chunk) != 0) {
        fail("getChunkSize failed");
    }
    task->changed |= chunk != largest[task->protocol];
    if (chunk > largest[task->protocol]) {
        chunk = largest[task->protocol];
    }
    chunk -= chunk % grain[task->protocol];
    if (chunk == 0) {
        fail("the chunk is below NCCL's grain");
    }
    return chunk;
}

/* One to three parts a collective, as NCCL deals a message to its first, last and middle channels. */
static inline void cut_chunks(const struct tuner_v6 *tuner, void *context, struct task *task)
{
    uint64_t parts = task->channels == 1 ? 1 : task->channels == 2 ? 2 : 3;
    uint64_t share = task->bytes / (uint64_t)task->channels;
    task->chunk = ask_chunk(tuner, context, task, share);
    for (uint64_t part = 1; part < parts; part++) {
        if (ask_chunk(tuner, context, task, share + part * 512) != task->chunk) {
            fail("two parts of one collective got two chunk sizes");
        }
    }
}

#endif
