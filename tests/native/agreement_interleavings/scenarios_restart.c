/* SPDX-License-Identifier: Apache-2.0 */
/* scenarios_restart.c - the controller, ranks, or the whole job come again and find what was left behind. */
#include "model.h"

/* clang-format off */
const struct scenario restart_scenarios[] = {
    {.name = "restart: the controller dies and is replaced",
     .ranks = 2, .deciders = 1, .calls = 3, .publications = 2, .crashes = 1},
    {.name = "restart: the controller dies twice",
     .ranks = 2, .deciders = 1, .calls = 4, .publications = 3, .crashes = 2, .slow = true},
    {.name = "restart: ranks come late and leave early",
     .ranks = 2, .deciders = 1, .calls = 4, .publications = 2, .come_and_go = true},
    {.name = "restart: three ranks come late and leave early",
     .ranks = 3, .deciders = 1, .calls = 3, .publications = 1, .come_and_go = true, .slow = true},
    {.name = "restart: all ranks come again, under the same controller",
     .ranks = 2, .deciders = 1, .calls = 3, .publications = 2, .lives = 2},
    {.name = "restart: all ranks come again, and three plans",
     .ranks = 2, .deciders = 1, .calls = 3, .publications = 3, .lives = 2, .slow = true},
    {.name = "restart: all ranks come again and the controller dies",
     .ranks = 2, .deciders = 1, .calls = 2, .publications = 2, .lives = 2, .crashes = 1},
    {.name = "restart: those who are there are taken for all",
     .fault = PARTIAL_IS_ENOUGH, .ranks = 2, .deciders = 1, .calls = 4, .publications = 1, .come_and_go = true},
    {.name = "restart: a new controller counts epochs from one",
     .fault = EPOCHS_START_AGAIN, .ranks = 2, .deciders = 1, .calls = 4, .publications = 2, .crashes = 1,
     .one_margin = true, .slow = true},
    {.name = "restart: acknowledgements are left behind",
     .fault = ACK_LEFT_BEHIND, .ranks = 2, .deciders = 1, .calls = 4, .publications = 1, .lives = 2},
    {.name = "restart: an entry is used again too early",
     .fault = RECYCLED_TOO_EARLY, .ranks = 2, .deciders = 1, .calls = 3, .publications = 1, .lives = 2},
    {0},
};
/* clang-format on */
