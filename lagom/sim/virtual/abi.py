"""NCCL's side of the plugin ABI: the structs and callbacks of tuner v4..v6 and profiler v4..v6, in cffi's C dialect.

Written from NCCL's public headers (``src/include/plugin/nccl_tuner.h`` and ``nccl_profiler.h`` of 2.24 .. 2.30), not
from the plugin's own copy: where the two disagree about a byte, a virtual rank is meant to notice.
"""

from __future__ import annotations

from cffi import FFI

ALGORITHMS = 7
PROTOCOLS = 3
IGNORE = -1.0  # NCCL_ALGO_PROTO_IGNORE: this (algorithm, protocol) is not available
SUCCESS = 0

# Bits of the profiler's activation mask (nccl_profiler.h).
EVENT_COLL = 1 << 1
EVENT_KERNEL_CHANNEL = 1 << 6
EVENT_GROUP_API = 1 << 8
EVENT_COLL_API = 1 << 9
EVENT_KERNEL_LAUNCH = 1 << 11
STATE_KERNEL_CHANNEL_STOP = 22

FUNCTION_NAMES = ("Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce")
ALGORITHM_NAMES = ("TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT")
PROTOCOL_NAMES = ("LL", "LL128", "SIMPLE")

TUNER = """
typedef void (*nccl_logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);

typedef struct {
    const char *name;
    int (*init)(size_t ranks, size_t nodes, nccl_logger log, void **context);
    int (*getCollInfo)(void *context, int function, size_t bytes, int pipe_ops, float **table, int algorithms,
                       int protocols, int registered, int *channels);
    int (*destroy)(void *context);
} tuner_v4;

typedef struct { int nvl_domains; int min_ranks; int max_ranks; } nvl_domain_v5;
typedef struct {
    double base_latencies[7][3];
    double hw_latencies[3][7][3];
    double ll_max_bws[4][3];
    double ring_ll128_bws[4][3];
    double tree_ll128_bws[4][3];
    double tree_bws[4][3];
    double nvls_tree_bws[4][3];
} tuner_constants_v5;

typedef struct {
    const char *name;
    int (*init)(void **context, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, nvl_domain_v5 *domain,
                tuner_constants_v5 *constants);
    int (*getCollInfo)(void *context, int function, size_t bytes, int pipe_ops, float **table, int algorithms,
                       int protocols, int registered, int *channels);
    int (*finalize)(void *context);
} tuner_v5;

typedef struct {
    const char *name;
    int (*init)(void **context, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log, nvl_domain_v5 *domain,
                tuner_constants_v5 *constants);
    int (*getCollInfo)(void *context, int function, size_t bytes, int pipe_ops, float **table, int algorithms,
                       int protocols, int registered, int *channels);
    int (*finalize)(void *context);
    int (*getChunkSize)(void *context, int function, size_t bytes, int algorithm, int protocol, int channels,
                        size_t *chunk);
} tuner_v6;

extern tuner_v4 ncclTunerPlugin_v4;
extern tuner_v5 ncclTunerPlugin_v5;
extern tuner_v6 ncclTunerPlugin_v6;
"""

PROFILER = """
typedef struct {
    uint8_t type;
    void *parent;
    int rank;
    union {
        struct {
            uint64_t sequence; const char *function; const void *send; void *receive; size_t count; int root;
            const char *datatype; uint8_t channels; uint8_t warps; const char *algorithm; const char *protocol;
        } coll;
        struct { uint8_t channel; uint64_t timer; } kernel_channel;
        uint64_t room[12];
    };
} profiler_event_v4;

typedef struct {
    uint64_t type;
    void *parent;
    int rank;
    union {
        struct { bool captured; int depth; } group_api;
        struct {
            const char *function; size_t count; const char *datatype; int root; void *stream; bool captured;
        } coll_api;
        struct { void *stream; } kernel_launch;
        struct {
            uint64_t sequence; const char *function; const void *send; void *receive; size_t count; int root;
            const char *datatype; uint8_t channels; uint8_t warps; const char *algorithm; const char *protocol;
            void *parent_group;
        } coll;
        struct { uint8_t channel; uint64_t timer; } kernel_channel;
        uint64_t room[12];
    };
} profiler_event_v5;

typedef union {
    size_t bytes; int appended; void *data; struct { uint64_t timer; } kernel_channel;
} profiler_state_args;

typedef struct {
    const char *name;
    int (*init)(void **context, int *mask, const char *comm_name, uint64_t comm_id, int nodes, int ranks, int rank,
                nccl_logger log);
    int (*startEvent)(void *context, void **handle, profiler_event_v4 *event);
    int (*stopEvent)(void *handle);
    int (*recordEventState)(void *handle, int state, profiler_state_args *args);
    int (*finalize)(void *context);
} profiler_v4;

typedef struct {
    const char *name;
    int (*init)(void **context, uint64_t comm_id, int *mask, const char *comm_name, int nodes, int ranks, int rank,
                nccl_logger log);
    int (*startEvent)(void *context, void **handle, profiler_event_v5 *event);
    int (*stopEvent)(void *handle);
    int (*recordEventState)(void *handle, int state, profiler_state_args *args);
    int (*finalize)(void *context);
} profiler_v5;

extern profiler_v4 ncclProfiler_v4;
extern profiler_v5 ncclProfiler_v5;
extern profiler_v5 ncclProfiler_v6;
"""

ffi = FFI()
ffi.cdef(TUNER + PROFILER)
