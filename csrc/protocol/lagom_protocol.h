/* SPDX-License-Identifier: Apache-2.0 */
/* lagom_protocol.h - THE contract between the ranks of one node and their controller.
 *
 * One region a node and job lies in shared memory. Both ends map it: the tuner plugin inside every rank process, and
 * the Python controller (through liblagom.so; Python never writes the region itself). Everything here has a fixed
 * width; the asserts below pin every offset that matters, and tests/contract compares them field by field with what
 * Python sees.
 *
 * Layout:  header | processes[] | communicators[] | slots[] | plans[] | call rings[] | kernel rings[] | names[]
 *          | node rules
 *
 * Who writes what is said at each field: R = the rank that owns the entry, C = the controller, X = whoever creates the
 * region, CAS = anybody, by compare-and-swap only. What is read from the region may be garbage and is checked before
 * use.
 *
 * This header knows nothing of NCCL beyond the numbering of functions, algorithms and protocols (stable 2.19..2.32).
 */
#ifndef LAGOM_PROTOCOL_H
#define LAGOM_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#define LAGOM_MAGIC 0x31304d4f47414cULL /* "LAGOM01" */
#define LAGOM_PROTOCOL_VERSION 5u

/* Geometry. 8.0 MB in all: Docker's whole /dev/shm is 64 MB, and we stay below an eighth of that.
 *
 * A large job has far more process groups than can be tuned: of 1,024 ranks divided as Megatron-core does, 8 ranks of one
 * node belong to up to 130 communicators with 200 slots, of which up to 46 with 120 slots lie within the node
 * (tests/system/test_process_groups.py). Each of them has an entry. What is large is for fewer of them: communicator i has
 * a plan if i < LAGOM_MAX_PLANS, and a slot a call ring as long as there are some. Only communicators of one node can be
 * tuned so far, and they come first: one that spans nodes never gets an index below LAGOM_ONE_NODE_*, and its slots give
 * their rings up where there are no others. */
#define LAGOM_MAX_PROCESSES 16u
#define LAGOM_MAX_COMMUNICATORS 192u
#define LAGOM_MAX_SLOTS 320u /* (process, communicator) pairs */
#define LAGOM_MAX_PLANS 64u
#define LAGOM_MAX_CALL_RINGS 132u
#define LAGOM_ONE_NODE_COMMUNICATORS 48u
#define LAGOM_ONE_NODE_SLOTS 120u
#define LAGOM_CALL_RING_CAPACITY 512u
#define LAGOM_KERNEL_RING_CAPACITY 2048u

#define LAGOM_MAX_POSITIONS 4096u /* 80 layers x 3 collectives x 8 micro-batches is 1,920 */
#define LAGOM_MAX_SITES 256u
#define LAGOM_MAX_RULES 32u
#define LAGOM_NAME_BYTES 64u
#define LAGOM_START_SETTINGS 56u /* variables whose values a process reports, at most */
#define LAGOM_PATH_BYTES 256u

/* Calls below this size do not advance the program; nor do Broadcast and Reduce. They are "transparent": a logging
 * gather, a clip_grad_norm or a barrier between two iterations must not switch the tuner off. */
#define LAGOM_TRANSPARENT_BELOW_BYTES 65536u

enum lagom_function {
    LAGOM_BROADCAST = 0,
    LAGOM_REDUCE = 1,
    LAGOM_ALL_GATHER = 2,
    LAGOM_REDUCE_SCATTER = 3,
    LAGOM_ALL_REDUCE = 4,
    LAGOM_FUNCTIONS = 5,
    LAGOM_ANY_FUNCTION = 255, /* in rules only */
};

enum lagom_algorithm {
    LAGOM_TREE = 0,
    LAGOM_RING = 1,
    LAGOM_COLLNET_DIRECT = 2,
    LAGOM_COLLNET_CHAIN = 3,
    LAGOM_NVLS = 4,
    LAGOM_NVLS_TREE = 5,
    LAGOM_PAT = 6,
    LAGOM_ALGORITHMS = 7,
};

enum lagom_protocol_kind { LAGOM_LL = 0, LAGOM_LL128 = 1, LAGOM_SIMPLE = 2, LAGOM_PROTOCOLS = 3 };

/* What one call should use. Each knob can be left to NCCL. 12 bytes. */
#define LAGOM_LEAVE (-1)
struct lagom_config {
    int8_t algorithm;     /* enum lagom_algorithm, or LAGOM_LEAVE */
    int8_t protocol;      /* enum lagom_protocol_kind, or LAGOM_LEAVE */
    uint16_t channels;    /* NC; 0 = leave */
    uint16_t threads;     /* NT; 0 = leave. RING only, where LAGOM_NT=1 */
    uint16_t reserved;    /* 0 */
    uint32_t chunk_bytes; /* C; 0 = leave. NCCL >= 2.30.3 */
};
_Static_assert(sizeof(struct lagom_config) == 12, "config is copied into sites, rules and call records");

/* ---- The plan: what the ranks of one communicator agree on ------------------------------------------------------ */

/* Calls that share one config because they play the same part. */
struct lagom_site {
    uint64_t bytes; /* nBytes of getCollInfo, exact */
    uint32_t function;
    struct lagom_config incumbent;
    struct lagom_config candidate; /* equals incumbent where the plan tries nothing here */
    uint32_t reserved;
};
_Static_assert(sizeof(struct lagom_site) == 40, "sites are an array in the plan");

/* The fallback where no program is armed: by function and size. First match wins. */
struct lagom_rule {
    uint64_t bytes_min; /* inclusive */
    uint64_t bytes_max; /* inclusive */
    uint32_t function;  /* or LAGOM_ANY_FUNCTION */
    struct lagom_config incumbent;
    struct lagom_config candidate;
    uint32_t reserved;
};
_Static_assert(sizeof(struct lagom_rule) == 48, "rules are an array in the plan");

enum lagom_plan_flags {
    LAGOM_PLAN_HAS_CANDIDATE = 1u << 0,    /* a lease: end_call must be set */
    LAGOM_PLAN_START_SEARCHING = 1u << 1,  /* at start_call the program is unarmed and looks for its period (replay) */
    LAGOM_PLAN_LAST_ACK_COMMITS = 1u << 2, /* no controller: the last acknowledging rank commits (replay) */
};

/* A schedule, not a table: {incumbent, candidate, from call N, alternate every k iterations, until call M}.
 * From start_call on, a rank decides by the plan alone and never reads the region for it again. */
struct lagom_plan {
    uint64_t epoch;        /* the word's epoch this plan belongs to; never reused in the life of a region */
    uint64_t hash;         /* lagom_plan_hash(): over every other byte in use */
    uint64_t comm_id;
    uint64_t start_call;   /* N: first call decided by this plan; position 0 unless START_SEARCHING */
    uint64_t end_call;     /* M: from here on incumbent for all; 0 = open-ended (then no candidate) */
    uint64_t history_call; /* acknowledgements carry the rolling hash of all calls before this one */
    uint32_t alternate_iterations; /* k: blocks of k iterations, in the order incumbent, candidate, candidate, incumbent */
    uint32_t flags;                /* enum lagom_plan_flags */
    uint32_t position_count;       /* the period; 0 = no program, rules only */
    uint32_t site_count;
    uint32_t rule_count;
    uint32_t reserved;
    uint16_t positions[LAGOM_MAX_POSITIONS]; /* position -> index into sites */
    struct lagom_site sites[LAGOM_MAX_SITES];
    struct lagom_rule rules[LAGOM_MAX_RULES];
};
_Static_assert(sizeof(struct lagom_plan) == 72 + 2 * LAGOM_MAX_POSITIONS + 40 * LAGOM_MAX_SITES + 48 * LAGOM_MAX_RULES,
               "no hidden padding: the plan is hashed and compared byte by byte");

/* ---- The switch word: state | epoch ----------------------------------------------------------------------------- */

/* Two bits of state, 62 bits of epoch. Zeroed memory reads COMMITTED epoch 0: stock NCCL. */
enum lagom_switch_state {
    LAGOM_COMMITTED = 0,
    LAGOM_PREPARED = 1,
    LAGOM_ABORTED = 2,
    LAGOM_LOCKED = 3, /* reserved: several nodes, outcome lies in the job's store */
};
#define LAGOM_WORD(state, epoch) (((uint64_t)(epoch) << 2) | (uint64_t)(state))
#define LAGOM_WORD_STATE(word) ((enum lagom_switch_state)((word) & 3u))
#define LAGOM_WORD_EPOCH(word) ((uint64_t)(word) >> 2)

/* ---- Entries ---------------------------------------------------------------------------------------------------- */

enum lagom_clock { LAGOM_CLOCK_MONOTONIC = 0, LAGOM_CLOCK_SIMULATED = 1 };

struct lagom_header {
    uint64_t magic;            /* X, last of all: an attacher that sees it sees everything else */
    uint32_t protocol_version; /* X */
    uint32_t header_bytes;     /* X; sizeof(struct lagom_header) */
    uint64_t region_bytes;     /* X */
    uint32_t owner_uid;        /* X */
    uint32_t clock;            /* X; enum lagom_clock. SIMULATED: stamps come from process.simulated_now_ns */
    uint64_t boot_hash;        /* X; hash of the kernel's boot id: a region from before a reboot is stale */
    uint64_t created_ns;       /* X; CLOCK_REALTIME */
    char job_key[LAGOM_PATH_BYTES]; /* X; the name before hashing, for doctor */
    uint64_t epoch_counter;    /* C or publisher, fetch_add: epochs are unique over all communicators of the region */
    uint64_t controller_pid;   /* C; for people. Liveness is the controller's lock byte, never this */
    uint64_t controller_generation; /* C; counts attached controllers */
    uint64_t spawn_claim;      /* CAS 0 -> process + 1: who starts the controller (environment-only use) */
    uint64_t processes_seen;   /* R, fetch_add at registration: "no ranks yet" differs from "all gone" */
    uint64_t places_refused;   /* R, fetch_add: how often a rank got no place for a communicator, or one of this node no
                                  plan or call ring */
    uint64_t reserved[20];
};
_Static_assert(offsetof(struct lagom_header, job_key) == 48, "");
_Static_assert(sizeof(struct lagom_header) == 8 * 64, "");

/* What became of the saved config that the job was given: not read, in use, or refused: from LAGOM_SAVED_CONFIG_UNREADABLE
 * on. OTHER: it was made for another number of ranks, and so on; struct lagom_refusal has which. */
enum lagom_saved_config {
    LAGOM_SAVED_CONFIG_NONE = 0,
    LAGOM_SAVED_CONFIG_FITS = 1,
    LAGOM_SAVED_CONFIG_UNREADABLE = 2, /* process.remark says why */
    LAGOM_SAVED_CONFIG_OTHER_RANKS = 3,
    LAGOM_SAVED_CONFIG_OTHER_NODES = 4,
    LAGOM_SAVED_CONFIG_OTHER_NCCL = 5,
    LAGOM_SAVED_CONFIG_OTHER_GPU = 6,
    LAGOM_SAVED_CONFIG_OTHER_PEER_ACCESS = 7,
    LAGOM_SAVED_CONFIG_OTHER_SETTING = 8,
    LAGOM_SAVED_CONFIG_SIMULATED = 9, /* made in a simulated job, and this one is real */
};

/* What a saved config was made for, and what is here; nothing is decided by it. Empty: unreadable, or not known here. */
struct lagom_refusal {
    char setting[LAGOM_NAME_BYTES]; /* OTHER_SETTING: the variable's name */
    char wanted[LAGOM_NAME_BYTES];
    char here[LAGOM_NAME_BYTES];
};

enum lagom_entry_state { LAGOM_FREE = 0, LAGOM_CLAIMED = 1, LAGOM_READY = 2, LAGOM_GONE = 3 };

/* One rank process. Its lock byte is LAGOM_LOCK_PROCESS + index. */
struct lagom_process {
    uint32_t state;         /* CAS FREE -> CLAIMED by R; READY by R; FREE again by C after the lock byte is free */
    uint32_t pid;           /* R; for people */
    uint64_t simulated_now_ns; /* R; only under LAGOM_CLOCK_SIMULATED */
    uint32_t nccl_version;  /* R; 23007 = 2.30.7; 0 = unknown */
    uint32_t tuner_api;     /* R; 2..6 */
    uint32_t profiler_api;  /* R; 4..7, 0 = the profiler plugin is not loaded */
    uint32_t knobs;         /* R; enum lagom_knobs: what this process can set */
    char gpu[LAGOM_NAME_BYTES];        /* R; product name, for the fingerprint */
    char libnccl[LAGOM_PATH_BYTES];    /* R; the file that called us */
    char remark[LAGOM_PATH_BYTES];     /* R; why something is not possible here, one sentence; empty = nothing to say */
    uint32_t timeline_wanted; /* C; 1 = record kernels through CUPTI while it stands */
    uint32_t timeline_state;  /* R; enum lagom_timeline_state */
    uint64_t timeline_first_enable_ns; /* R; what switching CUPTI on took the first time; 0 = never on */
    uint64_t timeline_records; /* R; kernel records that CUPTI delivered */
    uint64_t timeline_lost;    /* R; records that CUPTI dropped, or that were not ours to read */
    uint64_t kernel_head;   /* R; producer index of the kernel ring */
    uint64_t kernel_drops;  /* R */
    uint32_t traits;        /* R; enum lagom_traits: what the fingerprint of a saved config says */
    uint32_t saved_config;  /* R, after refusal; enum lagom_saved_config */
    uint64_t pad1[5];
    uint64_t kernel_tail;   /* C; consumer index */
    uint8_t start_settings[LAGOM_START_SETTINGS]; /* R, before knobs; config/environment.h */
    struct lagom_refusal refusal; /* R; of a saved config that is for another job */
    char timeline_remark[LAGOM_PATH_BYTES]; /* R; why no kernels are recorded, one sentence; empty = nothing to say */
};
_Static_assert(offsetof(struct lagom_process, gpu) == 32, "");
_Static_assert(offsetof(struct lagom_process, kernel_head) == 640, "producer and consumer index on lines of their own");
_Static_assert(sizeof(struct lagom_process) == 19 * 64, "");

enum lagom_timeline_state {
    LAGOM_TIMELINE_ABSENT = 0,  /* no CUPTI here, or not asked yet; process.timeline_remark says why */
    LAGOM_TIMELINE_OFF = 1,
    LAGOM_TIMELINE_STARTING = 2, /* the first time can take seconds */
    LAGOM_TIMELINE_ON = 3,
    LAGOM_TIMELINE_YIELDED = 4, /* somebody else profiles this process: process.timeline_remark says who */
};

enum lagom_knobs {
    LAGOM_KNOB_CHANNELS = 1u << 0,
    LAGOM_KNOB_ALGORITHM = 1u << 1, /* algorithm and protocol, through the cost table */
    LAGOM_KNOB_CHUNK = 1u << 2,
    LAGOM_KNOB_THREADS = 1u << 3,
    LAGOM_KNOB_ONLINE = 1u << 4, /* the communicator id is known here, so ranks can agree */
};

enum lagom_traits {
    LAGOM_TRAIT_PEER_ACCESS = 1u << 0, /* GPUs may talk directly: NCCL_P2P_DISABLE is not set */
    LAGOM_TRAIT_SIMULATED = 1u << 1,   /* a virtual rank: LAGOM_CLOCK=simulated */
};

enum lagom_capture {
    LAGOM_CAPTURE_CALLS = 1u << 0,     /* push a call record for every counted call */
    LAGOM_CAPTURE_ITERATION = 1u << 1, /* profiler plugin: time the kernel of position 0 (one an iteration) */
    LAGOM_CAPTURE_KERNELS = 1u << 2,   /* profiler plugin: time every kernel and report effective channels and warps */
};

/* One communicator as this node sees it. */
struct lagom_communicator {
    uint64_t comm_id;   /* CAS by R: 0 -> id (0 is mapped to 1) */
    uint32_t state;     /* R; READY when the fields below are there */
    uint32_t rank_count; /* R; nRanks of tuner init */
    uint32_t node_count; /* R */
    uint32_t ordinal;   /* R; how many communicators of this rank_count its first process had made before it */
    char name[LAGOM_NAME_BYTES]; /* R; process-group name where the profiler plugin knows it */
    uint32_t entered;   /* R, under the register lock; how often the entry was handed out by lagom_communicator_enter */
    uint32_t taken;     /* R, under the register lock; how many of those became slots: it is free only when both are equal */
    uint64_t pad0[4];
    uint64_t word;      /* CAS; the switch. Its own cache line with capture: all that the fast path reads */
    uint32_t capture;   /* C; enum lagom_capture */
    uint32_t reserved;
    uint64_t publisher; /* CAS 0 -> slot + 1 of the rank that replays, or -> LAGOM_CONTROLLER_PUBLISHES */
    uint64_t pad1[5];
};
_Static_assert(offsetof(struct lagom_communicator, word) == 128, "the fast path reads one line");
_Static_assert(sizeof(struct lagom_communicator) % 64 == 0, "");

/* One (process, communicator). */
struct lagom_slot {
    uint32_t state;      /* CAS FREE -> CLAIMED by R; READY; GONE at finalize; FREE by C */
    uint32_t process;    /* R; index */
    uint32_t communicator; /* R; index */
    uint32_t rank;       /* R; LAGOM_UNKNOWN_RANK without the profiler plugin */
    uint64_t comm_id;    /* R */
    uint32_t device;     /* R; CUDA device of the rank, as its process counts them; or LAGOM_UNKNOWN_DEVICE */
    uint32_t call_ring;  /* under the register lock; index of its call ring + 1; 0 = none: its calls are not recorded */
    uint64_t reserved[4];

    /* Its own cache line, written by R with release AFTER the decision of a call is made. */
    uint64_t calls;        /* counted calls so far = number of the next call */
    uint64_t history_hash; /* rolling hash after `calls` calls; written before `calls` */
    uint64_t call_head;    /* producer index of the call ring */
    uint64_t call_drops;
    uint64_t uncounted;    /* getCollInfo with no usable entry */
    uint64_t applied;      /* calls where we changed something */
    uint64_t suspensions;  /* times the program was left by a mismatch */
    uint64_t capturing;    /* 1 = a CUDA-graph capture was seen (regBuff or profiler): no more trials here */

    uint64_t call_tail;    /* C; consumer index */
    uint64_t pad0[7];

    /* Acknowledgement. R writes hash and history first, then ack_epoch with release. */
    uint64_t ack_plan_hash;
    uint64_t ack_history_hash;
    uint64_t ack_epoch;
    uint64_t refused_epoch; /* R; the plan of this epoch was refused (enum lagom_plan_fault in refused_fault) */
    uint64_t refused_fault;
    uint64_t active_epoch;  /* R; epoch of the plan in force */
    uint64_t active_start;  /* R; its start_call */
    uint64_t iterations;    /* R; of its program begun so far, stored at each position 0: Z without any recording */

    /* Never reaches the tuner; from the profiler plugin. */
    uint64_t untunable_p2p;
    uint64_t untunable_symmetric;
    uint64_t untunable_copy_engine;
    uint64_t times_refuted; /* R; 1 = NCCL's times of its kernels belong to other kernels (gpu_times.h); not used any more */
    uint64_t pad2[4];
};
#define LAGOM_UNKNOWN_RANK 0xffffffffu
#define LAGOM_CONTROLLER_PUBLISHES UINT64_MAX /* of lagom_communicator.publisher */
#define LAGOM_UNKNOWN_DEVICE 0xffffffffu
_Static_assert(sizeof(struct lagom_slot) == 5 * 64, "hot fields sit on cache lines of their own");

enum lagom_call_flags {
    LAGOM_CALL_PROGRAM = 1u << 0,   /* decided by the program: position is valid */
    LAGOM_CALL_CANDIDATE = 1u << 1, /* the candidate's config was in force */
    LAGOM_CALL_APPLIED = 1u << 2,   /* something was changed for NCCL */
    LAGOM_CALL_TRANSPARENT = 1u << 3,
    LAGOM_CALL_UNAVAILABLE = 1u << 4, /* the config named an (A, P) that NCCL did not offer: left alone */
    LAGOM_CALL_REGISTERED = 1u << 5,  /* regBuff; per rank, never an input */
};

/* One counted getCollInfo. 64 bytes. */
struct lagom_call_record {
    uint64_t call;    /* number on this communicator, from 0 */
    uint64_t time_ns; /* at decision, the region's clock */
    uint64_t bytes;
    uint64_t epoch;   /* of the plan in force */
    float stock_us;   /* NCCL's own prediction for its pick; -1 = unknown */
    uint8_t function;
    int8_t stock_algorithm; /* what NCCL would have chosen: the smallest usable cost */
    int8_t stock_protocol;
    uint8_t flags;    /* enum lagom_call_flags */
    struct lagom_config chosen; /* what we asked for; all "leave" = stock */
    uint32_t position; /* in the program, if LAGOM_CALL_PROGRAM */
    uint32_t iteration; /* since start_call, if LAGOM_CALL_PROGRAM */
    uint16_t site;     /* index into the plan's sites, if LAGOM_CALL_PROGRAM */
    uint16_t pipe_ops;
};
_Static_assert(sizeof(struct lagom_call_record) == 64, "one cache line a call");

enum lagom_span_source {
    LAGOM_SPAN_NCCL_EVENT = 1,  /* profiler plugin, host: effective channels and warps of a launched collective; no GPU time */
    LAGOM_SPAN_NCCL_KERNEL = 2, /* profiler plugin: KernelCh, GPU globaltimer */
    LAGOM_SPAN_CUPTI = 3,       /* csrc/timeline */
    LAGOM_SPAN_SIMULATED = 4,   /* virtual ranks */
};
/* How a kernel that CUPTI saw was joined with its call (csrc/timeline/README.md). */
enum lagom_join_result {
    LAGOM_JOIN_NOT_TRIED = 0, /* no NCCL kernel, or another source */
    LAGOM_JOIN_CALL = 1,      /* slot and call are known */
    LAGOM_JOIN_SLOT = 2,      /* the communicator only: send and receive, or a call nobody had asked to record */
    LAGOM_JOIN_AMBIGUOUS = 3, /* several places fit */
    LAGOM_JOIN_MISMATCH = 4,  /* no place fits */
    LAGOM_JOIN_DISPUTED = 5,  /* two threads launched at once */
    LAGOM_JOIN_NO_LAUNCH = 6, /* no launch was noted */
    LAGOM_JOIN_GRAPH = 7,     /* replayed by a CUDA graph */
    LAGOM_JOIN_RESULTS = 8,
};
enum lagom_span_kind { LAGOM_SPAN_COMPUTE = 0, LAGOM_SPAN_COLLECTIVE = 1, LAGOM_SPAN_P2P = 2, LAGOM_SPAN_OTHER = 3 };

/* One kernel. 64 bytes. */
struct lagom_kernel_span {
    uint64_t start_ns;
    uint64_t end_ns;
    uint64_t call;     /* call number on its communicator if kind is COLLECTIVE and it is known, else UINT64_MAX */
    uint64_t bytes;    /* of a collective as getCollInfo counts them, of a copy between GPUs, else 0 */
    uint32_t slot;     /* of the communicator, else LAGOM_UNKNOWN_RANK */
    uint32_t stream;
    uint32_t name;     /* index into names, plus 1; 0 = none */
    uint16_t channels; /* grid x; of a collective: channels that really ran */
    uint16_t threads;  /* block x */
    uint8_t source;    /* enum lagom_span_source */
    uint8_t kind;      /* enum lagom_span_kind */
    uint8_t function;
    int8_t algorithm;
    int8_t protocol;
    uint8_t join;   /* enum lagom_join_result */
    uint8_t untold; /* of a launched collective: 1 = no time by the GPU's clock will come */
    uint8_t reserved;
    uint32_t sequence; /* NCCL's sequence number of the collective */
    uint32_t blocks;   /* of the whole grid, all dimensions; 0 = unknown */
};
_Static_assert(sizeof(struct lagom_kernel_span) == 64, "");

/* A kernel's name, written once a node by whoever meets it first: CAS of hash, then the text, then `ready`. */
#define LAGOM_MAX_KERNEL_NAMES 1024u
#define LAGOM_KERNEL_NAME_BYTES 112u
struct lagom_kernel_name {
    uint64_t hash;  /* CAS 0 -> FNV-1a of the whole name */
    uint32_t ready; /* R; 1, with release, once the text stands */
    uint32_t reserved;
    char text[LAGOM_KERNEL_NAME_BYTES]; /* cut, always terminated */
};
_Static_assert(sizeof(struct lagom_kernel_name) == 128, "");

/* Size rules where communicators have no id (NCCL before 2.27), so that nothing can be agreed while the job runs: what
 * the first process of the node reads is what all of them use. Settled once, under the register lock, before the first
 * call of whoever settles it; a rule speaks for communicators of rank_counts[i] ranks, 0 = any. */
struct lagom_node_rules {
    uint32_t state;      /* FREE -> READY, never back */
    uint32_t rule_count; /* 0 = NCCL alone decides */
    uint32_t process;    /* whose reading it is */
    uint32_t reserved;
    uint64_t pad[6];
    uint32_t rank_counts[LAGOM_MAX_RULES];
    struct lagom_rule rules[LAGOM_MAX_RULES]; /* candidate equals incumbent; chunk and threads are left */
};
_Static_assert(sizeof(struct lagom_node_rules) % 64 == 0, "");

/* ---- The whole -------------------------------------------------------------------------------------------------- */

struct lagom_region {
    struct lagom_header header;
    struct lagom_process processes[LAGOM_MAX_PROCESSES];
    struct lagom_communicator communicators[LAGOM_MAX_COMMUNICATORS];
    struct lagom_slot slots[LAGOM_MAX_SLOTS];
    struct lagom_plan plans[LAGOM_MAX_PLANS]; /* written by the publisher before PREPARED, stable until decided */
    struct lagom_call_record calls[LAGOM_MAX_CALL_RINGS][LAGOM_CALL_RING_CAPACITY];
    struct lagom_kernel_span kernels[LAGOM_MAX_PROCESSES][LAGOM_KERNEL_RING_CAPACITY];
    struct lagom_kernel_name names[LAGOM_MAX_KERNEL_NAMES];
    struct lagom_node_rules node_rules;
};
_Static_assert(sizeof(struct lagom_region) <= 8000000u, "a region is at most 8 MB for 8 ranks");
_Static_assert(offsetof(struct lagom_region, calls) % 64 == 0, "one cache line a call");
_Static_assert((LAGOM_CALL_RING_CAPACITY & (LAGOM_CALL_RING_CAPACITY - 1)) == 0, "rings wrap by masking");
_Static_assert((LAGOM_KERNEL_RING_CAPACITY & (LAGOM_KERNEL_RING_CAPACITY - 1)) == 0, "rings wrap by masking");

/* F_SETLK byte ranges on the region's file: freed by the kernel at death, seen across PID namespaces, not inherited by
 * fork. One fd for life: closing any other fd of the same file would drop them. */
enum lagom_lock_byte {
    LAGOM_LOCK_CONTROLLER = 0,
    LAGOM_LOCK_JANITOR = 1, /* held while a stale region is judged and removed */
    LAGOM_LOCK_REGISTER = 2, /* held while the tables of processes, communicators and slots change: microseconds */
    LAGOM_LOCK_PROCESS = 64, /* + process index */
};

#endif
