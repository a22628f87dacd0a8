/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_life.c - communicators as a job makes and loses them: destroyed, aborted in the middle of an agreement, split,
 * shrunk to the survivors, and many at once. Whatever becomes of one, the others go on, and a new one starts as stock. */
#include "tests/native/plugin_harness.h"

#define WORLD 4
#define COMM 0x900u

static struct plugin plugin;
static struct lagom_region *region;

struct team {
    struct rank ranks[WORLD];
    int size;
    uint64_t id;
};

static struct team found_team(uint64_t id, int size)
{
    struct team team = {.size = size, .id = id};
    for (int i = 0; i < size; i++) {
        team.ranks[i] = make_rank(&plugin, 6, id, (size_t)size, 1);
        CHECK(team.ranks[i].context != NULL);
    }
    return team;
}

static void all_call(struct team *team, int times)
{
    for (int n = 0; n < times * team->size; n++) {
        call(&team->ranks[n % team->size], LAGOM_ALL_REDUCE, MIB);
    }
}

static void end_team(struct team *team)
{
    for (int i = 0; i < team->size; i++) {
        end_rank(&team->ranks[i]);
    }
}

/* All ranks of the team run `channels` from their next call on; 0 = stock. */
static void check_runs(struct team *team, int channels)
{
    for (int i = 0; i < team->size; i++) {
        call(&team->ranks[i], LAGOM_ALL_REDUCE, MIB);
        CHECK_EQUAL(team->ranks[i].channels, channels);
        CHECK(channels != 0 || untouched(&team->ranks[i]));
    }
}

static struct lagom_plan plan_of(int channels)
{
    struct lagom_plan plan = {0};
    struct lagom_config config = leave_all();
    config.channels = (uint16_t)channels;
    add_rule(&plan, LAGOM_ANY_FUNCTION, 0, UINT64_MAX, config);
    return plan;
}

static void give(struct team *team, int channels)
{
    struct lagom_plan plan = plan_of(channels);
    CHECK(put_in_force(region, find_communicator_of(region, team->id), &plan, team->ranks, team->size));
    all_call(team, 2);
    check_runs(team, channels);
}

static enum lagom_switch_state state_of(uint32_t communicator)
{
    return LAGOM_WORD_STATE(region->communicators[communicator].word);
}

static void begin(void)
{
    plugin = load_plugin();
    struct team first = found_team(1, 2); /* the plugin makes its region */
    end_team(&first);
    region = map_region();
    CHECK(region != NULL);
}

/* ---- Destroyed and made again ----------------------------------------------------------------------------------- */

static void the_next_one_starts_as_stock(void)
{
    begin();
    for (uint64_t life = 0; life < 300; life++) { /* more than there are entries */
        struct team team = found_team(COMM + life, WORLD);
        check_runs(&team, 0);
        give(&team, 1 + (int)(life % 7));
        end_team(&team);
    }
}

static void destroyed_in_any_order(void)
{
    begin();
    struct team one = found_team(COMM, 2), two = found_team(COMM + 1, 2);
    give(&one, 3);
    give(&two, 5);
    end_rank(&one.ranks[1]); /* rank 1 is through with it, rank 0 still has calls to make */
    end_rank(&two.ranks[0]);
    for (int i = 0; i < 50; i++) {
        call(&one.ranks[0], LAGOM_ALL_REDUCE, MIB);
        call(&two.ranks[1], LAGOM_ALL_REDUCE, MIB);
        CHECK(one.ranks[0].channels == 3 && two.ranks[1].channels == 5);
    }
    end_rank(&one.ranks[0]);
    end_rank(&two.ranks[1]);
}

/* ---- Aborted in the middle of an agreement ---------------------------------------------------------------------- */

/* ncclCommAbort on one rank after it has acknowledged: nobody may commit what it can no longer run. */
static void aborted_under_an_open_plan(void)
{
    begin();
    struct team team = found_team(COMM, WORLD);
    uint32_t communicator = find_communicator_of(region, COMM);
    all_call(&team, 3);
    struct lagom_plan plan = plan_of(9);
    plan.start_call = 8;
    CHECK_EQUAL(lagom_publish(region, communicator, &plan), LAGOM_PUBLISH_OK);
    all_call(&team, 1); /* all acknowledge */
    end_rank(&team.ranks[2]);
    CHECK_EQUAL(lagom_publish_poll(region, communicator), LAGOM_OUTCOME_ABORTED);
    for (int n = 0; n < 20; n++) {
        call(&team.ranks[0], LAGOM_ALL_REDUCE, MIB);
        CHECK(untouched(&team.ranks[0]));
    }
    plan.start_call = 100;
    CHECK_EQUAL(lagom_publish(region, communicator, &plan), LAGOM_PUBLISH_INCOMPLETE);
}

/* And with no controller left to look: the survivors abort by themselves when they arrive. */
static void aborted_and_nobody_looks(void)
{
    begin();
    struct team team = found_team(COMM, WORLD);
    uint32_t communicator = find_communicator_of(region, COMM);
    struct lagom_plan plan = plan_of(9);
    plan.start_call = 5;
    CHECK_EQUAL(lagom_publish(region, communicator, &plan), LAGOM_PUBLISH_OK);
    all_call(&team, 2);
    end_rank(&team.ranks[0]);
    for (int n = 0; n < 20; n++) {
        call(&team.ranks[1], LAGOM_ALL_REDUCE, MIB);
        CHECK(untouched(&team.ranks[1]));
    }
    CHECK_EQUAL(state_of(communicator), LAGOM_ABORTED);
}

/* After the commit, before its start: the survivors' collectives fail anyway, but until then all decide alike. */
static void aborted_after_the_commit(void)
{
    begin();
    struct team team = found_team(COMM, WORLD);
    uint32_t communicator = find_communicator_of(region, COMM);
    struct lagom_plan plan = plan_of(9);
    plan.start_call = 6;
    CHECK_EQUAL(lagom_publish(region, communicator, &plan), LAGOM_PUBLISH_OK);
    all_call(&team, 2);
    CHECK_EQUAL(lagom_publish_poll(region, communicator), LAGOM_OUTCOME_COMMITTED);
    end_rank(&team.ranks[3]);
    for (int n = 2; n < 20; n++) {
        for (int i = 0; i < WORLD - 1; i++) {
            call(&team.ranks[i], LAGOM_ALL_REDUCE, MIB);
            CHECK_EQUAL(team.ranks[i].channels, n < 6 ? 0 : 9);
        }
    }
}

/* ---- Shrunk and split ------------------------------------------------------------------------------------------- */

/* ncclCommShrink: the survivors make a communicator of their own, with another id, size and plan; then abort the old. */
static void shrunk_to_the_survivors(void)
{
    begin();
    struct team world = found_team(COMM, WORLD);
    give(&world, 6);
    end_rank(&world.ranks[3]);
    struct team rest = found_team(COMM + 1, WORLD - 1);
    for (int i = 0; i < WORLD - 1; i++) {
        end_rank(&world.ranks[i]);
    }
    check_runs(&rest, 0);
    give(&rest, 2);
    end_team(&rest);
}

/* ncclCommSplit: parent and children live side by side, each with calls, counters and a plan of its own. */
static void split_and_all_tuned_at_once(void)
{
    begin();
    struct team teams[5] = {found_team(COMM, WORLD), found_team(COMM + 1, 2), found_team(COMM + 2, 2),
                            found_team(COMM + 3, 3), found_team(COMM + 4, WORLD)};
    for (int i = 0; i < 5; i++) {
        all_call(&teams[i], i);
        give(&teams[i], 3 + i);
    }
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 5; i++) {
            check_runs(&teams[i], 3 + i);
        }
    }
    end_team(&teams[1]);
    check_runs(&teams[0], 3);
    check_runs(&teams[2], 5);
    give(&teams[0], 11);
    check_runs(&teams[4], 7);
}

/* Plans prepared on several communicators before any is decided: each goes its own way. */
static void several_open_at_once(void)
{
    begin();
    struct team teams[3] = {found_team(COMM, 2), found_team(COMM + 1, 2), found_team(COMM + 2, 2)};
    struct lagom_plan plans[3];
    for (int i = 0; i < 3; i++) {
        plans[i] = plan_of(4 + i);
        plans[i].start_call = 5;
        uint32_t communicator = find_communicator_of(region, COMM + (uint64_t)i);
        CHECK_EQUAL(lagom_publish(region, communicator, &plans[i]), LAGOM_PUBLISH_OK);
    }
    all_call(&teams[0], 2);
    all_call(&teams[2], 2);
    call(&teams[1].ranks[0], LAGOM_ALL_REDUCE, MIB); /* the second team's other rank has not acknowledged */
    CHECK_EQUAL(lagom_publish_poll(region, find_communicator_of(region, COMM)), LAGOM_OUTCOME_COMMITTED);
    CHECK_EQUAL(lagom_publish_poll(region, find_communicator_of(region, COMM + 1)), LAGOM_OUTCOME_OPEN);
    CHECK_EQUAL(lagom_publish_withdraw(region, find_communicator_of(region, COMM + 2)), LAGOM_OUTCOME_ABORTED);
    for (int i = 0; i < 3; i++) {
        all_call(&teams[i], 6);
        check_runs(&teams[i], i == 0 ? 4 : 0);
    }
}

int main(void)
{
    int failures = 0;
    failures += RUN(the_next_one_starts_as_stock);
    failures += RUN(destroyed_in_any_order);
    failures += RUN(aborted_under_an_open_plan);
    failures += RUN(aborted_and_nobody_looks);
    failures += RUN(aborted_after_the_commit);
    failures += RUN(shrunk_to_the_survivors);
    failures += RUN(split_and_all_tuned_at_once);
    failures += RUN(several_open_at_once);
    return failures != 0;
}
