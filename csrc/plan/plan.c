/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/plan.h"

#include "protocol/lagom_atomic.h"

/* Plans are hashed and copied by 8-byte words; every part of the struct is a whole number of them. */
typedef uint64_t word_view __attribute__((may_alias));
_Static_assert(offsetof(struct lagom_plan, positions) == 9 * 8, "the fixed part is nine words");
_Static_assert(offsetof(struct lagom_plan, sites) % 8 == 0 && offsetof(struct lagom_plan, rules) % 8 == 0, "");

#define FIXED_WORDS 9u
#define HASH_WORD 1u /* the place of lagom_plan.hash */
#define SITE_WORDS ((uint32_t)(sizeof(struct lagom_site) / 8))
#define RULE_WORDS ((uint32_t)(sizeof(struct lagom_rule) / 8))

static uint32_t at_most(uint32_t value, uint32_t limit)
{
    return value < limit ? value : limit;
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    return hash ^ (hash >> 32);
}

static uint64_t hash_words(uint64_t hash, const void *from, uint32_t words)
{
    const word_view *word = from;
    for (uint32_t i = 0; i < words; i++) {
        hash = mix(hash, word[i]);
    }
    return hash;
}

/* Four positions a word; what lies behind the last one does not count. */
static uint64_t hash_positions(uint64_t hash, const uint16_t *positions, uint32_t count)
{
    hash = hash_words(hash, positions, count / 4);
    for (uint32_t i = count & ~3u; i < count; i++) {
        hash = mix(hash, positions[i]);
    }
    return hash;
}

uint64_t lagom_plan_content_hash(const struct lagom_plan *plan)
{
    uint32_t positions = at_most(plan->position_count, LAGOM_MAX_POSITIONS);
    uint32_t sites = at_most(plan->site_count, LAGOM_MAX_SITES);
    uint32_t rules = at_most(plan->rule_count, LAGOM_MAX_RULES);
    uint64_t hash = mix(mix(mix(0, positions), sites), rules);
    hash = hash_positions(hash, plan->positions, positions);
    hash = hash_words(hash, plan->sites, sites * SITE_WORDS);
    return hash_words(hash, plan->rules, rules * RULE_WORDS);
}

uint64_t lagom_plan_hash(const struct lagom_plan *plan)
{
    const word_view *fixed = (const word_view *)(const void *)plan;
    uint64_t hash = lagom_plan_content_hash(plan);
    for (uint32_t i = 0; i < FIXED_WORDS; i++) {
        hash = i == HASH_WORD ? hash : mix(hash, fixed[i]);
    }
    return hash;
}

/* Relaxed atomics, because the other end may be writing: then the copy is torn, and its hash says so. */
static void copy_words(void *to, const void *from, uint32_t words)
{
    word_view *target = to;
    const word_view *source = from;
    for (uint32_t i = 0; i < words; i++) {
        lagom_store_relaxed(&target[i], lagom_load_relaxed(&source[i]));
    }
}

void lagom_plan_copy(struct lagom_plan *to, const struct lagom_plan *from)
{
    copy_words(to, from, FIXED_WORDS);
    copy_words(to->positions, from->positions, (at_most(to->position_count, LAGOM_MAX_POSITIONS) + 3) / 4);
    copy_words(to->sites, from->sites, at_most(to->site_count, LAGOM_MAX_SITES) * SITE_WORDS);
    copy_words(to->rules, from->rules, at_most(to->rule_count, LAGOM_MAX_RULES) * RULE_WORDS);
}
