/* SPDX-License-Identifier: Apache-2.0 */
/* dump_layout.c - prints what the compiler made of lagom_protocol.h as JSON, for tests/contract/test_layout.py.
 *
 * A program, not part of either library. A field that is missing here is found by the test too: the fields' sizes of a
 * struct must add up to its size, because the contract has no hidden padding.
 */
#include <stdio.h>

#include "plan/plan.h"
#include "protocol/lagom_protocol.h"
#include "shm/region.h"

#define BEGIN(type)                                                                                                    \
    (printf("%s\"%s\": {\"size\": %zu, \"fields\": [", first_struct ? "" : ",\n", #type, sizeof(struct type)),         \
     first_struct = 0, first_field = 1)
#define FIELD(type, name)                                                                                              \
    (printf("%s{\"name\": \"%s\", \"offset\": %zu, \"size\": %zu}", first_field ? "" : ", ", #name,                    \
            offsetof(struct type, name), sizeof(((struct type *)0)->name)),                                            \
     first_field = 0)
#define END() printf("]}")
#define CONSTANT(name)                                                                                                 \
    (printf("%s\"%s\": %lld", first_constant ? "" : ", ", #name, (long long)(name)), first_constant = 0)

static int first_struct = 1, first_field = 1, first_constant = 1;

#define T lagom_config
static void dump_config(void)
{
    BEGIN(lagom_config);
    FIELD(T, algorithm), FIELD(T, protocol), FIELD(T, channels), FIELD(T, threads), FIELD(T, reserved),
        FIELD(T, chunk_bytes);
    END();
}
#undef T

#define T lagom_site
static void dump_site(void)
{
    BEGIN(lagom_site);
    FIELD(T, bytes), FIELD(T, function), FIELD(T, incumbent), FIELD(T, candidate), FIELD(T, reserved);
    END();
}
#undef T

#define T lagom_rule
static void dump_rule(void)
{
    BEGIN(lagom_rule);
    FIELD(T, bytes_min), FIELD(T, bytes_max), FIELD(T, function), FIELD(T, incumbent), FIELD(T, candidate),
        FIELD(T, reserved);
    END();
}
#undef T

#define T lagom_plan
static void dump_plan(void)
{
    BEGIN(lagom_plan);
    FIELD(T, epoch), FIELD(T, hash), FIELD(T, comm_id), FIELD(T, start_call), FIELD(T, end_call),
        FIELD(T, history_call);
    FIELD(T, alternate_iterations), FIELD(T, flags), FIELD(T, position_count), FIELD(T, site_count),
        FIELD(T, rule_count);
    FIELD(T, reserved), FIELD(T, positions), FIELD(T, sites), FIELD(T, rules);
    END();
}
#undef T

#define T lagom_header
static void dump_header(void)
{
    BEGIN(lagom_header);
    FIELD(T, magic), FIELD(T, protocol_version), FIELD(T, header_bytes), FIELD(T, region_bytes), FIELD(T, owner_uid);
    FIELD(T, clock), FIELD(T, boot_hash), FIELD(T, created_ns), FIELD(T, job_key), FIELD(T, epoch_counter);
    FIELD(T, controller_pid), FIELD(T, controller_generation), FIELD(T, spawn_claim), FIELD(T, processes_seen);
    FIELD(T, places_refused);
    FIELD(T, reserved);
    END();
}
#undef T

#define T lagom_process
static void dump_process(void)
{
    BEGIN(lagom_process);
    FIELD(T, state), FIELD(T, pid), FIELD(T, simulated_now_ns), FIELD(T, nccl_version), FIELD(T, tuner_api);
    FIELD(T, profiler_api), FIELD(T, knobs), FIELD(T, gpu), FIELD(T, libnccl), FIELD(T, remark);
    FIELD(T, timeline_wanted), FIELD(T, timeline_state), FIELD(T, timeline_first_enable_ns), FIELD(T, timeline_records);
    FIELD(T, timeline_lost);
    FIELD(T, kernel_head), FIELD(T, kernel_drops), FIELD(T, traits), FIELD(T, saved_config), FIELD(T, pad1), FIELD(T, kernel_tail), FIELD(T, start_settings);
    FIELD(T, refusal), FIELD(T, timeline_remark);
    END();
}
#undef T

#define T lagom_communicator
static void dump_communicator(void)
{
    BEGIN(lagom_communicator);
    FIELD(T, comm_id), FIELD(T, state), FIELD(T, rank_count), FIELD(T, node_count), FIELD(T, ordinal), FIELD(T, name);
    FIELD(T, entered), FIELD(T, taken), FIELD(T, pad0), FIELD(T, word), FIELD(T, capture), FIELD(T, reserved);
    FIELD(T, publisher), FIELD(T, pad1);
    END();
}
#undef T

#define T lagom_slot
static void dump_slot(void)
{
    BEGIN(lagom_slot);
    FIELD(T, state), FIELD(T, process), FIELD(T, communicator), FIELD(T, rank), FIELD(T, comm_id), FIELD(T, device);
    FIELD(T, call_ring), FIELD(T, reserved), FIELD(T, calls), FIELD(T, history_hash), FIELD(T, call_head), FIELD(T, call_drops), FIELD(T, uncounted);
    FIELD(T, applied), FIELD(T, suspensions), FIELD(T, capturing), FIELD(T, call_tail), FIELD(T, pad0);
    FIELD(T, ack_plan_hash), FIELD(T, ack_history_hash), FIELD(T, ack_epoch), FIELD(T, refused_epoch);
    FIELD(T, refused_fault), FIELD(T, active_epoch), FIELD(T, active_start), FIELD(T, iterations);
    FIELD(T, untunable_p2p), FIELD(T, untunable_symmetric), FIELD(T, untunable_copy_engine);
    FIELD(T, times_refuted), FIELD(T, pad2);
    END();
}
#undef T

#define T lagom_call_record
static void dump_call_record(void)
{
    BEGIN(lagom_call_record);
    FIELD(T, call), FIELD(T, time_ns), FIELD(T, bytes), FIELD(T, epoch), FIELD(T, stock_us), FIELD(T, function);
    FIELD(T, stock_algorithm), FIELD(T, stock_protocol), FIELD(T, flags), FIELD(T, chosen), FIELD(T, position);
    FIELD(T, iteration), FIELD(T, site), FIELD(T, pipe_ops);
    END();
}
#undef T

#define T lagom_kernel_span
static void dump_kernel_span(void)
{
    BEGIN(lagom_kernel_span);
    FIELD(T, start_ns), FIELD(T, end_ns), FIELD(T, call), FIELD(T, bytes), FIELD(T, slot), FIELD(T, stream),
        FIELD(T, name);
    FIELD(T, channels), FIELD(T, threads), FIELD(T, source), FIELD(T, kind), FIELD(T, function), FIELD(T, algorithm);
    FIELD(T, protocol), FIELD(T, join), FIELD(T, untold), FIELD(T, reserved), FIELD(T, sequence), FIELD(T, blocks);
    END();
}
#undef T

#define T lagom_kernel_name
static void dump_kernel_name(void)
{
    BEGIN(lagom_kernel_name);
    FIELD(T, hash), FIELD(T, ready), FIELD(T, reserved), FIELD(T, text);
    END();
}
#undef T

#define T lagom_node_rules
static void dump_node_rules(void)
{
    BEGIN(lagom_node_rules);
    FIELD(T, state), FIELD(T, rule_count), FIELD(T, process), FIELD(T, reserved), FIELD(T, pad);
    FIELD(T, rank_counts), FIELD(T, rules);
    END();
}
#undef T

#define T lagom_region
static void dump_region(void)
{
    BEGIN(lagom_region);
    FIELD(T, header), FIELD(T, processes), FIELD(T, communicators), FIELD(T, slots), FIELD(T, plans), FIELD(T, calls);
    FIELD(T, kernels), FIELD(T, names), FIELD(T, node_rules);
    END();
}
#undef T

static void dump_geometry(void)
{
    CONSTANT(LAGOM_MAGIC), CONSTANT(LAGOM_PROTOCOL_VERSION), CONSTANT(LAGOM_MAX_PROCESSES),
        CONSTANT(LAGOM_MAX_COMMUNICATORS);
    CONSTANT(LAGOM_MAX_SLOTS), CONSTANT(LAGOM_MAX_PLANS), CONSTANT(LAGOM_MAX_CALL_RINGS),
        CONSTANT(LAGOM_ONE_NODE_COMMUNICATORS), CONSTANT(LAGOM_ONE_NODE_SLOTS), CONSTANT(LAGOM_CALL_RING_CAPACITY), CONSTANT(LAGOM_KERNEL_RING_CAPACITY);
    CONSTANT(LAGOM_MAX_POSITIONS), CONSTANT(LAGOM_MAX_SITES), CONSTANT(LAGOM_MAX_RULES), CONSTANT(LAGOM_NAME_BYTES);
    CONSTANT(LAGOM_PATH_BYTES), CONSTANT(LAGOM_TRANSPARENT_BELOW_BYTES), CONSTANT(LAGOM_LEAVE),
        CONSTANT(LAGOM_UNKNOWN_RANK), CONSTANT(LAGOM_UNKNOWN_DEVICE);
    CONSTANT(LAGOM_MAX_KERNEL_NAMES), CONSTANT(LAGOM_KERNEL_NAME_BYTES);
    CONSTANT(LAGOM_LOCK_CONTROLLER), CONSTANT(LAGOM_LOCK_JANITOR), CONSTANT(LAGOM_LOCK_REGISTER),
        CONSTANT(LAGOM_LOCK_PROCESS);
}

static void dump_enums(void)
{
    CONSTANT(LAGOM_BROADCAST), CONSTANT(LAGOM_REDUCE), CONSTANT(LAGOM_ALL_GATHER), CONSTANT(LAGOM_REDUCE_SCATTER);
    CONSTANT(LAGOM_ALL_REDUCE), CONSTANT(LAGOM_ANY_FUNCTION), CONSTANT(LAGOM_TREE), CONSTANT(LAGOM_RING);
    CONSTANT(LAGOM_COLLNET_DIRECT), CONSTANT(LAGOM_COLLNET_CHAIN), CONSTANT(LAGOM_NVLS), CONSTANT(LAGOM_NVLS_TREE);
    CONSTANT(LAGOM_PAT), CONSTANT(LAGOM_LL), CONSTANT(LAGOM_LL128), CONSTANT(LAGOM_SIMPLE);
    CONSTANT(LAGOM_COMMITTED), CONSTANT(LAGOM_PREPARED), CONSTANT(LAGOM_ABORTED), CONSTANT(LAGOM_LOCKED);
    CONSTANT(LAGOM_FREE), CONSTANT(LAGOM_CLAIMED), CONSTANT(LAGOM_READY), CONSTANT(LAGOM_GONE);
    CONSTANT(LAGOM_CLOCK_MONOTONIC), CONSTANT(LAGOM_CLOCK_SIMULATED);
    CONSTANT(LAGOM_PLAN_HAS_CANDIDATE), CONSTANT(LAGOM_PLAN_START_SEARCHING), CONSTANT(LAGOM_PLAN_LAST_ACK_COMMITS);
    CONSTANT(LAGOM_PLAN_LATE_HISTORY);
    CONSTANT(LAGOM_KNOB_CHANNELS), CONSTANT(LAGOM_KNOB_ALGORITHM), CONSTANT(LAGOM_KNOB_CHUNK),
        CONSTANT(LAGOM_KNOB_THREADS);
    CONSTANT(LAGOM_KNOB_ONLINE), CONSTANT(LAGOM_CAPTURE_CALLS), CONSTANT(LAGOM_CAPTURE_ITERATION);
    CONSTANT(LAGOM_TRAIT_PEER_ACCESS), CONSTANT(LAGOM_TRAIT_SIMULATED), CONSTANT(LAGOM_SAVED_CONFIG_NONE);
    CONSTANT(LAGOM_SAVED_CONFIG_FITS), CONSTANT(LAGOM_SAVED_CONFIG_UNREADABLE);
    CONSTANT(LAGOM_SAVED_CONFIG_OTHER_SETTING), CONSTANT(LAGOM_SAVED_CONFIG_SIMULATED);
    CONSTANT(LAGOM_TIMELINE_ABSENT), CONSTANT(LAGOM_TIMELINE_OFF), CONSTANT(LAGOM_TIMELINE_STARTING);
    CONSTANT(LAGOM_TIMELINE_ON), CONSTANT(LAGOM_TIMELINE_YIELDED), CONSTANT(LAGOM_CAPTURE_KERNELS),
        CONSTANT(LAGOM_CALL_PROGRAM), CONSTANT(LAGOM_CALL_CANDIDATE);
    CONSTANT(LAGOM_CALL_APPLIED), CONSTANT(LAGOM_CALL_TRANSPARENT), CONSTANT(LAGOM_CALL_UNAVAILABLE);
    CONSTANT(LAGOM_CALL_REGISTERED), CONSTANT(LAGOM_SPAN_NCCL_EVENT), CONSTANT(LAGOM_SPAN_NCCL_KERNEL);
    CONSTANT(LAGOM_SPAN_CUPTI), CONSTANT(LAGOM_SPAN_SIMULATED), CONSTANT(LAGOM_SPAN_COMPUTE),
        CONSTANT(LAGOM_SPAN_COLLECTIVE);
    CONSTANT(LAGOM_SPAN_P2P), CONSTANT(LAGOM_SPAN_OTHER);
    CONSTANT(LAGOM_REGION_OK), CONSTANT(LAGOM_REGION_MISSING), CONSTANT(LAGOM_REGION_FOREIGN),
        CONSTANT(LAGOM_REGION_DAMAGED);
    CONSTANT(LAGOM_REGION_VERSION), CONSTANT(LAGOM_REGION_STALE), CONSTANT(LAGOM_REGION_NO_SPACE);
    CONSTANT(LAGOM_REGION_SYSTEM), CONSTANT(LAGOM_REGION_HELD), CONSTANT(LAGOM_REGION_FULL),
        CONSTANT(LAGOM_REGION_TWICE), CONSTANT(LAGOM_REGION_LIMIT);
}

#define T lagom_mapping
static void dump_mapping(void)
{
    BEGIN(lagom_mapping);
    FIELD(T, region), FIELD(T, fd), FIELD(T, error), FIELD(T, process), FIELD(T, controller), FIELD(T, path);
    END();
}
#undef T

int main(void)
{
    printf("{\"structs\": {\n");
    dump_config(), dump_site(), dump_rule(), dump_plan(), dump_header(), dump_process(), dump_communicator(),
        dump_slot();
    dump_call_record(), dump_kernel_span(), dump_kernel_name(), dump_node_rules(), dump_region(), dump_mapping();
    printf("},\n\"constants\": {");
    dump_geometry();
    dump_enums();
    printf("}}\n");
    return 0;
}
