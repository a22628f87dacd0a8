/* sized.h - a communicator that goes by size rules (size_rules.h): what stands behind its context, and its answers. */
#ifndef LAGOM_SIZED_H
#define LAGOM_SIZED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/lagom_protocol.h"
#include "tuner_plugin/nccl_abi.h"

/* The context of a tuned communicator begins with its region; any other begins with NULL and says what it is. */
#define LAGOM_SIZED_MARK 0x53495a45u

struct lagom_sized {
    const void *region; /* NULL */
    uint32_t mark;      /* LAGOM_SIZED_MARK */
    uint32_t ranks;
    const struct lagom_node_rules *rules; /* the process's, for good */
};

static inline bool lagom_is_sized(const void *context)
{
    const struct lagom_sized *sized = context;
    return sized->region == NULL && sized->mark == LAGOM_SIZED_MARK;
}

/* NULL = no rule speaks for communicators of that size, or there is no memory: NCCL goes on without us. */
struct lagom_sized *lagom_sized_make(const struct lagom_node_rules *rules, uint32_t ranks, uint32_t nodes);

/* getCollInfo v3, v4. A call no rule speaks for, or whose rule names what is not offered, is left byte for byte. */
void lagom_sized_decide(const struct lagom_sized *sized, const struct lagom_call *call);

/* getCollInfo v2. coll_net: this call could go through CollNet, where NC would be taken unchecked: left alone. */
void lagom_sized_answer(const struct lagom_sized *sized, int function, size_t bytes, bool coll_net, int *algorithm,
                        int *protocol, int *channels);

#endif
