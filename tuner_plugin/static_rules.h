/* SPDX-License-Identifier: Apache-2.0 */
/* static_rules.h - what is possible on NCCL 2.21 to 2.26, which gives no communicator id: rules by function and
 * size, read once by each rank, in force from the first call. Nothing is agreed while the job runs; a decision is a pure
 * function of the rules and the call. Opt-in: LAGOM_MODE=replay, and LAGOM_CONFIG or LAGOM_SET. One node only.
 */
#ifndef LAGOM_STATIC_RULES_H
#define LAGOM_STATIC_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config_text.h"
#include "protocol/lagom_protocol.h"
#include "tuner_plugin/nccl_abi.h"

/* The releases this is for: tuner v2 came with 2.21, profiler v4 and with it an id with 2.27. */
#define LAGOM_FIRST_WITH_CONTEXT 22100
#define LAGOM_FIRST_WITH_ID 22700

static inline bool lagom_has_static_rules_only(int nccl_version)
{
    return nccl_version >= LAGOM_FIRST_WITH_CONTEXT && nccl_version < LAGOM_FIRST_WITH_ID;
}

/* All three: false with one sentence in `reason`, and then *out has no rule.
 *
 * Only the `rule` lines of a saved config are used: its programs need to know the communicator. Two sections for
 * communicators of one size must have the same rules, because such communicators cannot be distinguished here. */
bool lagom_static_rules_from_config(const struct lagom_config_file *config, struct lagom_node_rules *out, char *reason,
                                     size_t room);
/* The text of LAGOM_SET: `;` or a new line between rules, `#` begins a comment. */
bool lagom_static_rules_from_text(const char *text, struct lagom_node_rules *out, char *reason, size_t room);

/* The rules of this process: of `config`, or of the text of LAGOM_SET if it is NULL. */
bool lagom_static_rules_read(const struct lagom_config_file *config, struct lagom_node_rules *out, char *reason,
                             size_t room);

enum lagom_withheld {
    LAGOM_WITHHELD_KNOBS = 1,   /* chunk or threads */
    LAGOM_WITHHELD_BY_NCCL = 2, /* whole rules: tuner v2 gets no table of the algorithms that NCCL offers */
    LAGOM_WITHHELD_BY_USER = 4, /* whole rules: NCCL_ALGO or NCCL_PROTO has the choice */
};

/* Takes out what cannot be done here: chunk and threads always; algorithm and protocol with tuner v2 unless they are a
 * pair every communicator has and the user's NCCL_ALGO and NCCL_PROTO leave the choice. A rule that loses either of
 * these becomes a rule for stock, channels and all: a config is one thing. What was taken out, as enum lagom_withheld. */
uint32_t lagom_static_rules_restrict(struct lagom_node_rules *rules, uint32_t tuner_api, bool user_chooses_algorithm);

/* The same with this process's NCCL_ALGO and NCCL_PROTO. true = something was taken out, with one sentence in `text`. */
bool lagom_static_rules_restrict_here(struct lagom_node_rules *rules, uint32_t tuner_api, char *text, size_t room);

/* RING with LL or SIMPLE, and TREE with them for AllReduce: built and compiled for every type on every machine. Tuner v2
 * does not get what NCCL offers, and NCCL 2.21 does not check the answer. */
bool lagom_always_offered(uint32_t function, int algorithm, int protocol);

/* ---- A communicator that uses them ------------------------------------------------------------------------------- */

/* The context of a tuned communicator begins with its region; any other begins with NULL and says what it is. */
#define LAGOM_STATIC_COMM_MARK 0x53495a45u

struct lagom_static_comm {
    const void *region; /* NULL */
    uint32_t mark;      /* LAGOM_STATIC_COMM_MARK */
    uint32_t ranks;
    const struct lagom_node_rules *rules; /* the process's, for good */
};

static inline bool lagom_is_static_comm(const void *context)
{
    const struct lagom_static_comm *comm = context;
    return comm->region == NULL && comm->mark == LAGOM_STATIC_COMM_MARK;
}

/* NULL = no rule is for communicators of that size, or there is no memory: NCCL continues without us. */
struct lagom_static_comm *lagom_static_comm_create(const struct lagom_node_rules *rules, uint32_t ranks,
                                                   uint32_t nodes);

/* getCollInfo v3, v4. A call without a rule, or with a rule that names what is not offered, is left byte for byte. */
void lagom_static_comm_decide(const struct lagom_static_comm *comm, const struct lagom_call *call);

/* getCollInfo v2. coll_net: this call could go through CollNet, where NC would be taken unchecked: left alone. */
void lagom_static_comm_decide_v2(const struct lagom_static_comm *comm, int function, size_t bytes, bool coll_net,
                                 int *algorithm, int *protocol, int *channels);

#endif
