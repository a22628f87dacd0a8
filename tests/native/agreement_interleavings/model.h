/* SPDX-License-Identifier: Apache-2.0 */
/* model.h - the state of two or three ranks and whoever publishes, and how it moves. README.md tells the design. */
#ifndef INTERLEAVINGS_MODEL_H
#define INTERLEAVINGS_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "agreement/switch.h"
#include "protocol/lagom_protocol.h"

#define MOST_RANKS 3u
#define MOST_DECIDERS 2u
#define MOST_CALLS 8u
#define LEASE_CALLS 2u

/* Planted one at a time, each of a kind that some design had or could have; each must be found. */
enum fault {
    NO_FAULT,
    /* the switch */
    REUSE_AT_ONCE,        /* PREPARED again before every rank has passed the committed start */
    COUNTER_FIRST,        /* a rank publishes its counter before it decides, and the counter alone is looked at */
    WRAPPED_EPOCH,        /* one-bit epochs, and an acknowledgement is the epoch alone */
    TORN_PLAN,            /* two writers, and a copied plan is believed without its hash */
    NO_HISTORY,           /* ranks are not compared by their calls so far */
    DECLINE_AFTER_COMMIT, /* a rank may stay on what it had when its turn comes */
    NO_ABORT,             /* a rank that arrives at the start under PREPARED goes on without a compare-and-swap */
    LOOK_BEFORE_WRITING,  /* replay: the last acknowledger looks at the others before its own is visible */
    /* restart */
    PARTIAL_IS_ENOUGH,   /* those who are there now are taken for all */
    EPOCHS_START_AGAIN,  /* a new controller counts epochs from one */
    ACK_LEFT_BEHIND,     /* slots keep acknowledgements, epochs start again with the entry, a hash knows no communicator */
    RECYCLED_TOO_EARLY,  /* an entry is used again while a rank of its former life is still in it */
    /* stop */
    BLIND_PREPARE, /* who goes on after a stop sets the word without looking at it again */
    BLIND_COMMIT,
    BLIND_ABORT,
    /* lease */
    LEASE_UNTIL_TOLD,      /* a candidate ends when the next plan is seen, not by its call number */
    LEASE_DROPPED_AT_ACK,  /* who has acknowledged the next plan runs the incumbent at once */
    LEASE_FROM_ACTIVATION, /* a lease is counted from the first call after the rank took note of the commit */
    LEASE_RENEWED_BY_ABORT /* the next plan was aborted, so the old one starts over */
};

struct scenario {
    const char *name;
    enum fault fault;
    uint8_t ranks, deciders, calls, publications, crashes;
    uint8_t stops;         /* how often a controller is stopped, succeeded, and goes on later */
    uint8_t stopped_at;    /* enum decider_pc: decider 1 was stopped there before all this, with a plan of its own */
    bool one_margin;       /* plans start one call ahead only, not also two: fewer states */
    uint8_t lives;         /* how often the ranks come; 0 and 1 are once */
    bool come_and_go;      /* ranks register late and leave when they are done; implied by several lives */
    bool last_ack_commits; /* replay: nobody polls, the acknowledging ranks decide */
    bool diverged;         /* rank 1 made one call more, before all this, than the others */
    bool slow;             /* only with "full" or by name */
    bool counter_only;     /* whether all have passed is judged by counters, not also by the active epoch */
};

/* ---- State: bytes only, compared and hashed as such ------------------------------------------------------------- */
/* clang-format off */

/* sealed: what the hash covers of the body. life: the communicator's id. */
struct fixed_part { uint8_t epoch, start, history, life, sealed; };

struct shared_slot { uint8_t ready, calls, ack_epoch, ack_plan, ack_history, refused, active_epoch, active_start; };

/* lagom_publish_poll, by a controller or by the last acknowledger. */
struct poll { uint8_t pc, slot, word, acknowledged, slots, refused, differ, plan, history, ready, ack_epoch, ack_refused; };

struct rank_state {
    uint8_t pc, call, word, life;
    uint8_t pending_epoch, pending_history, pending_start, acknowledged, committed, put_aside;
    struct fixed_part copy;
    uint8_t copy_body;
    uint8_t active_epoch, active_start, active_body, lease_start;
    struct poll poll;
};

struct decider { uint8_t pc, slot, word, largest, present, passed, margin, calls, epoch, life; struct poll poll; };

struct state {
    uint8_t word, body, epochs, life, crashes, stops, in_charge, recycled;
    struct fixed_part plan;
    struct shared_slot slots[MOST_RANKS];
    struct rank_state ranks[MOST_RANKS];
    struct decider deciders[MOST_DECIDERS];
    uint8_t decided[MOST_CALLS + 1]; /* by collective: 1 + what its first rank decided; 0 again once all have */
};

enum rank_pc {
    R_JOIN, R_LOAD, R_COPY_FIXED, R_COPY_BODY, R_READ_AGAIN, R_REFUSE, R_ACK_HASHES, R_ACK_EPOCH, R_POLL, R_RELOAD,
    R_ABORT, R_ACTIVATE, R_COUNT, R_LEAVE, R_GONE, R_DONE,
};
enum poll_pc { P_LOAD, P_EPOCHS, P_HASHES, P_COMMIT, P_ABORT };
enum decider_pc {
    D_IDLE, D_COUNTERS, D_WORD, D_PASSED_CALLS, D_PASSED_ACTIVE, D_LIFE, D_FIXED, D_BODY, D_PREPARE, D_POLL, D_WITHDRAW,
};

/* clang-format on */

extern const struct scenario *now;
extern const char *violation; /* NULL = none yet */

/* How often things came about, so that "holds" cannot mean "nothing ever happened". */
struct seen {
    uint64_t activations, aborts_by_rank, torn_copies, refusals, lost_swaps;
    uint64_t after_restart;   /* activations of a second life, or under a controller that found things left behind */
    uint64_t leases_ended;    /* calls past a lease's end */
    uint64_t ended_under_way; /* of these, while the next plan was PREPARED or committed and not in force */
};
extern struct seen seen;

static inline bool comes_and_goes(void)
{
    return now->come_and_go || now->lives > 1;
}

uint8_t wire_epoch(uint8_t epoch); /* as the word and the acknowledgements have it */

/* decision.c */
void decide(struct state *state, uint32_t rank);
uint8_t collective_of(const struct state *state, uint32_t rank);
void forget_what_all_decided(struct state *state);

/* poll.c */
bool poll_move(struct state *state, struct poll *poll); /* one access; true = the poll is over, and *poll is zero again */
void swap_word(struct state *state, uint8_t expected, enum lagom_switch_state to, bool blind);

/* rank.c: `other` picks the second possibility where there is one; false = there is none. */
bool rank_move(struct state *state, uint32_t rank, bool other);

/* decider.c: choice 0...3 begin something, or 0 goes on; false = not possible. */
#define BEGINNINGS 4u
bool decider_move(struct state *state, uint32_t decider, uint32_t choice);
bool decider_dies(struct state *state, uint32_t decider);
bool decider_is_stopped(struct state *state, uint32_t decider); /* its successor takes over */

/* life.c */
bool sweep(struct state *state); /* all have left: the entry is free for the next life */
bool join(struct state *state, uint32_t rank);
void leave(struct state *state, uint32_t rank);
bool come_again(struct state *state);

/* explore.c */
bool run(const struct scenario *scenario, bool with_trace); /* true = it came out as its fault demands */

/* scenarios_*.c; each ends with a name of NULL */
extern const struct scenario switch_scenarios[], restart_scenarios[], stop_scenarios[], lease_scenarios[];

#endif
