/* caller.h - which libnccl is calling us: its version and its file. Without linking to it. */
#ifndef LAGOM_CALLER_H
#define LAGOM_CALLER_H

#include "protocol/lagom_protocol.h"

struct lagom_caller {
    int version; /* 23007 = 2.30.7; 0 = unknown */
    char path[LAGOM_PATH_BYTES];
};

/* Looks behind two addresses that belong to NCCL: its log function, and where our init will return to. A process may
 * hold two NCCLs; only the one that calls counts. */
void lagom_caller_find(struct lagom_caller *caller, const void *log_function, const void *return_address);

#endif
