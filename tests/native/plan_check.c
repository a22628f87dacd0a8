/* SPDX-License-Identifier: Apache-2.0 */
/* plan_check.c - each fault of a plan is found; the hash covers every byte in use and no other; copies stay inside. */
#include "tests/native/check.h"

static struct lagom_plan plan;

static void make_sound(void)
{
    memset(&plan, 0, sizeof(plan));
    plan.epoch = 3;
    plan.comm_id = 42;
    plan.history_call = 5;
    plan.start_call = 10;
    plan.end_call = 100;
    plan.alternate_iterations = 2;
    plan.flags = LAGOM_PLAN_HAS_CANDIDATE;
    add_site(&plan, LAGOM_ALL_GATHER, MIB, 4);
    add_site(&plan, LAGOM_REDUCE_SCATTER, 2 * MIB, 8);
    for (uint16_t i = 0; i < 7; i++) {
        add_position(&plan, i % 2);
    }
    add_rule(&plan, LAGOM_ANY_FUNCTION, 0, UINT64_MAX, 2);
    plan.hash = lagom_plan_hash(&plan);
}

static void check_fault(enum lagom_plan_fault wanted)
{
    plan.hash = lagom_plan_hash(&plan);
    CHECK_EQUAL(lagom_plan_check(&plan, 42), wanted);
    CHECK(strlen(lagom_plan_fault_text(wanted)) > 10);
    make_sound();
}

static void a_sound_plan(void)
{
    make_sound();
    CHECK_EQUAL(lagom_plan_check(&plan, 42), LAGOM_PLAN_SOUND);
    CHECK_EQUAL(lagom_plan_check(&plan, 0), LAGOM_PLAN_SOUND);
    CHECK_EQUAL(lagom_plan_check_content(&plan), LAGOM_PLAN_SOUND);
    CHECK_EQUAL(lagom_plan_check(&plan, 43), LAGOM_PLAN_BAD_COMMUNICATOR);
    plan.hash++;
    CHECK_EQUAL(lagom_plan_check(&plan, 42), LAGOM_PLAN_BAD_HASH);
}

static void counts(void)
{
    make_sound();
    plan.position_count = LAGOM_MAX_POSITIONS + 1;
    check_fault(LAGOM_PLAN_BAD_COUNT);
    plan.site_count = LAGOM_MAX_SITES + 1;
    check_fault(LAGOM_PLAN_BAD_COUNT);
    plan.rule_count = LAGOM_MAX_RULES + 1;
    check_fault(LAGOM_PLAN_BAD_COUNT);
    plan.position_count = plan.site_count = plan.rule_count = UINT32_MAX;
    check_fault(LAGOM_PLAN_BAD_COUNT);
    plan.alternate_iterations = 0;
    check_fault(LAGOM_PLAN_BAD_COUNT);
    plan.alternate_iterations = 0; /* without a program there is nothing to alternate */
    plan.position_count = 0;
    check_fault(LAGOM_PLAN_SOUND);
}

static void positions(void)
{
    make_sound();
    plan.positions[6] = 2;
    check_fault(LAGOM_PLAN_BAD_POSITION);
    plan.positions[0] = UINT16_MAX;
    check_fault(LAGOM_PLAN_BAD_POSITION);
    plan.positions[7] = 99; /* behind the last one */
    check_fault(LAGOM_PLAN_SOUND);
    plan.sites[1].bytes = LAGOM_TRANSPARENT_BELOW_BYTES - 1;
    check_fault(LAGOM_PLAN_BAD_TRANSPARENT);
    plan.sites[1].function = LAGOM_BROADCAST;
    check_fault(LAGOM_PLAN_BAD_TRANSPARENT);
}

static void configs(void)
{
    make_sound();
    plan.sites[0].incumbent.algorithm = LAGOM_ALGORITHMS;
    check_fault(LAGOM_PLAN_BAD_CONFIG);
    plan.sites[0].candidate.algorithm = -2;
    check_fault(LAGOM_PLAN_BAD_CONFIG);
    plan.sites[1].candidate.protocol = LAGOM_PROTOCOLS;
    check_fault(LAGOM_PLAN_BAD_CONFIG);
    plan.sites[1].incumbent.channels = 65;
    check_fault(LAGOM_PLAN_BAD_CONFIG);
    plan.rules[0].incumbent.threads = 100;
    check_fault(LAGOM_PLAN_BAD_CONFIG);
    plan.rules[0].candidate.threads = 64;
    check_fault(LAGOM_PLAN_BAD_CONFIG);
    plan.rules[0].candidate.chunk_bytes = 511;
    check_fault(LAGOM_PLAN_BAD_CONFIG);
    plan.rules[0].candidate.reserved = 1;
    check_fault(LAGOM_PLAN_BAD_CONFIG);
    plan.rules[0].function = 5;
    check_fault(LAGOM_PLAN_BAD_CONFIG);
    plan.sites[0].function = LAGOM_ANY_FUNCTION;
    check_fault(LAGOM_PLAN_BAD_CONFIG);
    plan.rules[0].bytes_min = 2;
    plan.rules[0].bytes_max = 1;
    check_fault(LAGOM_PLAN_BAD_CONFIG);
    plan.sites[1].incumbent = (struct lagom_config){LAGOM_PAT, LAGOM_SIMPLE, 64, 640, 0, 1u << 30};
    check_fault(LAGOM_PLAN_SOUND);
    CHECK(!lagom_plan_sets_threads(&plan));
    plan.rules[0].candidate.threads = 64;
    CHECK(lagom_plan_sets_threads(&plan));
}

static void leases(void)
{
    make_sound();
    plan.end_call = 0;
    check_fault(LAGOM_PLAN_BAD_LEASE);
    plan.end_call = 10;
    check_fault(LAGOM_PLAN_BAD_LEASE);
    plan.start_call = 5;
    check_fault(LAGOM_PLAN_BAD_LEASE);
    plan.flags = 1u << 3;
    check_fault(LAGOM_PLAN_BAD_LEASE);
    plan.flags = 0;
    plan.end_call = 0;
    check_fault(LAGOM_PLAN_SOUND);
}

/* Flips every bit that counts, one at a time. */
static void the_hash_covers_all_in_use(void)
{
    make_sound();
    const size_t used[][2] = {{0, 8}, /* epoch; behind it lies the hash itself */
                              {16, 72 - 16},
                              {offsetof(struct lagom_plan, positions), 7 * 2},
                              {offsetof(struct lagom_plan, sites), 2 * sizeof(struct lagom_site)},
                              {offsetof(struct lagom_plan, rules), sizeof(struct lagom_rule)}};
    for (size_t part = 0; part < 5; part++) {
        for (size_t bit = used[part][0] * 8; bit < (used[part][0] + used[part][1]) * 8; bit++) {
            ((uint8_t *)&plan)[bit / 8] ^= (uint8_t)(1u << bit % 8);
            CHECK(lagom_plan_hash(&plan) != plan.hash);
            ((uint8_t *)&plan)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
    CHECK_EQUAL(lagom_plan_hash(&plan), plan.hash);
}

static void the_hash_ignores_what_is_not_used(void)
{
    make_sound();
    uint64_t content = lagom_plan_content_hash(&plan);
    memset(&plan.positions[7], 0xff, sizeof(plan.positions) - 14);
    memset(&plan.sites[2], 0xff, sizeof(plan.sites) - 2 * sizeof(plan.sites[0]));
    memset(&plan.rules[1], 0xff, sizeof(plan.rules) - sizeof(plan.rules[0]));
    CHECK_EQUAL(lagom_plan_hash(&plan), plan.hash);
    plan.epoch = plan.start_call = plan.comm_id = 7;
    CHECK_EQUAL(lagom_plan_content_hash(&plan), content);
    CHECK_EQUAL(lagom_plan_check(&plan, 7), LAGOM_PLAN_BAD_HASH);
}

static void a_copy_is_the_same_plan(void)
{
    struct lagom_plan copy;
    make_sound();
    memset(&copy, 0xee, sizeof(copy));
    lagom_plan_copy(&copy, &plan);
    CHECK_EQUAL(lagom_plan_check(&copy, 42), LAGOM_PLAN_SOUND);
    CHECK(memcmp(&copy.sites[2], &copy.sites[3], sizeof(copy.sites[2])) == 0); /* untouched behind what is used */
}

/* Whatever lies there, nothing outside the struct is read or written (the sanitizers watch) and it is refused. */
static void noise_is_refused(void)
{
    struct lagom_plan *from = malloc(sizeof(*from)), *to = malloc(sizeof(*to));
    uint64_t seed = 5;
    for (int round = 0; round < 2000; round++) {
        for (size_t i = 0; i < sizeof(*from) / 8; i++) {
            ((uint64_t *)(void *)from)[i] = next_random(&seed);
        }
        from->position_count = round % 3 == 0 ? (uint32_t)(next_random(&seed) % 5000) : from->position_count;
        from->site_count = round % 5 == 0 ? (uint32_t)(next_random(&seed) % 300) : from->site_count;
        lagom_plan_copy(to, from);
        CHECK(lagom_plan_check(to, 0) != LAGOM_PLAN_SOUND);
        to->hash = lagom_plan_hash(to);
        CHECK(lagom_plan_check(to, 0) != LAGOM_PLAN_SOUND);
    }
    free(from);
    free(to);
}

/* A sound plan with one bit changed is refused by its hash, wherever the bit is. */
static void one_changed_bit_is_refused(void)
{
    uint64_t seed = 9;
    for (int round = 0; round < 5000; round++) {
        make_sound();
        size_t used = offsetof(struct lagom_plan, positions) + 14;
        size_t bit = next_random(&seed) % (used * 8);
        ((uint8_t *)&plan)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(lagom_plan_check(&plan, 42) != LAGOM_PLAN_SOUND);
    }
}

int main(void)
{
    RUN(a_sound_plan);
    RUN(counts);
    RUN(positions);
    RUN(configs);
    RUN(leases);
    RUN(the_hash_covers_all_in_use);
    RUN(the_hash_ignores_what_is_not_used);
    RUN(a_copy_is_the_same_plan);
    RUN(noise_is_refused);
    RUN(one_changed_bit_is_refused);
    return 0;
}
