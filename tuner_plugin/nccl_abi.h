/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_abi.h - the interface between NCCL and a tuner or profiler plugin, in our own declarations.
 *
 * NCCL looks a plugin's table of functions up by name (ncclTunerPlugin_v6, ncclProfiler_v5, ...), newest first, so one
 * library serves every NCCL. Only what we read is declared; tests/native/plugin_abi.c pins sizes and offsets, and
 * tests/contract/test_abi.py compares them with what the debug information of NVIDIA's wheels says.
 * Facts: NCCL 2.21 (tuner v2), 2.22 (v3), 2.24 (v4), 2.28.3 (v5), 2.30.3 (v6); 2.27 (profiler v4), 2.28.3 (v5), 2.29.2
 * (v6), 2.31.2 (v7).
 */
#ifndef LAGOM_NCCL_ABI_H
#define LAGOM_NCCL_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The only result we ever return: anything else fails the user's collective or communicator, whatever NCCL's own
 * comments say about falling back. */
enum nccl_result { NCCL_SUCCESS = 0 };

enum nccl_log_level { NCCL_LOG_WARN = 2, NCCL_LOG_INFO = 3 };
enum nccl_log_flag { NCCL_LOG_INIT = 0x1, NCCL_LOG_TUNING = 0x40 };
typedef void (*nccl_log_function)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

/* ---- Tuner -------------------------------------------------------------------------------------------------------
 *
 * getCollInfo, from v3 on
 *   in      context          what init left in *context; NULL if it left nothing
 *           function         enum lagom_function; numbers from 5 on belong to calls that are not tunable
 *           bytes            bytes a rank, max(send, receive): count x size, for AllGather and ReduceScatter x ranks
 *           pipe_ops         operations aggregated into this one call; 0 = an estimate, no call follows (seen in 2.32.3)
 *   in/out  cost             float[algorithms][protocols], flat: cost[a * protocols + p] although it is typed float **.
 *                            Predicted microseconds; < 0 = not available. NCCL takes the smallest.
 *   in      registered       (from v4) 1 = this rank's buffers may be registered (differs between ranks)
 *   in/out  channels         arrives 0 = NCCL's own pick; an answer > 0 replaces it (up to 2.30) or bounds it
 *                            (from 2.31)
 *
 * getCollInfo v2: no table. algorithm and protocol arrive -1 and are used as they are left, unchecked: both or neither
 * must be set. channels arrives 0; an answer > 0 is bounded by the channels there are. In a group NCCL asks once for
 * all collectives of a kind, which gives algorithm and protocol, and once for each, which gives its channels.
 *
 * getChunkSize (v6)
 *   in      bytes, channels  usually one channel's share and 1: not what getCollInfo saw
 *   in/out  chunk            NCCL's chunk in bytes; too large an answer is clamped, 0 kills the process
 */
#define NCCL_COLL_INFO(name)                                                                                           \
    int (*name)(void *context, int function, size_t bytes, int pipe_ops, float **cost, int algorithms, int protocols,  \
                int registered, int *channels)

/* Up to v4 the tuner does not get the communicator's id. */
#define NCCL_TUNER_INIT_V2(name) int (*name)(size_t ranks, size_t nodes, nccl_log_function log, void **context)

struct nccl_tuner_v2 {
    const char *name;
    NCCL_TUNER_INIT_V2(init);
    int (*get_coll_info)(void *context, int function, size_t bytes, int coll_net, int nvls, int pipe_ops,
                         int *algorithm, int *protocol, int *channels);
    int (*destroy)(void *context);
};

struct nccl_tuner_v3 {
    const char *name;
    NCCL_TUNER_INIT_V2(init);
    int (*get_coll_info)(void *context, int function, size_t bytes, int pipe_ops, float **cost, int algorithms,
                         int protocols, int *channels);
    int (*destroy)(void *context);
};

struct nccl_tuner_v4 {
    const char *name;
    NCCL_TUNER_INIT_V2(init);
    NCCL_COLL_INFO(get_coll_info);
    int (*destroy)(void *context);
};

/* From v5 on the communicator has an id, the same on all its ranks, and the profiler plugin hears the same one. */
#define NCCL_TUNER_INIT_V5(name)                                                                                       \
    int (*name)(void **context, uint64_t comm_id, size_t ranks, size_t nodes, nccl_log_function log, void *nvl_domain, \
                void *constants)

struct nccl_tuner_v5 {
    const char *name;
    NCCL_TUNER_INIT_V5(init);
    NCCL_COLL_INFO(get_coll_info);
    int (*finalize)(void *context);
};

struct nccl_tuner_v6 {
    const char *name;
    NCCL_TUNER_INIT_V5(init);
    NCCL_COLL_INFO(get_coll_info);
    int (*finalize)(void *context);
    int (*get_chunk_size)(void *context, int function, size_t bytes, int algorithm, int protocol, int channels,
                          size_t *chunk);
};

/* ---- Profiler ----------------------------------------------------------------------------------------------------
 *
 * Events carry the opaque handle of their parent; a start may leave its handle NULL. `mask` is one process-wide int of
 * NCCL's, read atomically whenever a collective is called: we may change it at any time. */
enum nccl_event {
    NCCL_EVENT_COLL = 1 << 1,      /* host: a collective is being launched; effective channels and warps */
    NCCL_EVENT_P2P = 1 << 2,       /* host: a send or receive is being launched */
    NCCL_EVENT_KERNEL_CH = 1 << 6, /* GPU: one channel of a kernel; the parent is the COLL event */
    NCCL_EVENT_GROUP_API = 1 << 8, /* v5: the program opened a group */
    NCCL_EVENT_COLL_API = 1 << 9,  /* v5: the program called a collective */
    NCCL_EVENT_P2P_API = 1 << 10,  /* v5: the program called send or receive */
    NCCL_EVENT_KERNEL_LAUNCH = 1 << 11, /* v5: brackets the launch of one kernel, on the thread that launches */
    NCCL_EVENT_CE_COLL = 1 << 12,  /* v6: a collective by copy engines, without a kernel */
};
enum nccl_event_state { NCCL_STATE_KERNEL_CH_STOP = 22 };

struct nccl_event_group_api {
    bool graph_captured;
    int depth;
};

struct nccl_event_coll_api {
    const char *function;
    size_t count;
    const char *type;
    int root;
    void *stream;
    bool graph_captured;
};

struct nccl_event_p2p_api {
    const char *function;
    size_t count;
    const char *type;
    void *stream;
    bool graph_captured;
};

/* The same head in v4 to v7; v5 appends the parent group, which we do not read. */
struct nccl_event_coll {
    uint64_t sequence; /* per function and communicator */
    const char *function;
    const void *send;
    void *receive;
    size_t count;
    int root;
    const char *type;
    uint8_t channels; /* that really run */
    uint8_t warps;
    const char *algorithm;
    const char *protocol;
};

/* v7 appends to that: a collective of symmetric-memory kernels says so, and which one. */
struct nccl_event_coll_v7 {
    struct nccl_event_coll head;
    void *parent_group;
    const char *kernel; /* of a symmetric kernel, its variant */
    bool symmetric;
};

struct nccl_event_kernel_ch {
    uint8_t channel;
    uint64_t gpu_ns; /* globaltimer at start */
};

union nccl_event_body {
    struct nccl_event_group_api group_api; /* v5 */
    struct nccl_event_coll_api coll_api;   /* v5 */
    struct nccl_event_p2p_api p2p_api;     /* v5 */
    struct nccl_event_coll coll;
    struct nccl_event_kernel_ch kernel_ch;
};

struct nccl_event_v4 {
    uint8_t type;
    void *parent;
    int rank;
    union nccl_event_body body;
};

struct nccl_event_v5 { /* and v6 */
    uint64_t type;
    void *parent;
    int rank;
    union nccl_event_body body;
};

/* As v5, and a body that is larger than any of the versions before: read only where the version is 7. */
struct nccl_event_v7 {
    uint64_t type;
    void *parent;
    int rank;
    union {
        union nccl_event_body body;
        struct nccl_event_coll_v7 coll;
    };
};

union nccl_event_state_args {
    struct {
        uint64_t gpu_ns; /* globaltimer at stop, with NCCL_STATE_KERNEL_CH_STOP */
    } kernel_ch;
};

#define NCCL_PROFILER_TAIL(event)                                                                                      \
    int (*start_event)(void *context, void **handle, event *description);                                              \
    int (*stop_event)(void *handle);                                                                                   \
    int (*record_event_state)(void *handle, int state, union nccl_event_state_args *args);                             \
    int (*finalize)(void *context)

struct nccl_profiler_v4 {
    const char *name;
    int (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_id, int nodes, int ranks, int rank,
                nccl_log_function log);
    NCCL_PROFILER_TAIL(struct nccl_event_v4);
};

#define NCCL_PROFILER_INIT_V5(name)                                                                                    \
    int (*name)(void **context, uint64_t comm_id, int *mask, const char *comm_name, int nodes, int ranks, int rank,    \
                nccl_log_function log)

struct nccl_profiler_v5 { /* and v6 */
    const char *name;
    NCCL_PROFILER_INIT_V5(init);
    NCCL_PROFILER_TAIL(struct nccl_event_v5);
};

struct nccl_profiler_v7 {
    const char *name;
    NCCL_PROFILER_INIT_V5(init);
    NCCL_PROFILER_TAIL(struct nccl_event_v7);
};

/* ncclGetVersion of the public API: 23007 is 2.30.7. */
typedef int (*nccl_get_version_function)(int *version);

/* ---- The same for every version --------------------------------------------------------------------------------- */

/* The arguments of tuner init. */
struct lagom_init_info {
    void **context_place;
    uint64_t comm_id;
    bool comm_id_known;
    uint32_t ranks;
    uint32_t nodes;
    uint32_t tuner_api;
};

/* One getCollInfo from v3 on. */
struct lagom_call {
    int function;
    size_t bytes;
    int pipe_ops;
    float **costs; /* flat float[algorithms][protocols] */
    int algorithms;
    int protocols;
    int registered;
    int *channels;
};

/* The arguments of profiler init. */
struct lagom_profiler_init_info {
    uint32_t api;
    uint64_t comm_id;
    int *mask;
    const char *name;
    int nodes;
    int ranks;
    int rank;
};

#endif
