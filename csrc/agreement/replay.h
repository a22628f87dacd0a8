/* SPDX-License-Identifier: Apache-2.0 */
/* replay.h - a saved config takes effect without a controller: through the same word, agreed by the ranks themselves.
 *
 * One rank, the winner of communicator.publisher, publishes the saved config's plan once every rank is there; each
 * acknowledges only a plan equal to that of its own; the last to acknowledge commits. The plan starts searching for its
 * period, so it takes effect from the first whole iteration after it. On one node only.
 */
#ifndef LAGOM_REPLAY_H
#define LAGOM_REPLAY_H

#include <stdbool.h>

#include "agreement/agreement.h"

#define LAGOM_REPLAY_TRIES 8u

enum lagom_replay_state {
    LAGOM_REPLAY_OFF = 0,
    LAGOM_REPLAY_WAITING = 1,   /* ranks are missing, or an aborted try is about to be repeated */
    LAGOM_REPLAY_OPEN = 2,      /* published by this rank, not decided */
    LAGOM_REPLAY_AGREED = 3,    /* in force on this rank */
    LAGOM_REPLAY_REFUSED = 4,   /* this publisher gave up: a rank refused, or no try was early enough */
    LAGOM_REPLAY_FOLLOWING = 5, /* another rank publishes; the word says the rest */
};

/* Lives beside the rank's struct lagom_agreement, as long as it. */
struct lagom_replay {
    struct lagom_agreement *agreement;
    const struct lagom_plan *content;
    struct lagom_region *region;
    uint32_t communicator;
    uint32_t tries;
    uint64_t margin;    /* calls; doubled after each abort */
    uint64_t next_look; /* call number */
    uint64_t pause;     /* calls between looks while ranks are missing: doubled up to a bound */
    uint64_t published_epoch;
    uint64_t refused_fault; /* enum lagom_plan_fault of the rank that refused; 0 = none did */
    enum lagom_replay_state state;
};

/* Before the first call. content: sites, positions and rules of the saved config's section, sound by
 * lagom_plan_check_content, kept alive by the caller. From here on lagom_agreement_decide does the rest while nothing
 * is decided; afterwards its fast path is what it always is. Returns false (and stays off) if the communicator spans
 * nodes or the content is bad. */
bool lagom_replay_start(struct lagom_replay *replay, struct lagom_agreement *agreement, struct lagom_region *region,
                        const struct lagom_plan *content);

/* One look; called by lagom_agreement_decide. Returns the next call at which it wants another, UINT64_MAX = never. */
uint64_t lagom_replay_poll_switch(struct lagom_replay *replay);

#endif
