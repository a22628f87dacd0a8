/* SPDX-License-Identifier: Apache-2.0 */
/* agreement_transitions.c - the switch's pure functions, case by case: every state of the word against every state of a
 * rank. */
#include "agreement/switch.h"
#include "tests/native/check.h"

#define NONE 0, 0, 0, false, false, 0
#define HELD 5, 10, 20, false, false, 0
#define ACKED 5, 10, 20, true, false, 0
#define DECIDED 5, 10, 20, true, true, 0
#define BEFORE 7
#define OPEN 12
#define THERE 20

struct rank_case {
    struct lagom_pending pending;
    enum lagom_switch_state state;
    uint64_t epoch;
    uint64_t call;
    enum lagom_step wanted;
};

static const struct rank_case rank_cases[] = {
    /* nothing held */
    {{NONE}, LAGOM_COMMITTED, 0, OPEN, LAGOM_STEP_GO_ON},
    {{NONE}, LAGOM_COMMITTED, 5, OPEN, LAGOM_STEP_GO_ON}, /* not mine: I was never asked */
    {{NONE}, LAGOM_ABORTED, 5, OPEN, LAGOM_STEP_GO_ON},
    {{NONE}, LAGOM_PREPARED, 5, OPEN, LAGOM_STEP_COPY},
    {{NONE}, LAGOM_LOCKED, 5, OPEN, LAGOM_STEP_GO_ON},
    {{0, 0, 0, false, false, 5}, LAGOM_PREPARED, 5, OPEN, LAGOM_STEP_GO_ON}, /* put aside once, not copied again */
    {{0, 0, 0, false, false, 5}, LAGOM_PREPARED, 6, OPEN, LAGOM_STEP_COPY},
    /* held, not yet acknowledged */
    {{HELD}, LAGOM_PREPARED, 5, BEFORE, LAGOM_STEP_GO_ON},
    {{HELD}, LAGOM_PREPARED, 5, 10, LAGOM_STEP_ACKNOWLEDGE},
    {{HELD}, LAGOM_PREPARED, 5, 19, LAGOM_STEP_ACKNOWLEDGE},
    {{HELD}, LAGOM_PREPARED, 5, THERE, LAGOM_STEP_ABORT},
    {{HELD}, LAGOM_PREPARED, 6, OPEN, LAGOM_STEP_DROP},
    {{HELD}, LAGOM_ABORTED, 5, OPEN, LAGOM_STEP_DROP},
    {{HELD}, LAGOM_COMMITTED, 5, OPEN, LAGOM_STEP_DROP}, /* cannot be: my acknowledgement was missing */
    /* acknowledged */
    {{ACKED}, LAGOM_PREPARED, 5, OPEN, LAGOM_STEP_GO_ON},
    {{ACKED}, LAGOM_PREPARED, 5, 19, LAGOM_STEP_GO_ON},
    {{ACKED}, LAGOM_PREPARED, 5, THERE, LAGOM_STEP_ABORT},
    {{ACKED}, LAGOM_PREPARED, 5, THERE + 9, LAGOM_STEP_ABORT},
    {{ACKED}, LAGOM_COMMITTED, 5, OPEN, LAGOM_STEP_COMMIT},
    {{ACKED}, LAGOM_COMMITTED, 5, THERE, LAGOM_STEP_COMMIT},
    {{ACKED}, LAGOM_ABORTED, 5, OPEN, LAGOM_STEP_DROP},
    {{ACKED}, LAGOM_ABORTED, 5, THERE, LAGOM_STEP_DROP},
    {{ACKED}, LAGOM_PREPARED, 6, THERE, LAGOM_STEP_DROP}, /* a later epoch: mine was aborted */
    {{ACKED}, LAGOM_ABORTED, 6, THERE, LAGOM_STEP_DROP},
    {{ACKED}, LAGOM_COMMITTED, 6, THERE, LAGOM_STEP_DROP},
    {{ACKED}, LAGOM_LOCKED, 5, OPEN, LAGOM_STEP_DROP},
    /* decided: whatever the word turns into */
    {{DECIDED}, LAGOM_COMMITTED, 5, OPEN, LAGOM_STEP_GO_ON},
    {{DECIDED}, LAGOM_COMMITTED, 5, THERE, LAGOM_STEP_ACTIVATE},
    {{DECIDED}, LAGOM_PREPARED, 6, OPEN, LAGOM_STEP_GO_ON},
    {{DECIDED}, LAGOM_PREPARED, 6, THERE, LAGOM_STEP_ACTIVATE},
    {{DECIDED}, LAGOM_ABORTED, 5, THERE, LAGOM_STEP_ACTIVATE},
    {{DECIDED}, LAGOM_LOCKED, 9, THERE, LAGOM_STEP_ACTIVATE},
};

static void every_word_against_every_rank(void)
{
    for (size_t i = 0; i < sizeof(rank_cases) / sizeof(rank_cases[0]); i++) {
        const struct rank_case *one = &rank_cases[i];
        enum lagom_step step = lagom_switch_rank(&one->pending, LAGOM_WORD(one->state, one->epoch), one->call);
        if (step != one->wanted) {
            fprintf(stderr, "case %zu: step %d, not %d\n", i, (int)step, (int)one->wanted);
            exit(1);
        }
    }
}

static void waking(void)
{
    struct lagom_pending none = {NONE}, held = {HELD}, acked = {ACKED};
    CHECK_EQUAL(lagom_switch_wake(&none, OPEN), UINT64_MAX);
    CHECK_EQUAL(lagom_switch_wake(&held, BEFORE), 10);
    CHECK_EQUAL(lagom_switch_wake(&held, 10), 20);
    CHECK_EQUAL(lagom_switch_wake(&acked, OPEN), 20);
    CHECK_EQUAL(lagom_switch_wake(&acked, BEFORE), 20);
}

static void holding(void)
{
    struct lagom_pending pending = {.put_aside_epoch = 3};
    lagom_pending_hold(&pending, 5, 10, 20);
    CHECK(pending.epoch == 5 && pending.history_call == 10 && pending.start_call == 20 && pending.put_aside_epoch == 3);
    CHECK(!pending.acknowledged && !pending.committed);
    pending.acknowledged = pending.committed = true;
    lagom_pending_drop(&pending);
    CHECK(pending.epoch == 0 && pending.put_aside_epoch == 5 && !pending.acknowledged && !pending.committed);
}

static enum lagom_verdict verdict(uint32_t ranks, struct lagom_ack first, struct lagom_ack second)
{
    struct lagom_tally tally = {.epoch = 5};
    lagom_tally_add(&tally, &first);
    lagom_tally_add(&tally, &second);
    return lagom_tally_verdict(&tally, ranks);
}

static void counting(void)
{
    const struct lagom_ack yes = {0, 5, 70, 80}, none = {0}, old = {4, 4, 70, 80}, no = {5, 4, 0, 0};
    const struct lagom_ack other_plan = {0, 5, 71, 80}, other_history = {0, 5, 70, 81},
                           changed_its_mind = {5, 5, 70, 80};
    CHECK_EQUAL(verdict(2, yes, yes), LAGOM_VERDICT_COMMIT);
    CHECK_EQUAL(verdict(2, yes, none), LAGOM_VERDICT_WAIT);
    CHECK_EQUAL(verdict(2, none, none), LAGOM_VERDICT_WAIT);
    CHECK_EQUAL(verdict(2, old, yes), LAGOM_VERDICT_WAIT);
    CHECK_EQUAL(verdict(2, no, yes), LAGOM_VERDICT_ABORT);
    CHECK_EQUAL(verdict(2, none, no), LAGOM_VERDICT_ABORT);
    CHECK_EQUAL(verdict(2, yes, other_plan), LAGOM_VERDICT_ABORT);
    CHECK_EQUAL(verdict(2, yes, other_history), LAGOM_VERDICT_ABORT);
    CHECK_EQUAL(verdict(2, yes, changed_its_mind), LAGOM_VERDICT_ABORT);
    CHECK_EQUAL(verdict(3, yes, yes), LAGOM_VERDICT_ABORT); /* one has left */
    CHECK_EQUAL(verdict(1, yes, yes), LAGOM_VERDICT_ABORT);
    struct lagom_tally twice = {.epoch = 5, .doubled = true};
    lagom_tally_add(&twice, &yes);
    lagom_tally_add(&twice, &yes);
    CHECK_EQUAL(lagom_tally_verdict(&twice, 2), LAGOM_VERDICT_ABORT); /* one answered for two */
}

static void preparing(void)
{
    CHECK(lagom_switch_may_prepare(LAGOM_WORD(LAGOM_COMMITTED, 5), true) &&
          !lagom_switch_may_prepare(LAGOM_WORD(LAGOM_COMMITTED, 5), false));
    CHECK(lagom_switch_may_prepare(LAGOM_WORD(LAGOM_ABORTED, 5), false));
    CHECK(!lagom_switch_may_prepare(LAGOM_WORD(LAGOM_PREPARED, 5), true) &&
          !lagom_switch_may_prepare(LAGOM_WORD(LAGOM_LOCKED, 5), true));
    CHECK(lagom_switch_passed(0, 0, 0, 0));
    CHECK(lagom_switch_passed(5, 5, 20, 21) && !lagom_switch_passed(5, 5, 20, 20) &&
          !lagom_switch_passed(5, 4, 10, 50));
}

static void the_word(void)
{
    uint64_t word = LAGOM_WORD(LAGOM_PREPARED, (1ull << 62) - 1);
    CHECK_EQUAL(LAGOM_WORD_STATE(word), LAGOM_PREPARED);
    CHECK_EQUAL(LAGOM_WORD_EPOCH(word), (1ull << 62) - 1);
    CHECK_EQUAL(LAGOM_WORD(LAGOM_COMMITTED, 0), 0);
}

int main(void)
{
    RUN(every_word_against_every_rank);
    RUN(waking);
    RUN(holding);
    RUN(counting);
    RUN(preparing);
    RUN(the_word);
    return 0;
}
