# SPDX-License-Identifier: Apache-2.0
"""What Python knows of ``csrc/protocol/lagom_protocol.h`` and of the functions that liblagom exports, in cffi's dialect
of C: declaration for declaration. ``parsed.py`` is made of it, because parsing takes 0.15 s (2 cores, nothing beside
it), which every command, controller and virtual rank would wait for::

    python -m lagom.wire.declarations

writes it anew; a test compares the two.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import tempfile
from pathlib import Path

from cffi import FFI

STRUCTS = """
struct lagom_config {
    int8_t algorithm; int8_t protocol; uint16_t channels; uint16_t threads; uint16_t reserved; uint32_t chunk_bytes;
};
struct lagom_site {
    uint64_t bytes; uint32_t function; struct lagom_config incumbent; struct lagom_config candidate; uint32_t reserved;
};
struct lagom_rule {
    uint64_t bytes_min; uint64_t bytes_max; uint32_t function;
    struct lagom_config incumbent; struct lagom_config candidate; uint32_t reserved;
};
struct lagom_plan {
    uint64_t epoch; uint64_t hash; uint64_t comm_id; uint64_t start_call; uint64_t end_call; uint64_t history_call;
    uint32_t alternate_iterations; uint32_t flags; uint32_t position_count; uint32_t site_count; uint32_t rule_count;
    uint32_t reserved;
    uint16_t positions[4096];
    struct lagom_site sites[256];
    struct lagom_rule rules[32];
};
struct lagom_header {
    uint64_t magic; uint32_t protocol_version; uint32_t header_bytes; uint64_t region_bytes; uint32_t owner_uid;
    uint32_t clock; uint64_t boot_hash; uint64_t created_ns; char job_key[256]; uint64_t epoch_counter;
    uint64_t controller_pid; uint64_t controller_generation; uint64_t spawn_claim; uint64_t processes_seen;
    uint64_t places_refused; uint64_t reserved[20];
};
struct lagom_refusal { char setting[64]; char wanted[64]; char here[64]; };
struct lagom_process {
    uint32_t state; uint32_t pid; uint64_t simulated_now_ns; uint32_t nccl_version; uint32_t tuner_api;
    uint32_t profiler_api; uint32_t knobs; char gpu[64]; char libnccl[256]; char remark[256];
    uint32_t timeline_wanted; uint32_t timeline_state; uint64_t timeline_first_enable_ns; uint64_t timeline_records;
    uint64_t timeline_lost;
    uint64_t kernel_head; uint64_t kernel_drops; uint32_t traits;
    uint32_t saved_config; uint64_t pad1[5]; uint64_t kernel_tail; uint8_t start_settings[56];
    struct lagom_refusal refusal; char timeline_remark[256];
};
struct lagom_communicator {
    uint64_t comm_id; uint32_t state; uint32_t rank_count; uint32_t node_count; uint32_t ordinal; char name[64];
    uint32_t entered; uint32_t taken;
    uint64_t pad0[4]; uint64_t word; uint32_t capture; uint32_t reserved; uint64_t publisher; uint64_t pad1[5];
};
struct lagom_slot {
    uint32_t state; uint32_t process; uint32_t communicator; uint32_t rank; uint64_t comm_id;
    uint32_t device; uint32_t call_ring; uint64_t reserved[4];
    uint64_t calls; uint64_t history_hash; uint64_t call_head; uint64_t call_drops; uint64_t uncounted;
    uint64_t applied; uint64_t suspensions; uint64_t capturing;
    uint64_t call_tail; uint64_t pad0[7];
    uint64_t ack_plan_hash; uint64_t ack_history_hash; uint64_t ack_epoch; uint64_t refused_epoch;
    uint64_t refused_fault; uint64_t active_epoch; uint64_t active_start; uint64_t iterations;
    uint64_t untunable_p2p; uint64_t untunable_symmetric; uint64_t untunable_copy_engine; uint64_t times_refuted;
    uint64_t pad2[4];
};
struct lagom_call_record {
    uint64_t call; uint64_t time_ns; uint64_t bytes; uint64_t epoch; float stock_us; uint8_t function;
    int8_t stock_algorithm; int8_t stock_protocol; uint8_t flags; struct lagom_config chosen; uint32_t position;
    uint32_t iteration; uint16_t site; uint16_t pipe_ops;
};
struct lagom_kernel_span {
    uint64_t start_ns; uint64_t end_ns; uint64_t call; uint64_t bytes; uint32_t slot; uint32_t stream; uint32_t name;
    uint16_t channels; uint16_t threads; uint8_t source; uint8_t kind; uint8_t function; int8_t algorithm;
    int8_t protocol; uint8_t join; uint8_t untold; uint8_t reserved; uint32_t sequence; uint32_t blocks;
};
struct lagom_kernel_name { uint64_t hash; uint32_t ready; uint32_t reserved; char text[112]; };
struct lagom_node_rules {
    uint32_t state; uint32_t rule_count; uint32_t process; uint32_t reserved; uint64_t pad[6];
    uint32_t rank_counts[32]; struct lagom_rule rules[32];
};
struct lagom_region {
    struct lagom_header header;
    struct lagom_process processes[16];
    struct lagom_communicator communicators[192];
    struct lagom_slot slots[320];
    struct lagom_plan plans[64];
    struct lagom_call_record calls[132][512];
    struct lagom_kernel_span kernels[16][2048];
    struct lagom_kernel_name names[1024];
    struct lagom_node_rules node_rules;
};
"""

FUNCTIONS = """
enum lagom_switch_state { LAGOM_COMMITTED, LAGOM_PREPARED, LAGOM_ABORTED, LAGOM_LOCKED };
enum lagom_entry_state { LAGOM_FREE, LAGOM_CLAIMED, LAGOM_READY, LAGOM_GONE };
enum lagom_clock { LAGOM_CLOCK_MONOTONIC, LAGOM_CLOCK_SIMULATED };
enum lagom_plan_flags { LAGOM_PLAN_HAS_CANDIDATE = 1, LAGOM_PLAN_START_SEARCHING = 2, LAGOM_PLAN_LAST_ACK_COMMITS = 4 };
enum lagom_timeline_state {
    LAGOM_TIMELINE_ABSENT, LAGOM_TIMELINE_OFF, LAGOM_TIMELINE_STARTING, LAGOM_TIMELINE_ON, LAGOM_TIMELINE_YIELDED
};
enum lagom_knobs {
    LAGOM_KNOB_CHANNELS = 1, LAGOM_KNOB_ALGORITHM = 2, LAGOM_KNOB_CHUNK = 4, LAGOM_KNOB_THREADS = 8,
    LAGOM_KNOB_ONLINE = 16
};
enum lagom_traits { LAGOM_TRAIT_PEER_ACCESS = 1, LAGOM_TRAIT_SIMULATED = 2 };
enum lagom_saved_config {
    LAGOM_SAVED_CONFIG_NONE, LAGOM_SAVED_CONFIG_FITS, LAGOM_SAVED_CONFIG_UNREADABLE, LAGOM_SAVED_CONFIG_OTHER_RANKS,
    LAGOM_SAVED_CONFIG_OTHER_NODES, LAGOM_SAVED_CONFIG_OTHER_NCCL, LAGOM_SAVED_CONFIG_OTHER_GPU,
    LAGOM_SAVED_CONFIG_OTHER_PEER_ACCESS, LAGOM_SAVED_CONFIG_OTHER_SETTING, LAGOM_SAVED_CONFIG_SIMULATED
};
enum lagom_capture { LAGOM_CAPTURE_CALLS = 1, LAGOM_CAPTURE_ITERATION = 2, LAGOM_CAPTURE_KERNELS = 4 };
enum lagom_call_flags {
    LAGOM_CALL_PROGRAM = 1, LAGOM_CALL_CANDIDATE = 2, LAGOM_CALL_APPLIED = 4, LAGOM_CALL_TRANSPARENT = 8,
    LAGOM_CALL_UNAVAILABLE = 16, LAGOM_CALL_REGISTERED = 32
};
enum lagom_span_source {
    LAGOM_SPAN_NCCL_EVENT = 1, LAGOM_SPAN_NCCL_KERNEL = 2, LAGOM_SPAN_CUPTI = 3, LAGOM_SPAN_SIMULATED = 4
};
enum lagom_span_kind { LAGOM_SPAN_COMPUTE, LAGOM_SPAN_COLLECTIVE, LAGOM_SPAN_P2P, LAGOM_SPAN_OTHER };
enum lagom_publish_result {
    LAGOM_PUBLISH_OK, LAGOM_PUBLISH_BUSY, LAGOM_PUBLISH_INCOMPLETE, LAGOM_PUBLISH_BAD_PLAN, LAGOM_PUBLISH_LATE,
    LAGOM_PUBLISH_REPLACED
};
enum lagom_outcome { LAGOM_OUTCOME_OPEN, LAGOM_OUTCOME_COMMITTED, LAGOM_OUTCOME_ABORTED };
enum lagom_region_fault {
    LAGOM_REGION_OK, LAGOM_REGION_MISSING, LAGOM_REGION_FOREIGN, LAGOM_REGION_DAMAGED, LAGOM_REGION_VERSION,
    LAGOM_REGION_STALE, LAGOM_REGION_NO_SPACE, LAGOM_REGION_SYSTEM, LAGOM_REGION_HELD, LAGOM_REGION_FULL,
    LAGOM_REGION_TWICE, LAGOM_REGION_LIMIT
};

struct lagom_mapping {
    struct lagom_region *region; int fd; int error; uint32_t process; bool controller; char path[256];
};

uint64_t lagom_plan_hash(const struct lagom_plan *plan);
uint64_t lagom_plan_content_hash(const struct lagom_plan *plan);
int lagom_plan_check(const struct lagom_plan *plan, uint64_t comm_id);
const char *lagom_plan_fault_text(int fault);

int lagom_publish(struct lagom_region *region, uint32_t communicator, struct lagom_plan *plan);
int lagom_publish_poll(struct lagom_region *region, uint32_t communicator);
int lagom_publish_withdraw(struct lagom_region *region, uint32_t communicator);
int lagom_publish_ready(struct lagom_region *region, uint32_t communicator);
int lagom_publish_complete(struct lagom_region *region, uint32_t communicator);
int lagom_publish_has_double(struct lagom_region *region, uint32_t communicator);
int lagom_publish_claim(struct lagom_region *region, uint32_t communicator);
uint32_t lagom_counters(struct lagom_region *region, uint32_t communicator, uint64_t *smallest, uint64_t *largest);

void lagom_timeline_want(struct lagom_region *region, uint32_t process, uint32_t wanted);
void lagom_capture_set(struct lagom_region *region, uint32_t communicator, uint32_t capture);

int lagom_call_ring_push(struct lagom_region *region, uint32_t slot, const struct lagom_call_record *record);
uint32_t lagom_call_ring_drain(struct lagom_region *region, uint32_t slot, struct lagom_call_record *out,
                               uint32_t room);
int lagom_kernel_ring_push(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span);
uint32_t lagom_kernel_ring_drain(struct lagom_region *region, uint32_t process, struct lagom_kernel_span *out,
                                 uint32_t room);

const char *lagom_region_fault_text(int fault);
int lagom_region_join(struct lagom_mapping *mapping, const char *job_key, int clock);
int lagom_region_control(struct lagom_mapping *mapping, const char *job_key, bool create, int clock);
int lagom_region_control_path(struct lagom_mapping *mapping, const char *path);
int lagom_region_inspect(struct lagom_mapping *mapping, const char *path);
void lagom_region_leave(struct lagom_mapping *mapping, bool unlink_file);
bool lagom_region_path(const char *job_key, char *out);
bool lagom_region_is_locked(const struct lagom_mapping *mapping, uint32_t lock_byte);
bool lagom_region_controller_alive(const struct lagom_mapping *mapping);
bool lagom_region_process_alive(const struct lagom_mapping *mapping, uint32_t process);
uint32_t lagom_region_processes_alive(const struct lagom_mapping *mapping);
uint32_t lagom_region_sweep(struct lagom_mapping *mapping);
int lagom_region_remove_stale(const char *path);
bool lagom_region_retire(struct lagom_mapping *mapping);

int lagom_job_key(char *out, uint64_t first_comm_id);
struct lagom_fingerprint {
    uint32_t nccl_version; uint32_t ranks; uint32_t nodes; int32_t p2p; char gpu[64]; uint32_t simulated;
};
struct lagom_environment { char name[64]; char value[64]; };
struct lagom_config_section {
    uint32_t rank_count; uint32_t node_count; uint32_t ordinal; char name[64]; struct lagom_plan content;
};
struct lagom_config_file {
    struct lagom_fingerprint fingerprint;
    uint32_t section_count; struct lagom_config_section *sections;
    uint32_t environment_count; struct lagom_environment environment[48];
};
uint8_t lagom_environment_value_digest(const char *value);
int lagom_fingerprint_compare(const struct lagom_fingerprint *wanted, const struct lagom_fingerprint *here,
                              struct lagom_refusal *out);
void lagom_refusal_text(int cause, const struct lagom_refusal *refusal, char *out, size_t room);
const char *lagom_controller_program(void);
char **lagom_controller_environment(char *const environment[]);
void lagom_controller_environment_free(char **environment);
bool lagom_controller_python(const char *wanted, char *python, char *reason, size_t reason_bytes);
int lagom_config_file_load(const char *path, struct lagom_config_file *out, char *error, size_t error_bytes);
void lagom_config_file_free(struct lagom_config_file *config);
int lagom_rule_parse(const char *text, struct lagom_rule *out, char *error, size_t error_bytes);
"""


def digest(declarations: str) -> str:
    """By which a parsed file names what it was made of."""
    return hashlib.sha256(declarations.encode()).hexdigest()


def write_parsed(path: Path, declarations: str) -> None:
    """A module with ``ffi``, which has these declarations."""
    ffi = FFI()
    ffi.cdef(declarations)
    ffi.set_source(path.stem, None)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        made = Path(folder) / path.name
        ffi.emit_python_code(str(made))
        text = made.read_text().removeprefix("# auto-generated file\n")
    head = (
        "SPDX-License-Identifier: Apache-2.0",
        "By cffi, from declarations with this SHA-256:",
        digest(declarations),
    )
    path.write_text("".join(f"# {line}\n" for line in head) + text)


DECLARATIONS = STRUCTS + FUNCTIONS

if __name__ == "__main__":
    write_parsed(Path(__file__).with_name("parsed.py"), DECLARATIONS)
