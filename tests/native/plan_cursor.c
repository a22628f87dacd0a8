/* SPDX-License-Identifier: Apache-2.0 */
/* plan_cursor.c - the program: followed, left at a mismatch, found again; the same on every rank for any calls. */
#include "plan/cursor.h"
#include "tests/native/check.h"

#define A LAGOM_ALL_GATHER, MIB
#define B LAGOM_REDUCE_SCATTER, MIB
#define C LAGOM_ALL_REDUCE, 4 * MIB
#define SMALL LAGOM_ALL_REDUCE, 1024
#define BROADCAST LAGOM_BROADCAST, 64 * MIB

static struct lagom_plan plan;
static uint16_t failure[LAGOM_MAX_POSITIONS];
static struct lagom_cursor cursor;

/* The program as a word of the letters a, b, c; k iterations a block. */
static void start(const char *program, uint32_t k, uint32_t flags)
{
    memset(&plan, 0, sizeof(plan));
    add_site(&plan, A, 1);
    add_site(&plan, B, 2);
    add_site(&plan, C, 3);
    for (const char *letter = program; *letter != '\0'; letter++) {
        add_position(&plan, (uint16_t)(*letter - 'a'));
    }
    plan.alternate_iterations = k;
    plan.flags = flags;
    lagom_cursor_build(&plan, failure);
    lagom_cursor_start(&cursor, &plan);
}

static struct lagom_program_point call(uint32_t function, uint64_t bytes)
{
    return lagom_cursor_advance(&cursor, &plan, failure, function, bytes);
}

static struct lagom_program_point letter(char name)
{
    const struct lagom_site *site = &plan.sites[name - 'a'];
    return call(site->function, site->bytes);
}

/* Makes the calls; the last one's point. */
static struct lagom_program_point letters(const char *names)
{
    struct lagom_program_point point = {0};
    for (; *names != '\0'; names++) {
        point = letter(*names);
    }
    return point;
}

static void an_armed_program_is_followed(void)
{
    start("aab", 1, 0);
    for (uint32_t iteration = 0; iteration < 10; iteration++) {
        for (uint32_t position = 0; position < 3; position++) {
            struct lagom_program_point point = letter(position == 2 ? 'b' : 'a');
            CHECK(point.in_program && point.armed && !point.transparent && !point.suspended_now);
            CHECK_EQUAL(point.position, position);
            CHECK_EQUAL(point.iteration, iteration);
            CHECK_EQUAL(point.site, position == 2 ? 1 : 0);
        }
    }
    CHECK_EQUAL(cursor.suspensions, 0);
}

static void transparent_calls_do_not_advance(void)
{
    start("ab", 1, 0);
    letter('a');
    struct lagom_program_point point = call(SMALL);
    CHECK(point.transparent && !point.in_program && point.armed);
    CHECK(call(BROADCAST).transparent && call(LAGOM_REDUCE, 64 * MIB).transparent);
    CHECK(call(LAGOM_ALL_REDUCE, LAGOM_TRANSPARENT_BELOW_BYTES - 1).transparent);
    CHECK_EQUAL(letter('b').position, 1);
    CHECK_EQUAL(cursor.suspensions, 0);
    CHECK(!call(LAGOM_ALL_REDUCE, LAGOM_TRANSPARENT_BELOW_BYTES).transparent);
}

static void a_mismatch_suspends_and_one_period_arms_again(void)
{
    start("aab", 1, 0);
    letters("aab");
    struct lagom_program_point point = letters("aac");
    CHECK(point.suspended_now && !point.in_program && !point.armed);
    CHECK_EQUAL(cursor.suspensions, 1);
    point = letters("aab"); /* this period is only looked at */
    CHECK(!point.in_program && !point.suspended_now && cursor.armed);
    point = letter('a');
    CHECK(point.in_program && point.position == 0);
    CHECK_EQUAL(point.iteration, 2);
}

/* An evaluation with the same sizes, any number of them, costs a period and never the phase. */
static void irregular_phases_end(void)
{
    uint64_t seed = 21;
    start("aaabbc", 1, 0);
    for (int round = 0; round < 300; round++) {
        for (uint64_t left = next_random(&seed) % 40; left > 0; left--) {
            letter((char)('a' + next_random(&seed) % 3));
        }
        letters("caaabbc"); /* c ends whatever period was begun */
        struct lagom_program_point point = letters("a");
        CHECK(point.in_program && point.position == 0);
        letters("aabbc");
    }
}

/* aaaa... and abab... occur inside the period; only the whole of it arms. */
static void false_sub_periods_do_not_arm(void)
{
    start("aaaaababababcab", 1, LAGOM_PLAN_START_SEARCHING);
    CHECK(!letters("aaaaaaaaaaaaaaaaaaaa").in_program && !cursor.armed);
    CHECK(!letters("abababababababababab").in_program && !cursor.armed);
    letters("cab");
    CHECK(!cursor.armed); /* "ababab" ran too long before it */
    letters("aaaaababababca");
    CHECK(!cursor.armed);
    letter('b');
    CHECK(cursor.armed);
}

static void searching_finds_the_phase(void)
{
    start("aab", 1, LAGOM_PLAN_START_SEARCHING);
    CHECK(!letters("abaaaa").in_program); /* more a's before than the program has */
    CHECK(!letter('b').in_program && cursor.armed);
    struct lagom_program_point point = letter('a');
    CHECK(point.in_program && point.position == 0);
    CHECK_EQUAL(point.iteration, 0);
    CHECK_EQUAL(cursor.suspensions, 0);
}

/* Two sites of equal function and size differ only in what they overlap with: the match must not tell them apart. */
static void equal_sites_are_matched_by_looks(void)
{
    start("ab", 1, LAGOM_PLAN_START_SEARCHING);
    plan.sites[2] = plan.sites[0];
    plan.positions[0] = 0;
    plan.positions[1] = 2;
    add_position(&plan, 1);
    lagom_cursor_build(&plan, failure);
    lagom_cursor_start(&cursor, &plan);
    letters("aaab");
    CHECK(cursor.armed);
    CHECK_EQUAL(letter('a').site, 0);
    CHECK_EQUAL(letter('a').site, 2);
}

static void one_position(void)
{
    start("a", 1, 0);
    CHECK_EQUAL(letters("aaa").iteration, 2);
    CHECK(letter('b').suspended_now);
    CHECK(!letter('a').in_program && letter('a').in_program);
}

static void without_a_program_nothing_is_armed(void)
{
    start("", 1, 0);
    struct lagom_program_point point = letters("abc");
    CHECK(!point.in_program && !point.armed && !point.suspended_now && cursor.suspensions == 0);
}

/* Blocks of k iterations count 0, 1, 2, 3, 0 ... */
static void blocks_follow_iterations(void)
{
    for (uint32_t k = 1; k <= 5; k++) {
        start("ab", k, LAGOM_PLAN_HAS_CANDIDATE);
        for (uint32_t iteration = 0; iteration < 40; iteration++) {
            CHECK_EQUAL(letter('a').block, iteration / k % 4);
            CHECK_EQUAL(letter('b').block, iteration / k % 4);
        }
    }
}

static void the_longest_program(void)
{
    start("", 1, 0);
    for (uint32_t i = 0; i < LAGOM_MAX_POSITIONS; i++) {
        add_position(&plan, i + 1 == LAGOM_MAX_POSITIONS ? 1 : 0);
    }
    lagom_cursor_build(&plan, failure);
    lagom_cursor_start(&cursor, &plan);
    for (uint32_t i = 0; i < 3 * LAGOM_MAX_POSITIONS; i++) {
        CHECK_EQUAL(letter((i + 1) % LAGOM_MAX_POSITIONS == 0 ? 'b' : 'a').position, i % LAGOM_MAX_POSITIONS);
    }
    CHECK(letter('b').suspended_now);
    for (uint32_t i = 0; i + 1 < 2 * LAGOM_MAX_POSITIONS; i++) {
        letter('a');
    }
    CHECK(!cursor.armed);
    letter('b');
    CHECK(cursor.armed);
}

/* The definition, without the table: after a mismatch, look whether the last calls since the broken iteration's begin
 * are one whole period. */
struct naive {
    char since[4096];
    size_t length;
    bool armed;
    uint32_t iteration;
};

static bool naive_call(struct naive *naive, const char *program, char name)
{
    size_t period = strlen(program);
    naive->since[naive->length++] = name;
    if (naive->armed && program[naive->length - 1] == name) {
        naive->iteration += naive->length == 1;
        naive->length %= period;
        return true;
    }
    naive->armed = false;
    if (naive->length >= period && memcmp(&naive->since[naive->length - period], program, period) == 0) {
        naive->armed = true;
        naive->length = 0;
    }
    return false;
}

static void random_calls_agree_with_the_definition(void)
{
    static const char *const programs[] = {"a", "ab", "aab", "aba", "aabaaab", "abcabcab", "aaaaab", "abacabadabacaba"};
    uint64_t seed = 33;
    for (size_t p = 0; p < sizeof(programs) / sizeof(programs[0]); p++) {
        char program[32];
        snprintf(program, sizeof(program), "%s", programs[p]);
        for (char *at = program; *at != '\0'; at++) {
            *at = *at == 'd' ? 'c' : *at;
        }
        for (int round = 0; round < 200; round++) {
            struct naive naive = {.armed = true};
            start(program, 1, 0);
            for (size_t n = 0; n < 400; n++) {
                bool follow = next_random(&seed) % 8 != 0;
                size_t at = naive.armed ? naive.length : n % strlen(program);
                char name = follow ? program[at] : (char)('a' + next_random(&seed) % 3);
                bool in_program = naive_call(&naive, program, name);
                struct lagom_program_point point = letter(name);
                CHECK_EQUAL(point.in_program, in_program);
                CHECK_EQUAL(cursor.armed, naive.armed);
                CHECK_EQUAL(cursor.iteration, naive.iteration);
            }
        }
    }
}

/* Two ranks' cursors with equal calls are equal bytes at every call. */
static void it_is_a_pure_function_of_the_calls(void)
{
    uint64_t seed = 55;
    for (int round = 0; round < 200; round++) {
        start("aabacab", 2, round % 2 ? LAGOM_PLAN_START_SEARCHING : 0);
        struct lagom_cursor other = cursor;
        for (int n = 0; n < 500; n++) {
            uint32_t function = (uint32_t)(next_random(&seed) % LAGOM_FUNCTIONS);
            uint64_t bytes = 1ull << (10 + next_random(&seed) % 13);
            if (next_random(&seed) % 4 != 0) {
                const struct lagom_site *expected = &plan.sites[plan.positions[cursor.position]];
                function = expected->function;
                bytes = expected->bytes;
            }
            struct lagom_program_point mine = call(function, bytes);
            struct lagom_program_point theirs = lagom_cursor_advance(&other, &plan, failure, function, bytes);
            CHECK(mine.in_program == theirs.in_program && mine.position == theirs.position && mine.site == theirs.site);
            CHECK(mine.iteration == theirs.iteration && mine.block == theirs.block && mine.armed == theirs.armed);
            CHECK(memcmp(&cursor, &other, sizeof(cursor)) == 0);
        }
    }
}

int main(void)
{
    RUN(an_armed_program_is_followed);
    RUN(transparent_calls_do_not_advance);
    RUN(a_mismatch_suspends_and_one_period_arms_again);
    RUN(irregular_phases_end);
    RUN(false_sub_periods_do_not_arm);
    RUN(searching_finds_the_phase);
    RUN(equal_sites_are_matched_by_looks);
    RUN(one_position);
    RUN(without_a_program_nothing_is_armed);
    RUN(blocks_follow_iterations);
    RUN(the_longest_program);
    RUN(random_calls_agree_with_the_definition);
    RUN(it_is_a_pure_function_of_the_calls);
    return 0;
}
