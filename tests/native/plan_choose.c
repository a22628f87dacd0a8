/* SPDX-License-Identifier: Apache-2.0 */
/* plan_choose.c - which config a call gets: site, rule or nothing; incumbent or candidate; until the lease ends. */
#include "plan/choose.h"
#include "tests/native/check.h"

static struct lagom_plan plan;
static uint16_t failure[LAGOM_MAX_POSITIONS];

/* Sites: AllGather 1 MiB with 4 (5), ReduceScatter 2 MiB with 8 (9). Rules: AllReduce from 64 KiB with 2 (3), any with
 * 12 (13). */
static void make_plan(uint32_t k, uint64_t end_call)
{
    memset(&plan, 0, sizeof(plan));
    plan.flags = LAGOM_PLAN_HAS_CANDIDATE;
    plan.alternate_iterations = k;
    plan.end_call = end_call;
    add_site(&plan, LAGOM_ALL_GATHER, MIB, 4);
    add_site(&plan, LAGOM_REDUCE_SCATTER, 2 * MIB, 8);
    add_position(&plan, 0);
    add_position(&plan, 1);
    add_rule(&plan, LAGOM_ALL_REDUCE, 65536, 8 * MIB, 2);
    add_rule(&plan, LAGOM_ANY_FUNCTION, 16 * MIB, UINT64_MAX, 12);
    lagom_cursor_build(&plan, failure);
}

static struct lagom_choice at_point(struct lagom_program_point point, uint64_t call, uint32_t function, uint64_t bytes)
{
    return lagom_choose(&plan, &point, call, function, bytes);
}

static void order_of_blocks_is_abba(void)
{
    struct lagom_cursor cursor;
    char order[33] = {0};
    make_plan(2, 1000);
    lagom_cursor_start(&cursor, &plan);
    for (uint64_t call = 0; call < 64; call++) {
        const struct lagom_site *site = &plan.sites[call % 2];
        struct lagom_program_point point = lagom_cursor_advance(&cursor, &plan, failure, site->function, site->bytes);
        struct lagom_choice choice = lagom_choose(&plan, &point, call, site->function, site->bytes);
        CHECK(same_config(choice.config, choice.candidate ? site->candidate : site->incumbent));
        order[call / 2] = choice.candidate ? 'B' : 'A';
    }
    CHECK(strcmp(order, "AABBBBAAAABBBBAAAABBBBAAAABBBBAA") == 0);
}

static void the_lease_ends_at_its_call(void)
{
    make_plan(1, 50);
    struct lagom_program_point point = {.in_program = true, .armed = true, .block = 1};
    CHECK(at_point(point, 49, LAGOM_ALL_GATHER, MIB).candidate);
    CHECK(!at_point(point, 50, LAGOM_ALL_GATHER, MIB).candidate);
    CHECK_EQUAL(at_point(point, 50, LAGOM_ALL_GATHER, MIB).config.channels, 4);
    CHECK_EQUAL(at_point(point, UINT64_MAX, LAGOM_ALL_GATHER, MIB).config.channels, 4);
}

static void without_the_flag_there_is_no_candidate(void)
{
    make_plan(1, 50);
    plan.flags = 0;
    struct lagom_program_point point = {.in_program = true, .armed = true, .block = 1};
    CHECK_EQUAL(at_point(point, 10, LAGOM_ALL_GATHER, MIB).config.channels, 4);
}

static void rules_serve_what_the_program_does_not(void)
{
    make_plan(1, 1000);
    struct lagom_program_point suspended = {.block = 1}, transparent = {.transparent = true, .armed = true, .block = 1};
    struct lagom_choice choice = at_point(suspended, 10, LAGOM_ALL_REDUCE, MIB);
    CHECK(choice.config.channels == 2 && !choice.candidate); /* a suspended program tries nothing */
    choice = at_point(transparent, 10, LAGOM_ALL_REDUCE, 65536);
    CHECK(choice.config.channels == 3 && choice.candidate);
    CHECK_EQUAL(at_point(suspended, 10, LAGOM_BROADCAST, 16 * MIB).config.channels, 12);
    CHECK(same_config(at_point(suspended, 10, LAGOM_ALL_REDUCE, 65535).config, STOCK));
    CHECK(same_config(at_point(suspended, 10, LAGOM_ALL_GATHER, MIB).config, STOCK));
}

static void the_first_rule_that_fits_wins(void)
{
    make_plan(1, 1000);
    add_rule(&plan, LAGOM_ALL_REDUCE, 0, UINT64_MAX, 20);
    struct lagom_program_point point = {0};
    CHECK_EQUAL(at_point(point, 0, LAGOM_ALL_REDUCE, 8 * MIB).config.channels, 2); /* limits are inclusive */
    CHECK_EQUAL(at_point(point, 0, LAGOM_ALL_REDUCE, 8 * MIB + 1).config.channels, 20);
    CHECK_EQUAL(at_point(point, 0, LAGOM_ALL_REDUCE, 16 * MIB).config.channels, 12);
}

static void without_a_program_the_candidate_holds_for_the_lease(void)
{
    make_plan(0, 100);
    plan.position_count = 0;
    struct lagom_program_point point = {0};
    for (uint64_t call = 0; call < 200; call++) {
        struct lagom_choice choice = at_point(point, call, LAGOM_ALL_REDUCE, MIB);
        CHECK(choice.candidate == (call < 100) && choice.config.channels == (call < 100 ? 3 : 2));
    }
}

static void an_empty_plan_is_stock(void)
{
    memset(&plan, 0, sizeof(plan));
    struct lagom_program_point point = {0};
    CHECK(same_config(at_point(point, 0, LAGOM_ALL_REDUCE, MIB).config, STOCK));
}

int main(void)
{
    RUN(order_of_blocks_is_abba);
    RUN(the_lease_ends_at_its_call);
    RUN(without_the_flag_there_is_no_candidate);
    RUN(rules_serve_what_the_program_does_not);
    RUN(the_first_rule_that_fits_wins);
    RUN(without_a_program_the_candidate_holds_for_the_lease);
    RUN(an_empty_plan_is_stock);
    return 0;
}
