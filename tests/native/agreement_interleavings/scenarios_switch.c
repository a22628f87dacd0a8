/* SPDX-License-Identifier: Apache-2.0 */
/* scenarios_switch.c - one plan after another, nobody restarts. */
#include "model.h"

/* clang-format off */
const struct scenario switch_scenarios[] = {
    {.name = "as shipped", .ranks = 2, .deciders = 1, .calls = 5, .publications = 2},
    {.name = "as shipped, three publications",
     .ranks = 2, .deciders = 1, .calls = 4, .publications = 3, .slow = true},
    {.name = "as shipped, five calls and three publications",
     .ranks = 2, .deciders = 1, .calls = 5, .publications = 3, .slow = true},
    {.name = "as shipped, three ranks and two publications",
     .ranks = 3, .deciders = 1, .calls = 3, .publications = 2, .slow = true},
    {.name = "as shipped, counters alone",
     .ranks = 2, .deciders = 1, .calls = 5, .publications = 2, .counter_only = true, .slow = true},
    {.name = "as shipped, one rank a call ahead",
     .ranks = 2, .deciders = 1, .calls = 4, .publications = 2, .diverged = true},
    {.name = "as shipped, three ranks", .ranks = 3, .deciders = 1, .calls = 3, .publications = 1},
    {.name = "replay: the last acknowledger commits",
     .ranks = 2, .deciders = 1, .calls = 4, .publications = 2, .last_ack_commits = true},
    {.name = "reuse at once", .fault = REUSE_AT_ONCE, .ranks = 2, .deciders = 1, .calls = 4, .publications = 3},
    {.name = "counter before the decision",
     .fault = COUNTER_FIRST, .ranks = 2, .deciders = 1, .calls = 5, .publications = 3},
    {.name = "wrapped epoch", .fault = WRAPPED_EPOCH, .ranks = 2, .deciders = 1, .calls = 5, .publications = 4, .slow = true},
    {.name = "acknowledged without history",
     .fault = NO_HISTORY, .ranks = 2, .deciders = 1, .calls = 5, .publications = 2, .diverged = true},
    {.name = "declined after the commit",
     .fault = DECLINE_AFTER_COMMIT, .ranks = 2, .deciders = 1, .calls = 4, .publications = 1},
    {.name = "late rank does not abort", .fault = NO_ABORT, .ranks = 2, .deciders = 1, .calls = 4, .publications = 2},
    {.name = "replay: looks before it writes",
     .fault = LOOK_BEFORE_WRITING, .ranks = 2, .deciders = 1, .calls = 4, .publications = 1, .last_ack_commits = true},
    {0},
};
/* clang-format on */
