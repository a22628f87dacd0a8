/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's cost table, read and written: against a plain reading of many small tables, with refused entries, ties, zeros and
 * NaN anywhere, also in the first and the last place. */
#include <math.h>

#include "tests/native/check.h"
#include "tuner_plugin/apply.h"

#define TABLES 20000
#define MOST (LAGOM_TABLE_MAX_ROWS * LAGOM_TABLE_MAX_COLUMNS)

static float costs[MOST + 1];
static struct lagom_cost_table table;

static float some_cost(uint64_t *random)
{
    static const float some[] = {-1.0f, 0.0f, 1.0f, 2.0f, 2.5f, 3.0f, 1e30f, NAN};
    return some[next_random(random) >> 32 & 7u];
}

static void fill(uint64_t *random)
{
    int rows = 1 + (int)(next_random(random) >> 32 & 3u);
    int columns = 1 + (int)(next_random(random) >> 32 & 3u);
    CHECK(lagom_cost_table_open(&table, (float **)(void *)costs, rows, columns));
    for (int i = 0; i < rows * columns; i++) {
        costs[i] = some_cost(random);
    }
    costs[rows * columns] = 0.0f; /* not in the table, however cheap */
}

/* The first of the cheapest entries of that algorithm and protocol, or -1. */
static int expected(int algorithm, int protocol)
{
    int best = -1;
    for (int i = 0; i < table.algorithms * table.protocols; i++) {
        bool here = (algorithm < 0 || i / table.protocols == algorithm) && (protocol < 0 || i % table.protocols == protocol);
        if (here && costs[i] >= 0.0f && (best == -1 || costs[i] < costs[best])) {
            best = i;
        }
    }
    return best;
}

static void check_pick(struct lagom_pick pick, int index)
{
    CHECK(pick.index == index);
    CHECK(pick.algorithm == (index < 0 ? LAGOM_LEAVE : index / table.protocols));
    CHECK(pick.protocol == (index < 0 ? LAGOM_LEAVE : index % table.protocols));
    CHECK(pick.microseconds == (index < 0 ? -1.0f : costs[index]));
}

static void read_as_nccl_does(void)
{
    check_pick(lagom_cost_table_stock(&table), expected(-1, -1));
    for (int algorithm = -1; algorithm <= table.algorithms; algorithm++) {
        for (int protocol = -1; protocol <= table.protocols; protocol++) {
            check_pick(lagom_cost_table_find(&table, algorithm, protocol), expected(algorithm, protocol));
        }
    }
}

/* Whichever way NCCL breaks a tie: after choose(), the winner alone costs least. */
static void choose_each(void)
{
    float before[MOST];
    int entries = table.algorithms * table.protocols;
    struct lagom_pick stock = lagom_cost_table_stock(&table);
    memcpy(before, costs, sizeof(before));
    for (int winner = 0; winner < entries && stock.index >= 0; winner++) {
        if (!(before[winner] >= 0.0f)) {
            continue;
        }
        bool alone = winner == stock.index;
        for (int i = 0; i < entries; i++) {
            alone = alone && (i == winner || before[i] != before[winner]);
        }
        struct lagom_pick pick = lagom_pick_at(&table, winner);
        CHECK(lagom_cost_table_choose(&table, &pick, &stock) == !alone);
        for (int i = 0; i < entries; i++) {
            bool refused = !(before[i] >= 0.0f);
            CHECK(i == winner || (refused ? memcmp(&costs[i], &before[i], sizeof(float)) == 0 : costs[i] > costs[winner]));
            CHECK(i == winner || refused || costs[i] == before[i] || before[i] == 0.0f);
        }
        CHECK(!alone || memcmp(costs, before, sizeof(before)) == 0);
        memcpy(costs, before, sizeof(before));
    }
}

static void bounds_of_a_table(void)
{
    struct lagom_cost_table opened;
    float **here = (float **)(void *)costs;
    CHECK(lagom_cost_table_open(&opened, here, LAGOM_TABLE_MAX_ROWS, LAGOM_TABLE_MAX_COLUMNS));
    CHECK(opened.costs == costs && opened.algorithms == 32 && opened.protocols == 8);
    CHECK(lagom_cost_table_open(&opened, here, 1, 1));
    CHECK(!lagom_cost_table_open(&opened, NULL, 1, 1));
    CHECK(!lagom_cost_table_open(&opened, here, 0, 1));
    CHECK(!lagom_cost_table_open(&opened, here, 1, 0));
    CHECK(!lagom_cost_table_open(&opened, here, 33, 1));
    CHECK(!lagom_cost_table_open(&opened, here, 1, 9));
}

static void channels_where_nccl_bounds_them(void)
{
    for (int algorithm = LAGOM_LEAVE; algorithm <= LAGOM_ALGORITHMS; algorithm++) {
        for (uint32_t nodes = 1; nodes <= 2; nodes++) {
            bool always = algorithm == LAGOM_TREE || algorithm == LAGOM_RING || algorithm == LAGOM_PAT;
            bool nvls = algorithm == LAGOM_NVLS || algorithm == LAGOM_NVLS_TREE;
            bool possible = always || (nvls && nodes == 1);
            for (uint16_t wanted = 0; wanted <= 1; wanted++) {
                struct lagom_config config = channels(wanted);
                int given = 77;
                CHECK(lagom_apply_channels(&given, algorithm, nodes, &config) == (possible && wanted == 1));
                CHECK(given == (possible && wanted == 1 ? 1 : 77));
                CHECK(config.channels == (possible ? wanted : 0));
            }
        }
    }
}

static void stock_is_what_asks_for_nothing(void)
{
    struct lagom_config configs[] = {STOCK, STOCK, STOCK, STOCK, STOCK};
    configs[0].algorithm = LAGOM_TREE;
    configs[1].protocol = 0;
    configs[2].channels = 1;
    configs[3].threads = 64;
    configs[4].chunk_bytes = 1;
    for (int i = 0; i < 5; i++) {
        CHECK(!lagom_config_is_stock(&configs[i]));
        CHECK(lagom_config_names_algorithm(&configs[i]) == (i < 2));
    }
    struct lagom_config stock = STOCK;
    CHECK(lagom_config_is_stock(&stock));
}

int main(void)
{
    uint64_t random = 20261123;
    for (int i = 0; i < TABLES; i++) {
        fill(&random);
        read_as_nccl_does();
        choose_each();
    }
    bounds_of_a_table();
    channels_where_nccl_bounds_them();
    stock_is_what_asks_for_nothing();
    return 0;
}
