/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_name.h - from CUPTI's name of a kernel to its index in the region, and to what kind of kernel it is. */
#ifndef LAGOM_KERNEL_NAME_H
#define LAGOM_KERNEL_NAME_H

#include "protocol/lagom_protocol.h"

#define LAGOM_NO_FUNCTION 255u

struct lagom_kernel_class {
    uint8_t kind;     /* enum lagom_span_kind */
    uint8_t function; /* enum lagom_function of a collective; LAGOM_NO_FUNCTION if the name does not say */
};

/* By NCCL's own names, mangled or not. What they say of the function is true; of algorithm and protocol it is not. */
struct lagom_kernel_class lagom_kernel_classify(const char *name);

/* Index into region->names plus 1, written there if nobody has yet; 0 = the table is full or `name` is NULL. */
uint32_t lagom_kernel_name_intern(struct lagom_region *region, const char *name);

/* What one thread has looked up, by the address of the name: CUPTI repeats it. */
#define LAGOM_NAME_CACHE 1024u
struct lagom_name_cache {
    struct lagom_known_name {
        const char *address;
        uint32_t index;
        struct lagom_kernel_class class;
    } known[LAGOM_NAME_CACHE];
};
struct lagom_known_name lagom_kernel_name_look_up(struct lagom_name_cache *cache, struct lagom_region *region,
                                                  const char *name);

#endif
