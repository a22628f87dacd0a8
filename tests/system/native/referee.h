/* SPDX-License-Identifier: Apache-2.0 */
/* referee.h - did every rank run this call alike? The first one to make it writes down what it ran, the others compare. */
#ifndef REFEREE_H
#define REFEREE_H

#include "imitation.h"
#include "storm.h"

/* call number (32 low bits) | A 2 | P 2 | NC 6 | chunk in 16-byte units 18: enough to tell any two configs apart. */
static inline uint64_t word_of(const struct task *task, uint64_t call)
{
    uint64_t config = (uint64_t)task->algorithm | (uint64_t)task->protocol << 2 | (uint64_t)(task->channels & 63) << 4 |
                      (task->chunk / 16) << 10;
    return ((call + 1) << 32) | config;
}

static inline void report_difference(struct storm_control *control, uint32_t rank, uint32_t communicator,
                                     uint64_t call, uint64_t mine, uint64_t theirs)
{
    uint64_t none = 0;
    if (__atomic_compare_exchange_n(&control->difference, &none, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        control->difference_communicator = communicator;
        control->difference_call = call;
        control->difference_rank = rank;
        control->difference_mine = mine & 0xffffffffu;
        control->difference_theirs = theirs & 0xffffffffu;
    }
    __atomic_store_n(&control->stop, 1, __ATOMIC_SEQ_CST);
}

/* First rank writes, later ranks compare. A cell that still holds an older call is ours to take. */
static inline void referee(struct storm_control *control, uint32_t rank, uint32_t communicator, uint64_t call,
                           uint64_t word)
{
    uint64_t *cell = &control->cells[communicator][call % STORM_CELLS];
    uint64_t seen = __atomic_load_n(cell, __ATOMIC_SEQ_CST);
    while (seen >> 32 != word >> 32) {
        if (__atomic_compare_exchange_n(cell, &seen, word, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            return;
        }
    }
    if (seen != word) {
        report_difference(control, rank, communicator, call, word, seen);
    }
}

#endif
