/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/cursor.h"

#include "plan/plan.h"

static const struct lagom_site *site_at(const struct lagom_plan *plan, uint32_t position)
{
    return &plan->sites[plan->positions[position]];
}

/* By what a call looks like, not by site: two sites may differ in nothing but what they overlap with. */
static bool fits(const struct lagom_site *site, uint32_t function, uint64_t bytes)
{
    return site->bytes == bytes && site->function == function;
}

/* The length of the prefix that is matched after one more call, given `matched` before it. */
static uint32_t match_next(const struct lagom_plan *plan, const uint16_t *failure, uint32_t matched, uint32_t function,
                           uint64_t bytes)
{
    while (matched > 0 && !fits(site_at(plan, matched), function, bytes)) {
        matched = failure[matched - 1];
    }
    return fits(site_at(plan, matched), function, bytes) ? matched + 1 : 0;
}

void lagom_cursor_build(const struct lagom_plan *plan, uint16_t failure[LAGOM_MAX_POSITIONS])
{
    uint32_t matched = 0;
    failure[0] = 0;
    for (uint32_t i = 1; i < plan->position_count; i++) {
        const struct lagom_site *site = site_at(plan, i);
        matched = match_next(plan, failure, matched, site->function, site->bytes);
        failure[i] = (uint16_t)matched;
    }
}

void lagom_cursor_start(struct lagom_cursor *cursor, const struct lagom_plan *plan)
{
    bool searching = (plan->flags & LAGOM_PLAN_START_SEARCHING) != 0;
    *cursor = (struct lagom_cursor){.armed = plan->position_count > 0 && !searching,
                                    .block = 3, /* the first iteration begins block 0 */
                                    .block_left = 0};
}

static void begin_iteration(struct lagom_cursor *cursor, const struct lagom_plan *plan)
{
    if (cursor->block_left == 0) {
        cursor->block = (cursor->block + 1) & 3u;
        cursor->block_left = plan->alternate_iterations;
    }
    cursor->block_left -= cursor->block_left > 0;
    cursor->iteration++;
}

static void search(struct lagom_cursor *cursor, const struct lagom_plan *plan, const uint16_t *failure,
                   uint32_t function, uint64_t bytes)
{
    cursor->position = match_next(plan, failure, cursor->position, function, bytes);
    if (cursor->position == plan->position_count) {
        cursor->position = 0;
        cursor->armed = true;
    }
}

static void take_position(struct lagom_cursor *cursor, const struct lagom_plan *plan, struct lagom_program_point *point)
{
    if (cursor->position == 0) {
        begin_iteration(cursor, plan);
    }
    point->in_program = true;
    point->position = cursor->position;
    point->site = plan->positions[cursor->position];
    cursor->position = cursor->position + 1 == plan->position_count ? 0 : cursor->position + 1;
}

static void leave_program(struct lagom_cursor *cursor, const struct lagom_plan *plan, const uint16_t *failure,
                          struct lagom_program_point *point, uint32_t function, uint64_t bytes)
{
    cursor->armed = false;
    cursor->suspensions++;
    point->suspended_now = true;
    search(cursor, plan, failure, function, bytes);
}

struct lagom_program_point lagom_cursor_advance(struct lagom_cursor *cursor, const struct lagom_plan *plan,
                                                const uint16_t failure[LAGOM_MAX_POSITIONS], uint32_t function,
                                                uint64_t bytes)
{
    struct lagom_program_point point = {.armed = cursor->armed};
    if (lagom_is_transparent(function, bytes)) {
        point.transparent = true;
    } else if (cursor->armed && fits(site_at(plan, cursor->position), function, bytes)) {
        take_position(cursor, plan, &point);
    } else if (cursor->armed) {
        point.armed = false;
        leave_program(cursor, plan, failure, &point, function, bytes);
    } else if (plan->position_count > 0) {
        search(cursor, plan, failure, function, bytes);
    }
    point.iteration = cursor->iteration - (cursor->iteration > 0);
    point.block = (uint8_t)cursor->block;
    return point;
}
