/* SPDX-License-Identifier: Apache-2.0 */
/* cupti_abi.h - what we read of CUPTI 12 and 13, in our own words: no CUDA headers are needed to build.
 *
 * CUPTI's records grow at their end from release to release; the offsets below are the same from CUPTI 12.0 (kernel
 * record 8) to 13.0 (kernel record 10). tests/contract/test_cupti.py compares every one with NVIDIA's own headers.
 */
#ifndef LAGOM_CUPTI_ABI_H
#define LAGOM_CUPTI_ABI_H

#include <stddef.h>
#include <stdint.h>

enum cupti_result { CUPTI_RESULT_SUCCESS = 0, CUPTI_RESULT_MAX_LIMIT_REACHED = 12 };

enum cupti_kind {
    CUPTI_KIND_COPY = 1,
    CUPTI_KIND_CONCURRENT_KERNEL = 10, /* never KERNEL (3): that one serialises kernels and can hang NCCL */
    CUPTI_KIND_PEER_COPY = 22, /* between two GPUs; copies on one GPU, from and to the host are of kind 1 */
    CUPTI_KIND_EXTERNAL_CORRELATION = 39,
};
enum cupti_external_kind { CUPTI_EXTERNAL_CUSTOM2 = 5 };
enum cupti_flush { CUPTI_FLUSH_COMPLETE = 0, CUPTI_FLUSH_FORCED = 1 };
#define CUPTI_BUFFER_ALIGNMENT 8u

/* The head of any kernel record. Times are 0 where CUPTI had no room to take them. */
struct cupti_kernel {
    uint32_t kind;
    uint8_t unread0[12];
    uint64_t start;
    uint64_t end;
    uint64_t unread1;
    uint32_t device;
    uint32_t context;
    uint32_t stream;
    int32_t grid[3];
    int32_t block[3];
    uint8_t unread2[16];
    uint32_t correlation; /* one sequence a process, in the order of the launches */
    int64_t unread3;
    const char *name; /* mangled; CUPTI's memory */
    uint8_t unread4[32];
    uint64_t graph_node; /* 0 = not launched by a graph */
};
_Static_assert(offsetof(struct cupti_kernel, start) == 16, "");
_Static_assert(offsetof(struct cupti_kernel, device) == 40, "");
_Static_assert(offsetof(struct cupti_kernel, grid) == 52, "");
_Static_assert(offsetof(struct cupti_kernel, correlation) == 92, "");
_Static_assert(offsetof(struct cupti_kernel, name) == 104, "");
_Static_assert(offsetof(struct cupti_kernel, graph_node) == 144, "");

/* The head of a record of a copy between GPUs, the same in CUPTI 12 and 13 (records PtoP3 and PtoP4). Seen on H200s: so are
 * copies of symmetric memory, whose peers are mapped into this GPU's address space. */
struct cupti_peer_copy {
    uint32_t kind;
    uint8_t unread0[4];
    uint64_t bytes;
    uint64_t start;
    uint64_t end;
    uint32_t device; /* whose stream it is on */
    uint32_t context;
    uint32_t stream;
    uint32_t source;
    uint32_t unread1;
    uint32_t destination;
};
_Static_assert(offsetof(struct cupti_peer_copy, start) == 16, "");
_Static_assert(offsetof(struct cupti_peer_copy, source) == 44, "");
_Static_assert(offsetof(struct cupti_peer_copy, destination) == 52, "");

/* Says which id a thread had pushed when it made the call with that correlation. */
struct cupti_external {
    uint32_t kind;
    uint32_t external_kind;
    uint64_t id;
    uint32_t correlation;
    uint32_t reserved;
};
_Static_assert(sizeof(struct cupti_external) == 24, "");

typedef void (*cupti_buffer_requested)(uint8_t **buffer, size_t *bytes, size_t *most_records);
typedef void (*cupti_buffer_completed)(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid);
typedef uint64_t (*cupti_timestamp)(void);

#endif
