/* SPDX-License-Identifier: Apache-2.0 */
/* scenarios_stop.c - a controller is stopped at any moment, succeeded, and later finishes what it had begun. */
#include "model.h"

/* clang-format off */
const struct scenario stop_scenarios[] = {
    {.name = "stop: a controller that was stopped while it published goes on writing",
     .ranks = 2, .deciders = 2, .calls = 3, .publications = 2, .stopped_at = D_FIXED, .slow = true},
    {.name = "stop: anywhere, two calls",
     .ranks = 2, .deciders = 2, .calls = 2, .publications = 2, .stops = 1, .one_margin = true},
    {.name = "stop: anywhere, three calls",
     .ranks = 2, .deciders = 2, .calls = 3, .publications = 2, .stops = 1, .slow = true},
    {.name = "stop: and the successor is stopped too",
     .ranks = 2, .deciders = 2, .calls = 2, .publications = 2, .stops = 2, .slow = true},
    {.name = "stop: and all ranks come again meanwhile",
     .ranks = 2, .deciders = 2, .calls = 2, .publications = 2, .stops = 1, .lives = 2, .one_margin = true, .slow = true},
    {.name = "stop: two writers, no hash",
     .fault = TORN_PLAN, .ranks = 2, .deciders = 2, .calls = 4, .publications = 2, .stopped_at = D_FIXED, .slow = true},
    {.name = "stop: prepares without looking again",
     .fault = BLIND_PREPARE, .ranks = 2, .deciders = 2, .calls = 4, .publications = 2, .stopped_at = D_FIXED,
     .one_margin = true, .slow = true},
    {.name = "stop: prepares without looking again, stopped anywhere",
     .fault = BLIND_PREPARE, .ranks = 2, .deciders = 2, .calls = 3, .publications = 2, .stops = 1, .slow = true},
    {.name = "stop: commits without looking again",
     .fault = BLIND_COMMIT, .ranks = 2, .deciders = 1, .calls = 3, .publications = 1},
    {.name = "stop: a rank aborts without looking again",
     .fault = BLIND_ABORT, .ranks = 2, .deciders = 1, .calls = 3, .publications = 1},
    {0},
};
/* clang-format on */
