/* SPDX-License-Identifier: Apache-2.0 */
/* cost_table.h - NCCL's cost table: read for what NCCL would choose, written to make it choose something else.
 *
 * Flat float[algorithms][protocols] behind a float **. Two rules hold for every NCCL from 2.24 to 2.32: an entry below
 * zero is never touched (it is not supported here, or the user's NCCL_ALGO / NCCL_PROTO excludes it), and -1 is never
 * written (from 2.31 on a valid entry set to -1 would win). The winner is set to 0.0; up to 2.30 a tie goes to the
 * lowest index and from 2.31 on to the highest, so another 0.0 in the table is lifted out of the way.
 */
#ifndef LAGOM_COST_TABLE_H
#define LAGOM_COST_TABLE_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "protocol/lagom_protocol.h"

#define LAGOM_TABLE_MAX_ROWS 32 /* NCCL has 7 algorithms and 3 protocols; beyond these bounds we do not believe it */
#define LAGOM_TABLE_MAX_COLUMNS 8

struct lagom_cost_table {
    float *costs;
    int algorithms;
    int protocols;
};

/* One entry; index < 0 = none. */
struct lagom_pick {
    int index;
    int8_t algorithm;
    int8_t protocol;
    float microseconds;
};

static inline bool lagom_cost_table_open(struct lagom_cost_table *table, float **costs, int algorithms, int protocols)
{
    *table = (struct lagom_cost_table){(float *)(void *)costs, algorithms, protocols};
    return costs != NULL && algorithms > 0 && algorithms <= LAGOM_TABLE_MAX_ROWS && protocols > 0 &&
           protocols <= LAGOM_TABLE_MAX_COLUMNS;
}

static inline bool lagom_cost_usable(const float *cost)
{
    return *cost >= 0.0f; /* not for NaN */
}

static inline struct lagom_pick lagom_pick_at(const struct lagom_cost_table *table, int index)
{
    return (struct lagom_pick){.index = index,
                               .algorithm = (int8_t)(index / table->protocols),
                               .protocol = (int8_t)(index % table->protocols),
                               .microseconds = table->costs[index]};
}
#define LAGOM_NO_PICK                                                                                                  \
    ((struct lagom_pick){.index = -1, .algorithm = LAGOM_LEAVE, .protocol = LAGOM_LEAVE, .microseconds = -1})

/* Four at a time: this is a good part of what a decision costs, and it is done for every call. */
typedef float lagom_float4 __attribute__((vector_size(16)));
typedef int32_t lagom_int4 __attribute__((vector_size(16)));

static inline lagom_float4 lagom_smaller4(lagom_float4 best, const float *from)
{
    lagom_float4 costs;
    memcpy(&costs, from, sizeof(costs));
    lagom_int4 take = (costs >= 0.0f) & (costs < best);
    return (lagom_float4)((take & (lagom_int4)costs) | (~take & (lagom_int4)best));
}

/* The smallest usable cost; infinity = there is none. */
static inline float lagom_cost_table_smallest(const struct lagom_cost_table *table)
{
    int entries = table->algorithms * table->protocols;
    float lanes[4] = {INFINITY, INFINITY, INFINITY, INFINITY};
    if (entries >= 4) {
        lagom_float4 best = {INFINITY, INFINITY, INFINITY, INFINITY};
        for (int i = 0; i + 4 <= entries; i += 4) {
            best = lagom_smaller4(best, &table->costs[i]);
        }
        best = lagom_smaller4(best, &table->costs[entries - 4]); /* the rest, some of it twice */
        memcpy(lanes, &best, sizeof(lanes));
    } else {
        for (int i = 0; i < entries; i++) {
            lanes[i] = lagom_cost_usable(&table->costs[i]) ? table->costs[i] : INFINITY;
        }
    }
    float low = lanes[0] < lanes[1] ? lanes[0] : lanes[1];
    float high = lanes[2] < lanes[3] ? lanes[2] : lanes[3];
    return low < high ? low : high;
}

/* What NCCL takes by itself: the smallest usable cost, the first of equals. */
static inline struct lagom_pick lagom_cost_table_stock(const struct lagom_cost_table *table)
{
    float smallest = lagom_cost_table_smallest(table);
    int entries = table->algorithms * table->protocols;
    for (int i = 0; i < entries && smallest < INFINITY; i++) {
        if (table->costs[i] == smallest) {
            return lagom_pick_at(table, i);
        }
    }
    return LAGOM_NO_PICK;
}

/* The best usable entry of the rows [from, to) and columns [first, last). */
static inline struct lagom_pick lagom_cost_table_best(const struct lagom_cost_table *table, int from, int to, int first,
                                                      int last)
{
    int best = -1;
    for (int a = from; a < to; a++) {
        for (int i = a * table->protocols + first; i < a * table->protocols + last; i++) {
            if (lagom_cost_usable(&table->costs[i]) && (best < 0 || table->costs[i] < table->costs[best])) {
                best = i;
            }
        }
    }
    return best < 0 ? LAGOM_NO_PICK : lagom_pick_at(table, best);
}

/* The best usable entry with that algorithm and protocol, either of which may be LAGOM_LEAVE. */
static inline struct lagom_pick lagom_cost_table_find(const struct lagom_cost_table *table, int algorithm, int protocol)
{
    if (algorithm >= table->algorithms || protocol >= table->protocols) {
        return LAGOM_NO_PICK;
    }
    bool any_row = algorithm < 0;
    bool any_column = protocol < 0;
    return lagom_cost_table_best(table, any_row ? 0 : algorithm, any_row ? table->algorithms : algorithm + 1,
                                 any_column ? 0 : protocol, any_column ? table->protocols : protocol + 1);
}

/* Whether another entry costs the same as the stock pick, which is the first of equals. */
static inline bool lagom_cost_table_tied(const struct lagom_cost_table *table, const struct lagom_pick *stock)
{
    int entries = table->algorithms * table->protocols;
    for (int i = stock->index + 1; i < entries; i++) {
        if (table->costs[i] == stock->microseconds) {
            return true;
        }
    }
    return false;
}

static inline void lagom_cost_table_lift_zeros(const struct lagom_cost_table *table)
{
    int entries = table->algorithms * table->protocols;
    for (int i = 0; i < entries; i++) {
        if (table->costs[i] == 0.0f) {
            table->costs[i] = FLT_MIN;
        }
    }
}

/* Makes that entry the one NCCL takes. false = it already was, strictly, and nothing was written. */
static inline bool lagom_cost_table_choose(const struct lagom_cost_table *table, const struct lagom_pick *winner,
                                           const struct lagom_pick *stock)
{
    if (winner->index == stock->index && !lagom_cost_table_tied(table, stock)) {
        return false;
    }
    if (stock->microseconds == 0.0f) {
        lagom_cost_table_lift_zeros(table);
    }
    table->costs[winner->index] = 0.0f;
    return true;
}

#endif
