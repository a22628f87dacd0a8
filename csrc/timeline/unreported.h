/* SPDX-License-Identifier: Apache-2.0 */
/* unreported.h - collectives that NCCL asks the tuner about and then reports to no profiler: no bracket, no COLL event.
 * Seen of Broadcasts (NCCL 2.28.9, 2.30.7). README.md has the policy in words.
 *
 * What is known of such a kernel is where it lies: between two kernels whose calls are known. If as many kernels lie
 * between the two as calls were made, they are joined in order; else none is joined.
 */
#ifndef LAGOM_UNREPORTED_H
#define LAGOM_UNREPORTED_H

#include <stdbool.h>

#include "timeline/launches.h"
#include "timeline/nccl_kernel.h"

#define LAGOM_UNREPORTED_ASKS 64u
#define LAGOM_UNREPORTED_HELD 64u
#define LAGOM_UNREPORTED_MARKS 512u

/* A kernel that is joined. All of its plan's calls are in it. */
struct lagom_mark {
    uint64_t first_call;
    uint64_t last_call;
    uint64_t end_ns; /* of the bracket: whatever was launched before it was also asked about before */
    uint32_t slot;
    uint32_t correlation;
};

struct lagom_unreported {
    bool reported; /* this NCCL does report them: known from the first one, and for as long as the process lives */
    uint32_t ask_count;
    uint32_t mark_count;
    uint32_t held_count;
    struct lagom_ask {
        uint64_t call;
        uint64_t bytes;
        uint64_t asked_ns;
        uint32_t slot;
        uint8_t function;
        bool doubtful; /* a kernel that may have been its own went out unjoined */
    } asks[LAGOM_UNREPORTED_ASKS];                 /* each communicator's in the order of its calls */
    struct lagom_mark marks[LAGOM_UNREPORTED_MARKS]; /* as they were joined */
    struct lagom_unreported_kernel {
        struct lagom_nccl_kernel kernel;
        enum lagom_join_result result; /* NOT_TRIED = open */
    } held[LAGOM_UNREPORTED_HELD]; /* in the order of the launches */
};

/* Whether NCCL reports this kernel to no profiler. */
bool lagom_unreported_is(const struct lagom_unreported *unreported, const struct lagom_kernel_span *kernel);

/* NCCL asked about one. false = no room. */
bool lagom_unreported_asked(struct lagom_unreported *unreported, const struct lagom_note *note);

/* Another kernel was joined with its calls. */
void lagom_unreported_joined(struct lagom_unreported *unreported, const struct lagom_mark *mark);

/* The kernel waits for its neighbours. false = no room. */
bool lagom_unreported_hold(struct lagom_unreported *unreported, const struct lagom_nccl_kernel *kernel);

/* Takes the first one held out, with what is known of it then; false = nothing is certain yet. At the last chance what
 * is not certain is AMBIGUOUS. */
bool lagom_unreported_next(struct lagom_unreported *unreported, bool last_chance, struct lagom_nccl_kernel *kernel,
                           enum lagom_join_result *result);

/* Takes the first one held out as it came; false = none. */
bool lagom_unreported_take(struct lagom_unreported *unreported, struct lagom_nccl_kernel *kernel);

/* Lets go of what later kernels cannot need. Not while some of an earlier launch may still come. */
void lagom_unreported_tidy(struct lagom_unreported *unreported);

/* Something is missing: neither calls nor neighbours can be relied on, and what is held is AMBIGUOUS. */
void lagom_unreported_forget(struct lagom_unreported *unreported);

/* A new window: nothing is asked, joined or held. */
void lagom_unreported_start(struct lagom_unreported *unreported);

#endif
