/* SPDX-License-Identifier: Apache-2.0 */
/* caller.h - which libnccl is calling us: its version, its file and its build. Without linking to it. */
#ifndef LAGOM_CALLER_H
#define LAGOM_CALLER_H

#include "protocol/lagom_protocol.h"

#define LAGOM_CALLER_BUILD_ID 65 /* hex; 20 bytes of SHA-1 as a rule */

struct lagom_caller {
    int version; /* 23007 = 2.30.7; 0 = unknown */
    char path[LAGOM_PATH_BYTES];
    char build_id[LAGOM_CALLER_BUILD_ID]; /* GNU build id; empty = the linker left none */
};

/* Looks behind two addresses that belong to NCCL: its log function, and where our init will return to. A process may
 * hold two NCCLs; only the one that calls counts. */
void lagom_caller_find(struct lagom_caller *caller, const void *log_function, const void *return_address);

#endif
