# SPDX-License-Identifier: Apache-2.0
"""NCCL's side of the plugin ABI: the structs and callbacks of tuner v2..v6 and profiler v4..v7, in cffi's C dialect.

Written from NCCL's public headers (``src/include/plugin/nccl_tuner.h`` and ``nccl_profiler.h`` of 2.21 .. 2.32), not
from the plugin's own copy: where the two disagree about a byte, a virtual rank is meant to notice. Both are compared
with the debug information of NVIDIA's wheels by ``tests/contract/test_abi.py``. ``parsed_abi.py`` is made of it::

    python -m lagom.sim.virtual.abi
"""

from __future__ import annotations

from pathlib import Path

from lagom.sim.virtual.parsed_abi import ffi as ffi

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

# Arguments and fields that several versions share, once each; a version is composed of them.
PLAIN_INIT = "int (*init)(size_t ranks, size_t nodes, nccl_logger log, void **context);"
INIT_WITH_ID = """int (*init)(void **context, uint64_t comm_id, size_t ranks, size_t nodes, nccl_logger log,
        nvl_domain *domain, tuner_constants *constants);"""
ASKED = "void *context, int function, size_t bytes"
TABLE = "int pipe_ops, float **table, int algorithms, int protocols"
ASK_ANSWER = (
    f"int (*getCollInfo)({ASKED}, int coll_net, int nvls, int pipe_ops, int *algorithm, int *protocol,\n"
    "        int *channels);"
)
ASK_TABLE = f"int (*getCollInfo)({ASKED}, {TABLE}, int *channels);"
ASK_REGISTERED = f"int (*getCollInfo)({ASKED}, {TABLE}, int registered, int *channels);"
DESTROY, FINALIZE = "int (*destroy)(void *context);", "int (*finalize)(void *context);"
ASK_CHUNK = f"int (*getChunkSize)({ASKED}, int algorithm, int protocol, int channels, size_t *chunk);"

TUNERS = {
    2: (PLAIN_INIT, ASK_ANSWER, DESTROY),
    3: (PLAIN_INIT, ASK_TABLE, DESTROY),
    4: (PLAIN_INIT, ASK_REGISTERED, DESTROY),
    5: (INIT_WITH_ID, ASK_REGISTERED, FINALIZE),
    6: (INIT_WITH_ID, ASK_REGISTERED, FINALIZE, ASK_CHUNK),
}

COLL = """uint64_t sequence; const char *function; const void *send; void *receive; size_t count; int root;
        const char *datatype; uint8_t channels; uint8_t warps; const char *algorithm; const char *protocol;"""
KERNEL_CHANNEL = "struct { uint8_t channel; uint64_t timer; } kernel_channel;"
COLL_API = "const char *function; size_t count; const char *datatype; int root; void *stream; bool captured;"
GROUP_API = "struct { bool captured; int depth; } group_api;"
LAUNCH = "struct { void *stream; } kernel_launch;"

#: version -> (type of the event's `type`, members of its union, words of room that make up the rest of it)
EVENTS = {
    4: ("uint8_t", f"struct {{ {COLL} }} coll; {KERNEL_CHANNEL}", 10),
    5: (
        "uint64_t",
        f"{GROUP_API} struct {{ {COLL_API} }} coll_api; {LAUNCH} struct {{ {COLL} void *parent_group; }} coll; "
        f"{KERNEL_CHANNEL}",
        11,
    ),
    7: (
        "uint64_t",
        f"{GROUP_API} struct {{ {COLL_API} uint64_t tag; }} coll_api; {LAUNCH} struct {{ {COLL} void *parent_group; "
        f"const char *kernel; bool symmetric; uint64_t tag; }} coll; {KERNEL_CHANNEL}",
        14,
    ),
}
EVENTS_OF = {4: 4, 5: 5, 6: 5, 7: 7}  # profiler version -> the version whose event it has
PROFILER_INITS = {
    4: "int *mask, const char *comm_name, uint64_t comm_id",
    **dict.fromkeys((5, 6, 7), "uint64_t comm_id, int *mask, const char *comm_name"),
}


def _tuner(version: int) -> str:
    functions = "\n    ".join(TUNERS[version])
    return f"typedef struct {{\n    const char *name;\n    {functions}\n}} tuner_v{version};\n"


def _event(version: int) -> str:
    word, members, room = EVENTS[version]
    union = f"union {{ {members} uint64_t room[{room}]; }};"
    return f"typedef struct {{ {word} type; void *parent; int rank; {union} }} profiler_event_v{version};\n"


def _profiler(version: int) -> str:
    return f"""typedef struct {{
    const char *name;
    int (*init)(void **context, {PROFILER_INITS[version]}, int nodes, int ranks, int rank, nccl_logger log);
    int (*startEvent)(void *context, void **handle, profiler_event_v{EVENTS_OF[version]} *event);
    int (*stopEvent)(void *handle);
    int (*recordEventState)(void *handle, int state, profiler_state_args *args);
    int (*finalize)(void *context);
}} profiler_v{version};
"""


COMMON = """
typedef void (*nccl_logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);
typedef struct { int nvl_domains; int min_ranks; int max_ranks; } nvl_domain;
typedef struct {
    double base_latencies[7][3];
    double hw_latencies[3][7][3];
    double ll_max_bws[4][3];
    double ring_ll128_bws[4][3];
    double tree_ll128_bws[4][3];
    double tree_bws[4][3];
    double nvls_tree_bws[4][3];
} tuner_constants;
typedef union {
    size_t bytes; int appended; void *data; struct { uint64_t timer; } kernel_channel;
} profiler_state_args;
"""

DECLARATIONS = "".join([
    COMMON,
    *(f"{_tuner(version)}extern tuner_v{version} ncclTunerPlugin_v{version};\n" for version in TUNERS),
    *map(_event, EVENTS),
    *(f"{_profiler(version)}extern profiler_v{version} ncclProfiler_v{version};\n" for version in PROFILER_INITS),
])  # fmt: skip

if __name__ == "__main__":
    from lagom.wire.declarations import write_parsed

    write_parsed(Path(__file__).with_name("parsed_abi.py"), DECLARATIONS)
