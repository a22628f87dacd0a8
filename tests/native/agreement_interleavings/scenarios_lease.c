/* SPDX-License-Identifier: Apache-2.0 */
/* scenarios_lease.c - a candidate's lease ends while the next plan is offered, agreed, aborted. */
#include "model.h"

/* clang-format off */
const struct scenario lease_scenarios[] = {
    {.name = "lease: ends while the next plan is on its way",
     .ranks = 2, .deciders = 1, .calls = 6, .publications = 2},
    {.name = "lease: and the controller dies",
     .ranks = 2, .deciders = 1, .calls = 5, .publications = 2, .crashes = 1, .slow = true},
    {.name = "lease: seven calls, three plans",
     .ranks = 2, .deciders = 1, .calls = 7, .publications = 3, .slow = true},
    {.name = "lease: until told",
     .fault = LEASE_UNTIL_TOLD, .ranks = 2, .deciders = 1, .calls = 5, .publications = 2},
    {.name = "lease: dropped at the next acknowledgement",
     .fault = LEASE_DROPPED_AT_ACK, .ranks = 2, .deciders = 1, .calls = 5, .publications = 2},
    {.name = "lease: counted from when the commit was seen",
     .fault = LEASE_FROM_ACTIVATION, .ranks = 2, .deciders = 1, .calls = 5, .publications = 1},
    {.name = "lease: renewed by an abort",
     .fault = LEASE_RENEWED_BY_ABORT, .ranks = 2, .deciders = 1, .calls = 6, .publications = 2, .one_margin = true},
    {0},
};
/* clang-format on */
