/* agreement_interleavings.c - every interleaving of two or three ranks and whoever publishes, over the transition
 * functions that ship (csrc/agreement/switch.c, csrc/plan/choose.c).
 *
 * DESIGN. A state holds what lies in shared memory and what each party knows privately. A move is ONE access to shared
 * memory by one party, followed by its private steps up to the next access; so a plan is copied in two moves and can be
 * torn, an acknowledgement is two stores, a scan over the slots is two loads a slot. The order of accesses is that of
 * agreement.c, publisher.c and registration. Depth first over all moves; visited states are kept as 64-bit fingerprints
 * (hash compaction: at 10^7 states the chance that any is missed is 3 in a million).
 *
 * Promised in every state: two ranks decide equally at the same collective; a candidate never outlives its lease; a
 * rank alone finishes its call whatever the others do not do; with the last acknowledger committing, no commit is lost.
 *
 * Each fault planted below is one that an earlier design had (facts: S0-1 ... S0-5); each must be found. Exit 0 = the
 * shipped functions hold and every fault was found.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agreement/switch.h"
#include "plan/choose.h"
#include "plan/plan.h"

#define MOST_RANKS 3u
#define MOST_DECIDERS 2u
#define MOST_CALLS 8u
#define LEASE_CALLS 2u
#define MOST_DEPTH 4096u

enum fault {
    NO_FAULT,
    REUSE_AT_ONCE,        /* S0-1: PREPARED again before every rank has passed the committed start */
    COUNTER_FIRST,        /* S0-2: a rank publishes its counter before it decides, and the counter alone is looked at */
    WRAPPED_EPOCH,        /* S0-3: one-bit epochs, and an acknowledgement is the epoch alone */
    TORN_PLAN,            /* S0-4: two writers, and a copied plan is believed without its hash */
    NO_HISTORY,           /* ranks are not compared by their calls so far */
    DECLINE_AFTER_COMMIT, /* S0-5: a rank may stay on what it had when its turn comes */
    NO_ABORT,             /* a rank that arrives at the start under PREPARED goes on without a compare-and-swap */
    LOOK_BEFORE_WRITING,  /* replay: the last acknowledger looks at the others before its own is visible */
};

struct scenario {
    const char *name;
    enum fault fault;
    uint8_t ranks, deciders, calls, publications, crashes;
    bool last_ack_commits; /* replay: nobody polls, the acknowledging ranks decide */
    bool diverged;         /* rank 1 made one call more, before all this, than the others */
    bool stale_writer;     /* decider 1 was stopped while it published, and goes on in spite of its successor */
    bool slow;             /* only with "full" or by name */
    bool counter_only;     /* whether all have passed is judged by counters, not also by the active epoch */
};

/* ---- State: bytes only, compared and hashed as such ------------------------------------------------------------- */
/* clang-format off */

struct fixed_part { uint8_t epoch, start, history, sealed; }; /* sealed: what the hash covers of the body */

struct shared_slot { uint8_t calls, ack_epoch, ack_plan, ack_history, refused, active_epoch, active_start; };

/* lagom_publish_poll, by a controller or by the last acknowledger. */
struct poll { uint8_t pc, slot, word, acknowledged, slots, refused, differ, plan, history, ack_epoch, ack_refused; };

struct rank_state {
    uint8_t pc, call, word;
    uint8_t pending_epoch, pending_history, pending_start, acknowledged, committed, put_aside;
    struct fixed_part copy;
    uint8_t copy_body;
    uint8_t active_epoch, active_start, active_body;
    struct poll poll;
};

struct decider { uint8_t pc, slot, word, largest, passed, margin, epoch; struct poll poll; };

struct state {
    uint8_t word, body, epochs, crashes;
    struct fixed_part plan;
    struct shared_slot slots[MOST_RANKS];
    struct rank_state ranks[MOST_RANKS];
    struct decider deciders[MOST_DECIDERS];
    uint8_t decided[MOST_CALLS + 1]; /* by collective: 1 + what its first rank decided; 0 again once all have */
};

enum rank_pc {
    R_LOAD, R_COPY_FIXED, R_COPY_BODY, R_READ_AGAIN, R_REFUSE, R_ACK_HASHES, R_ACK_EPOCH, R_POLL, R_RELOAD, R_ABORT,
    R_ACTIVATE, R_COUNT, R_DONE,
};
enum poll_pc { P_LOAD, P_EPOCHS, P_HASHES, P_COMMIT, P_ABORT };
enum decider_pc {
    D_IDLE, D_COUNTERS, D_WORD, D_PASSED_CALLS, D_PASSED_ACTIVE, D_FIXED, D_BODY, D_PREPARE, D_POLL, D_WITHDRAW,
};

/* clang-format on */

static const struct scenario *now;
static const char *violation; /* NULL = none yet */

/* How often things came about, so that "holds" cannot mean "nothing ever happened". */
static struct {
    uint64_t activations, aborts_by_rank, torn_copies, refusals, lost_swaps;
} seen;

static uint8_t wire_epoch(uint8_t epoch)
{
    return now->fault == WRAPPED_EPOCH ? (uint8_t)(1 + epoch % 2) : epoch;
}

/* ---- Deciding a call -------------------------------------------------------------------------------------------- */

/* What plan number `body` says about a call: twice its number for the incumbent, one more for the candidate. */
static uint8_t chosen_channels(uint8_t body, uint8_t start, uint8_t call)
{
    static struct lagom_plan plan = {.flags = LAGOM_PLAN_HAS_CANDIDATE, .rule_count = 1};
    const struct lagom_place nowhere = {0};
    plan.start_call = start;
    plan.end_call = (uint64_t)start + LEASE_CALLS;
    plan.rules[0] = (struct lagom_rule){.bytes_max = UINT64_MAX, .function = LAGOM_ANY_FUNCTION};
    plan.rules[0].incumbent.channels = (uint16_t)(2 * body);
    plan.rules[0].candidate.channels = (uint16_t)(2 * body + 1);
    return (uint8_t)lagom_choose(&plan, &nowhere, call, LAGOM_ALL_GATHER, 1u << 20).config.channels;
}

static uint8_t collective_of(const struct state *state, uint32_t r)
{
    return (uint8_t)(state->ranks[r].call - (now->diverged && r == 1));
}

static void forget_what_all_decided(struct state *state)
{
    uint8_t first = UINT8_MAX;
    for (uint32_t r = 0; r < now->ranks; r++) {
        uint8_t at = collective_of(state, r);
        first = at < first ? at : first;
    }
    memset(state->decided, 0, first);
}

static void decide(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    uint8_t channels = 0;
    if (rank->active_epoch != 0) {
        channels = chosen_channels(rank->active_body, rank->active_start, rank->call);
        if (channels % 2 == 1 && rank->call >= rank->active_start + LEASE_CALLS) {
            violation = "a candidate outlived its lease";
        }
    }
    uint8_t *others = &state->decided[collective_of(state, r)];
    if (*others != 0 && *others != channels + 1) {
        violation = "two ranks decided differently at the same collective";
    }
    *others = (uint8_t)(channels + 1);
}

/* ---- lagom_publish_poll ----------------------------------------------------------------------------------------- */

static void poll_verdict(struct poll *poll)
{
    struct lagom_tally tally = {.epoch = LAGOM_WORD_EPOCH(poll->word),
                                .slots = poll->slots,
                                .acknowledged = poll->acknowledged,
                                .refused = poll->refused,
                                .differ = poll->differ};
    switch (lagom_tally_verdict(&tally, now->ranks)) {
    case LAGOM_VERDICT_COMMIT: poll->pc = P_COMMIT; break;
    case LAGOM_VERDICT_ABORT: poll->pc = P_ABORT; break;
    case LAGOM_VERDICT_WAIT: *poll = (struct poll){0}; break;
    }
}

static void poll_add(struct poll *poll, const struct shared_slot *slot)
{
    struct lagom_tally tally = {.epoch = LAGOM_WORD_EPOCH(poll->word),
                                .slots = poll->slots,
                                .acknowledged = poll->acknowledged,
                                .refused = poll->refused,
                                .differ = poll->differ,
                                .plan_hash = poll->plan,
                                .history_hash = poll->history};
    struct lagom_ack ack = {poll->ack_refused, poll->ack_epoch, slot->ack_plan, slot->ack_history};
    ack.history_hash = now->fault == NO_HISTORY || now->fault == WRAPPED_EPOCH ? 0 : ack.history_hash;
    ack.plan_hash = now->fault == WRAPPED_EPOCH ? 0 : ack.plan_hash;
    lagom_tally_add(&tally, &ack);
    poll->slots = (uint8_t)tally.slots;
    poll->acknowledged = (uint8_t)tally.acknowledged;
    poll->refused = tally.refused;
    poll->differ = tally.differ;
    poll->plan = (uint8_t)tally.plan_hash;
    poll->history = (uint8_t)tally.history_hash;
    poll->ack_epoch = poll->ack_refused = 0;
}

static void swap_word(struct state *state, uint8_t expected, enum lagom_switch_state to)
{
    if (state->word == expected) {
        state->word = (uint8_t)LAGOM_WORD(to, LAGOM_WORD_EPOCH(expected));
    } else {
        seen.lost_swaps++;
    }
}

/* One access; true when the poll is over (and *poll is zero again). */
static bool poll_move(struct state *state, struct poll *poll)
{
    struct shared_slot *slot = &state->slots[poll->slot];
    switch ((enum poll_pc)poll->pc) {
    case P_LOAD:
        poll->word = state->word;
        if (LAGOM_WORD_STATE(poll->word) != LAGOM_PREPARED) {
            *poll = (struct poll){0};
            return true;
        }
        poll->pc = P_EPOCHS;
        return false;
    case P_EPOCHS:
        poll->ack_refused = slot->refused;
        poll->ack_epoch = slot->ack_epoch;
        poll->pc = P_HASHES;
        return false;
    case P_HASHES:
        poll_add(poll, slot);
        poll->pc = P_EPOCHS;
        if (++poll->slot == now->ranks) {
            poll_verdict(poll);
        }
        return poll->word == 0;
    case P_COMMIT:
    case P_ABORT:
        swap_word(state, poll->word, poll->pc == P_COMMIT ? LAGOM_COMMITTED : LAGOM_ABORTED);
        *poll = (struct poll){0};
        return true;
    }
    return true;
}

/* ---- A rank ----------------------------------------------------------------------------------------------------- */

static struct lagom_pending pending_of(const struct rank_state *rank)
{
    return (struct lagom_pending){rank->pending_epoch,     rank->pending_history, rank->pending_start,
                                  rank->acknowledged != 0, rank->committed != 0,  rank->put_aside};
}

static void keep_pending(struct rank_state *rank, const struct lagom_pending *pending)
{
    rank->pending_epoch = (uint8_t)pending->epoch;
    rank->pending_history = (uint8_t)pending->history_call;
    rank->pending_start = (uint8_t)pending->start_call;
    rank->acknowledged = pending->acknowledged;
    rank->committed = pending->committed;
    rank->put_aside = (uint8_t)pending->put_aside_epoch;
    if (pending->epoch == 0) {
        rank->copy = (struct fixed_part){0};
        rank->copy_body = 0;
    }
}

static void finish_call(struct state *state, struct rank_state *rank)
{
    rank->call++;
    rank->word = 0;
    rank->pc = rank->call - (now->diverged && rank == &state->ranks[1]) < now->calls ? R_LOAD : R_DONE;
    if (now->fault == COUNTER_FIRST && rank->pc == R_LOAD) {
        rank->pc = R_COUNT;
    }
    forget_what_all_decided(state);
}

/* The private steps up to the next access to shared memory. */
static void follow(struct state *state, uint32_t r)
{
    static const uint8_t next_pc[] = {[LAGOM_STEP_COPY] = R_COPY_FIXED,
                                      [LAGOM_STEP_ACKNOWLEDGE] = R_ACK_HASHES,
                                      [LAGOM_STEP_ABORT] = R_ABORT,
                                      [LAGOM_STEP_ACTIVATE] = R_ACTIVATE};
    struct rank_state *rank = &state->ranks[r];
    struct lagom_pending pending = pending_of(rank);
    for (;;) {
        enum lagom_step step = lagom_switch_rank(&pending, rank->word, rank->call);
        if (step == LAGOM_STEP_ABORT && now->fault == NO_ABORT) {
            step = LAGOM_STEP_DROP;
        }
        if (step == LAGOM_STEP_COMMIT) {
            pending.committed = true;
        } else if (step == LAGOM_STEP_DROP) {
            lagom_pending_drop(&pending);
        } else {
            keep_pending(rank, &pending);
            rank->pc = step == LAGOM_STEP_GO_ON ? R_COUNT : next_pc[step];
            break;
        }
    }
    if (rank->pc == R_COUNT) {
        decide(state, r);
        rank->word = 0;
        if (now->fault == COUNTER_FIRST) {
            finish_call(state, rank);
        }
    }
}

static bool copy_is_sound(const struct rank_state *rank)
{
    bool fits = rank->copy.epoch == LAGOM_WORD_EPOCH(rank->word);
    return fits && (rank->copy.sealed == rank->copy_body || now->fault == TORN_PLAN);
}

static void judge_copy(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    struct lagom_pending pending = pending_of(rank);
    if (!copy_is_sound(rank)) {
        seen.torn_copies++;
        rank->pc = R_READ_AGAIN;
        return;
    }
    lagom_pending_hold(&pending, rank->copy.epoch, rank->copy.history, rank->copy.start);
    keep_pending(rank, &pending);
    follow(state, r);
}

static void refuse(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    struct lagom_pending pending = pending_of(rank);
    seen.refusals++;
    state->slots[r].refused = (uint8_t)LAGOM_WORD_EPOCH(rank->word);
    lagom_pending_put_aside(&pending, LAGOM_WORD_EPOCH(rank->word));
    keep_pending(rank, &pending);
    follow(state, r);
}

static void read_again(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    if (state->word == rank->word) {
        rank->pc = R_REFUSE;
        return;
    }
    rank->word = state->word;
    follow(state, r);
}

static void acknowledge_hashes(struct state *state, uint32_t r)
{
    const struct rank_state *rank = &state->ranks[r];
    uint8_t path = now->diverged && r == 1 ? 100 : 0;
    state->slots[r].ack_plan = (uint8_t)(16 * rank->copy.epoch + rank->copy.start);
    state->slots[r].ack_history = (uint8_t)(rank->copy.history + path);
}

static void after_acknowledging(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    rank->acknowledged = true;
    if (now->last_ack_commits) {
        rank->pc = R_POLL;
    } else {
        follow(state, r);
    }
}

static void activate(struct state *state, uint32_t r, bool decline)
{
    struct rank_state *rank = &state->ranks[r];
    struct lagom_pending pending = pending_of(rank);
    seen.activations++;
    if (!decline) {
        rank->active_epoch = rank->pending_epoch;
        rank->active_start = rank->pending_start;
        rank->active_body = rank->copy_body;
    }
    state->slots[r].active_start = rank->pending_start;
    state->slots[r].active_epoch = rank->pending_epoch;
    lagom_pending_drop(&pending);
    keep_pending(rank, &pending);
    follow(state, r);
}

static void abort_plan(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    if (state->word != rank->word) {
        seen.lost_swaps++;
        rank->pc = R_RELOAD;
        return;
    }
    seen.aborts_by_rank++;
    state->word = (uint8_t)LAGOM_WORD(LAGOM_ABORTED, LAGOM_WORD_EPOCH(rank->word));
    rank->word = state->word;
    follow(state, r);
}

static void count(struct state *state, uint32_t r)
{
    struct rank_state *rank = &state->ranks[r];
    state->slots[r].calls = (uint8_t)(rank->call + 1);
    if (now->fault == COUNTER_FIRST) {
        rank->pc = R_LOAD;
    } else {
        finish_call(state, rank);
    }
}

/* `other` picks the second possibility where there is one; false = there is none. */
static bool rank_move(struct state *state, uint32_t r, bool other)
{
    struct rank_state *rank = &state->ranks[r];
    enum rank_pc pc = (enum rank_pc)rank->pc;
    if (pc == R_DONE || (other && !(pc == R_ACTIVATE && now->fault == DECLINE_AFTER_COMMIT))) {
        return false;
    }
    bool late_store = now->fault == LOOK_BEFORE_WRITING;
    switch (pc) {
    case R_LOAD:
    case R_RELOAD:
        rank->word = state->word;
        follow(state, r);
        break;
    case R_COPY_FIXED:
        rank->copy = state->plan;
        rank->pc = R_COPY_BODY;
        break;
    case R_COPY_BODY:
        rank->copy_body = state->body;
        judge_copy(state, r);
        break;
    case R_READ_AGAIN: read_again(state, r); break;
    case R_REFUSE: refuse(state, r); break;
    case R_ACK_HASHES:
        acknowledge_hashes(state, r);
        rank->pc = late_store ? R_POLL : R_ACK_EPOCH;
        break;
    case R_ACK_EPOCH:
        state->slots[r].ack_epoch = rank->pending_epoch;
        if (late_store) {
            rank->acknowledged = true;
            rank->pc = R_RELOAD;
        } else {
            after_acknowledging(state, r);
        }
        break;
    case R_POLL:
        if (poll_move(state, &rank->poll)) {
            rank->pc = late_store ? R_ACK_EPOCH : R_RELOAD;
        }
        break;
    case R_ABORT: abort_plan(state, r); break;
    case R_ACTIVATE: activate(state, r, other); break;
    case R_COUNT: count(state, r); break;
    case R_DONE: return false;
    }
    return true;
}

/* ---- The controller, or the publishing rank --------------------------------------------------------------------- */

static void begin_publishing(struct decider *decider, uint8_t margin)
{
    *decider = (struct decider){.pc = D_COUNTERS, .margin = margin, .passed = true};
}

static void read_counter(struct state *state, struct decider *decider)
{
    uint8_t calls = state->slots[decider->slot].calls;
    decider->largest = calls > decider->largest ? calls : decider->largest;
    if (++decider->slot == now->ranks) {
        decider->slot = 0;
        decider->pc = D_WORD;
    }
}

/* The counter is kept in `epoch` between the two loads. */
static void read_active(struct state *state, struct decider *decider)
{
    const struct shared_slot *slot = &state->slots[decider->slot];
    uint64_t committed = LAGOM_WORD_EPOCH(decider->word);
    uint64_t active = now->counter_only || now->fault == COUNTER_FIRST ? committed : slot->active_epoch;
    uint64_t start = active == slot->active_epoch ? slot->active_start : state->plan.start;
    decider->passed &= lagom_switch_passed(committed, active, start, decider->epoch);
    decider->epoch = 0;
    decider->pc = D_PASSED_CALLS;
    if (++decider->slot < now->ranks) {
        return;
    }
    bool passed = decider->passed || now->fault == REUSE_AT_ONCE;
    bool may = lagom_switch_may_prepare(decider->word, passed);
    decider->slot = 0;
    decider->pc = may ? D_FIXED : D_IDLE;
    if (!may) {
        *decider = (struct decider){0};
    }
}

static void write_fixed(struct state *state, struct decider *decider)
{
    decider->epoch = ++state->epochs;
    state->plan = (struct fixed_part){wire_epoch(decider->epoch), (uint8_t)(decider->largest + decider->margin),
                                      decider->largest, wire_epoch(decider->epoch)};
    decider->pc = D_BODY;
}

static void prepare(struct state *state, struct decider *decider)
{
    if (state->word == decider->word) {
        state->word = (uint8_t)LAGOM_WORD(LAGOM_PREPARED, wire_epoch(decider->epoch));
    } else {
        seen.lost_swaps++;
    }
    *decider = (struct decider){0};
}

static bool decider_begins(struct state *state, struct decider *decider, uint32_t choice)
{
    bool open = LAGOM_WORD_STATE(state->word) == LAGOM_PREPARED;
    bool stale = now->stale_writer && decider == &state->deciders[1];
    if (choice <= 1 && !stale && !open && state->epochs < now->publications) {
        begin_publishing(decider, (uint8_t)(1 + choice));
        return true; /* no access yet, and the same from every state */
    }
    if (choice == 2 && open && !stale && !now->last_ack_commits) {
        decider->pc = D_POLL;
        poll_move(state, &decider->poll);
        return true;
    }
    if (choice == 3 && open && !stale) {
        decider->pc = D_WITHDRAW;
        decider->word = state->word;
        return true;
    }
    return false;
}

static bool decider_move(struct state *state, struct decider *decider, uint32_t choice)
{
    if (decider->pc == D_IDLE) {
        return decider_begins(state, decider, choice);
    }
    if (choice != 0) {
        return false;
    }
    switch ((enum decider_pc)decider->pc) {
    case D_COUNTERS: read_counter(state, decider); break;
    case D_WORD:
        decider->word = state->word;
        decider->pc = D_PASSED_CALLS;
        break;
    case D_PASSED_CALLS:
        decider->epoch = state->slots[decider->slot].calls;
        decider->pc = D_PASSED_ACTIVE;
        break;
    case D_PASSED_ACTIVE: read_active(state, decider); break;
    case D_FIXED: write_fixed(state, decider); break;
    case D_BODY:
        state->body = wire_epoch(decider->epoch);
        decider->pc = D_PREPARE;
        break;
    case D_PREPARE: prepare(state, decider); break;
    case D_POLL:
        if (poll_move(state, &decider->poll)) {
            *decider = (struct decider){0};
        }
        break;
    case D_WITHDRAW:
        swap_word(state, decider->word, LAGOM_ABORTED);
        *decider = (struct decider){0};
        break;
    case D_IDLE: return false;
    }
    return true;
}

/* Dies wherever it is, and is followed at once by one that knows nothing: the lock went with the dead one. */
static bool crash(struct state *state, struct decider *decider)
{
    if (state->crashes == now->crashes || decider->pc == D_IDLE) {
        return false;
    }
    state->crashes++;
    *decider = (struct decider){0};
    return true;
}

/* ---- What nobody can ever look at again, so that states that differ in nothing else are one --------------------- */

static bool somebody_polls(const struct state *state)
{
    bool found = false;
    for (uint32_t r = 0; r < now->ranks; r++) {
        found |= state->ranks[r].poll.pc != P_LOAD;
    }
    for (uint32_t d = 0; d < now->deciders; d++) {
        found |= state->deciders[d].poll.pc != P_LOAD;
    }
    return found;
}

static bool plan_is_in_use(const struct state *state)
{
    bool found = LAGOM_WORD_STATE(state->word) == LAGOM_PREPARED || now->counter_only || now->fault == COUNTER_FIRST;
    for (uint32_t r = 0; r < now->ranks; r++) {
        found |= state->ranks[r].pc == R_COPY_FIXED || state->ranks[r].pc == R_COPY_BODY;
    }
    for (uint32_t d = 0; d < now->deciders; d++) {
        found |= state->deciders[d].pc == D_BODY || state->deciders[d].pc == D_PREPARE;
    }
    return found;
}

/* Epochs never come back, so an acknowledgement of a closed one is as good as none. */
static void forget_the_dead(struct state *state)
{
    bool open = LAGOM_WORD_STATE(state->word) == LAGOM_PREPARED;
    uint64_t epoch = LAGOM_WORD_EPOCH(state->word);
    bool polling = somebody_polls(state);
    if (now->fault == WRAPPED_EPOCH) {
        return;
    }
    for (uint32_t r = 0; r < now->ranks; r++) {
        struct shared_slot *slot = &state->slots[r];
        state->ranks[r].put_aside *= open && state->ranks[r].put_aside == epoch;
        if (!polling && !(open && slot->ack_epoch == epoch) && state->ranks[r].pc != R_ACK_EPOCH) {
            slot->ack_epoch = slot->ack_plan = slot->ack_history = 0;
        }
        if (!polling && !(open && slot->refused == epoch)) {
            slot->refused = 0;
        }
    }
    if (!plan_is_in_use(state)) {
        state->plan = (struct fixed_part){0};
        state->body = 0;
    }
}

/* ---- Exploration ------------------------------------------------------------------------------------------------ */

#define CHOICES 5u /* of a decider: four beginnings, or death */

static uint32_t moves_in_all(void)
{
    return now->ranks * 2u + now->deciders * CHOICES;
}

static bool apply(struct state *state, uint32_t move)
{
    if (move < now->ranks * 2u) {
        return rank_move(state, move / 2, move % 2 == 1);
    }
    move -= now->ranks * 2u;
    struct decider *decider = &state->deciders[move / CHOICES];
    return move % CHOICES == CHOICES - 1 ? crash(state, decider) : decider_move(state, decider, move % CHOICES);
}

/* A rank that is left alone comes to the end of its call. */
static void check_nobody_waits(const struct state *state)
{
    for (uint32_t r = 0; r < now->ranks && violation == NULL; r++) {
        struct state alone = *state;
        uint32_t left = 64;
        while (left > 0 && alone.ranks[r].call == state->ranks[r].call && rank_move(&alone, r, false)) {
            left--;
        }
        if (left == 0) {
            violation = "a rank waits for others";
        }
    }
}

/* Replay: all have acknowledged and looked, nothing was decided, and nobody will look again. */
static void check_no_commit_is_lost(const struct state *state)
{
    if (!now->last_ack_commits || LAGOM_WORD_STATE(state->word) != LAGOM_PREPARED) {
        return;
    }
    for (uint32_t r = 0; r < now->ranks; r++) {
        const struct rank_state *rank = &state->ranks[r];
        bool idle = rank->pc == R_LOAD || rank->pc == R_COUNT;
        if (!idle || !rank->acknowledged || rank->pending_epoch != LAGOM_WORD_EPOCH(state->word)) {
            return;
        }
    }
    violation = "all ranks acknowledged and nobody committed";
}

static uint64_t fingerprint(const struct state *state)
{
    uint64_t hash = 0x9e3779b97f4a7c15ULL;
    const uint8_t *bytes = (const uint8_t *)state;
    for (size_t i = 0; i < sizeof(*state); i += 8) {
        uint64_t word = 0;
        memcpy(&word, bytes + i, sizeof(*state) - i < 8 ? sizeof(*state) - i : 8);
        hash = (hash ^ word) * 0xd6e8feb86659fd93ULL;
        hash ^= hash >> 32;
    }
    return hash != 0 ? hash : 1;
}

static struct {
    uint64_t *slots;
    uint64_t mask, count;
} visited;

static void visited_grow(void)
{
    uint64_t *old = visited.slots, size = visited.mask + 1;
    visited.mask = size * 2 - 1;
    visited.slots = calloc(size * 2, sizeof(uint64_t));
    if (visited.slots == NULL) {
        perror("calloc");
        exit(1);
    }
    for (uint64_t i = 0; old != NULL && i < size; i++) {
        if (old[i] != 0) {
            uint64_t at = old[i] & visited.mask;
            while (visited.slots[at] != 0) {
                at = (at + 1) & visited.mask;
            }
            visited.slots[at] = old[i];
        }
    }
    free(old);
}

static bool visit(const struct state *state)
{
    uint64_t hash = fingerprint(state), at = hash & visited.mask;
    while (visited.slots[at] != 0) {
        if (visited.slots[at] == hash) {
            return false;
        }
        at = (at + 1) & visited.mask;
    }
    visited.slots[at] = hash;
    if (++visited.count > visited.mask / 2) {
        visited_grow();
    }
    return true;
}

static struct {
    struct state state;
    uint32_t next_move;
} path[MOST_DEPTH];

static void print_trace(uint32_t depth)
{
    printf("    %s, %u moves:\n", violation, depth);
    for (uint32_t i = depth > 40 ? depth - 40 : 0; i < depth; i++) {
        uint32_t move = path[i].next_move - 1;
        const struct state *s = &path[i].state;
        bool is_rank = move < now->ranks * 2u;
        uint32_t who = is_rank ? move / 2 : (move - now->ranks * 2u) / CHOICES;
        printf("      %s %u at step %2u, call %u; word %u/%u\n", is_rank ? "rank   " : "decider", who,
               is_rank ? s->ranks[who].pc : s->deciders[who].pc, is_rank ? s->ranks[who].call : 0, s->word & 3,
               s->word >> 2);
    }
}

static struct state first_state(void)
{
    struct state state = {0};
    if (now->diverged) {
        state.ranks[1].call = 1;
        state.slots[1].calls = 1;
    }
    if (now->stale_writer) {
        state.deciders[1] = (struct decider){.pc = D_FIXED, .margin = 2};
    }
    for (uint32_t r = 0; r < now->ranks; r++) {
        state.ranks[r].pc = now->fault == COUNTER_FIRST ? R_COUNT : R_LOAD;
    }
    return state;
}

static void explore(void)
{
    uint32_t depth = 0;
    path[0].state = first_state();
    path[0].next_move = 0;
    visit(&path[0].state);
    for (;;) {
        if (path[depth].next_move == moves_in_all()) {
            if (depth-- == 0) {
                return;
            }
            continue;
        }
        struct state next = path[depth].state;
        if (!apply(&next, path[depth].next_move++)) {
            continue;
        }
        forget_the_dead(&next);
        if ((violation == NULL && !visit(&next))) {
            continue;
        }
        check_no_commit_is_lost(&next);
        check_nobody_waits(&next);
        if (violation != NULL || depth + 1 == MOST_DEPTH) {
            print_trace(depth + 1);
            return;
        }
        path[++depth].state = next;
        path[depth].next_move = 0;
    }
}

static double seconds(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* True if the scenario came out as its fault demands. */
static bool run(const struct scenario *scenario)
{
    double began = seconds();
    now = scenario;
    violation = NULL;
    memset(&seen, 0, sizeof(seen));
    free(visited.slots);
    visited.slots = NULL;
    visited.mask = (1u << 15) - 1;
    visited.count = 0;
    visited_grow();
    explore();
    bool as_it_should = (scenario->fault == NO_FAULT) == (violation == NULL);
    printf(
        "%s %s: %s, %llu states, %.1f s; %llu activations, %llu aborts by a rank, %llu torn copies, %llu lost swaps\n",
        as_it_should ? "ok  " : "FAIL", scenario->name, violation == NULL ? "holds" : "found",
        (unsigned long long)visited.count, seconds() - began, (unsigned long long)seen.activations,
        (unsigned long long)seen.aborts_by_rank, (unsigned long long)seen.torn_copies,
        (unsigned long long)seen.lost_swaps);
    fflush(stdout);
    return as_it_should && (violation != NULL || seen.activations > 0 || scenario->diverged);
}

/* clang-format off */
static const struct scenario scenarios[] = {
    {.name = "as shipped", .ranks = 2, .deciders = 1, .calls = 5, .publications = 2},
    {.name = "as shipped, three publications", .ranks = 2, .deciders = 1, .calls = 4, .publications = 3},
    {.name = "as shipped, the controller dies and is replaced",
     .ranks = 2, .deciders = 1, .calls = 3, .publications = 2, .crashes = 1},
    {.name = "as shipped, five calls and three publications",
     .ranks = 2, .deciders = 1, .calls = 5, .publications = 3, .slow = true},
    {.name = "as shipped, three ranks and two publications",
     .ranks = 3, .deciders = 1, .calls = 3, .publications = 2, .slow = true},
    {.name = "as shipped, counters alone",
     .ranks = 2, .deciders = 1, .calls = 5, .publications = 2, .counter_only = true},
    {.name = "as shipped, a stopped controller goes on writing",
     .ranks = 2, .deciders = 2, .calls = 3, .publications = 2, .stale_writer = true},
    {.name = "as shipped, one rank a call ahead",
     .ranks = 2, .deciders = 1, .calls = 4, .publications = 2, .diverged = true},
    {.name = "as shipped, three ranks", .ranks = 3, .deciders = 1, .calls = 3, .publications = 1},
    {.name = "replay: the last acknowledger commits",
     .ranks = 2, .deciders = 1, .calls = 4, .publications = 2, .last_ack_commits = true},
    {.name = "S0-1 reuse at once", .fault = REUSE_AT_ONCE, .ranks = 2, .deciders = 1, .calls = 4, .publications = 3},
    {.name = "S0-2 counter before the decision",
     .fault = COUNTER_FIRST, .ranks = 2, .deciders = 1, .calls = 5, .publications = 3},
    {.name = "S0-3 wrapped epoch", .fault = WRAPPED_EPOCH, .ranks = 2, .deciders = 1, .calls = 5, .publications = 4},
    {.name = "S0-4 two writers, no hash",
     .fault = TORN_PLAN, .ranks = 2, .deciders = 2, .calls = 4, .publications = 2, .stale_writer = true},
    {.name = "acknowledged without history",
     .fault = NO_HISTORY, .ranks = 2, .deciders = 1, .calls = 5, .publications = 2, .diverged = true},
    {.name = "S0-5 declined after the commit",
     .fault = DECLINE_AFTER_COMMIT, .ranks = 2, .deciders = 1, .calls = 4, .publications = 1},
    {.name = "late rank does not abort", .fault = NO_ABORT, .ranks = 2, .deciders = 1, .calls = 4, .publications = 2},
    {.name = "replay: looks before it writes",
     .fault = LOOK_BEFORE_WRITING, .ranks = 2, .deciders = 1, .calls = 4, .publications = 1, .last_ack_commits = true},
};
/* clang-format on */

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 ? argv[1] : "";
    bool all = strcmp(wanted, "full") == 0, good = true;
    for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++) {
        bool named = wanted[0] != '\0' && strstr(scenarios[i].name, wanted) != NULL;
        if (all || named || (wanted[0] == '\0' && !scenarios[i].slow)) {
            good &= run(&scenarios[i]);
        }
    }
    return good ? 0 : 1;
}
