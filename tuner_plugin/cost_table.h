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

/* Floats from +0.0 to infinity order like their bits; every negative one and every NaN lies above all of them. So "the
 * smallest usable" is one unsigned minimum, without a branch an entry. */
#define LAGOM_COST_INFINITY_BITS 0x7f800000u
static inline uint32_t lagom_cost_bits(const float *cost)
{
    uint32_t bits;
    memcpy(&bits, cost, sizeof(bits));
    return bits;
}

static inline bool lagom_cost_usable(const float *cost)
{
    return lagom_cost_bits(cost) <= LAGOM_COST_INFINITY_BITS;
}

static inline struct lagom_pick lagom_pick_at(const struct lagom_cost_table *table, int index)
{
    return (struct lagom_pick){.index = index,
                               .algorithm = (int8_t)(index / table->protocols),
                               .protocol = (int8_t)(index % table->protocols),
                               .microseconds = table->costs[index]};
}
#define LAGOM_NO_PICK ((struct lagom_pick){.index = -1, .algorithm = LAGOM_LEAVE, .protocol = LAGOM_LEAVE, .microseconds = -1})

/* What NCCL takes by itself: the smallest usable cost, the first of equals. */
static inline struct lagom_pick lagom_cost_table_stock(const struct lagom_cost_table *table)
{
    int entries = table->algorithms * table->protocols;
    uint64_t best = UINT64_MAX; /* cost bits, then index: one comparison finds both */
    for (int i = 0; i < entries; i++) {
        uint64_t key = (uint64_t)lagom_cost_bits(&table->costs[i]) << 32 | (uint32_t)i;
        best = key < best ? key : best;
    }
    return best >> 32 <= LAGOM_COST_INFINITY_BITS ? lagom_pick_at(table, (int)(uint32_t)best) : LAGOM_NO_PICK;
}

/* The best usable entry with that algorithm and protocol, either of which may be LAGOM_LEAVE. */
static inline struct lagom_pick lagom_cost_table_find(const struct lagom_cost_table *table, int algorithm, int protocol)
{
    int best = -1;
    for (int a = 0; a < table->algorithms; a++) {
        for (int p = 0; p < table->protocols; p++) {
            int i = a * table->protocols + p;
            bool fits = (algorithm == LAGOM_LEAVE || a == algorithm) && (protocol == LAGOM_LEAVE || p == protocol);
            if (fits && lagom_cost_usable(&table->costs[i]) && (best < 0 || table->costs[i] < table->costs[best])) {
                best = i;
            }
        }
    }
    return best < 0 ? LAGOM_NO_PICK : lagom_pick_at(table, best);
}

/* Makes that entry the one NCCL takes. false = it already was, strictly, and nothing was written. */
static inline bool lagom_cost_table_choose(const struct lagom_cost_table *table, int winner)
{
    int entries = table->algorithms * table->protocols;
    bool rivals = false;
    for (int i = 0; i < entries; i++) {
        rivals |= i != winner && lagom_cost_usable(&table->costs[i]) && table->costs[i] <= table->costs[winner];
    }
    for (int i = 0; rivals && i < entries; i++) {
        if (i != winner && lagom_cost_usable(&table->costs[i]) && table->costs[i] == 0.0f) {
            table->costs[i] = FLT_MIN;
        }
    }
    if (rivals) {
        table->costs[winner] = 0.0f;
    }
    return rivals;
}

#endif
