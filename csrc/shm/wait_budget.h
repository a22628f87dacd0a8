/* SPDX-License-Identifier: Apache-2.0 */
/* wait_budget.h - how long one process may wait for others while it registers: two seconds over all its communicators
 * together, because NCCL's init waits with it. Then it gives up permanently: later communicators fall back to NCCL at once.
 *
 * Counted are the pauses, by the monotonic clock, and what looking between them costs, by this thread's CPU time (in a
 * process of 20,000 mappings one look takes 10 ms). Of one pause no more than 50 ms count: a longer one was spent without
 * a processor, which says nothing about the lock. Whatever a pause took, the lock is tried once more before giving up. A
 * lock that is free costs nothing. Internal to csrc/shm; the
 * attachments' turn is had (attachment.h), and their lock let go in a pause.
 */
#ifndef LAGOM_WAIT_BUDGET_H
#define LAGOM_WAIT_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define LAGOM_WAIT_BUDGET_MILLISECONDS 2000u

void lagom_wait_budget_renew(void); /* whoever attaches has all of it */
bool lagom_wait_budget_over(void);  /* a lock was still held when all of it was spent */

/* One wait, which may have part of the budget. */
struct lagom_wait {
    uint64_t left_ns;
    uint64_t cpu_ns; /* of this thread, when it began or last looked */
};
struct lagom_wait lagom_wait_begin(uint32_t milliseconds);

/* Sleeps, and takes from the budget and from *wait what that took and what looking took before. false, without sleeping
 * and with nothing left of *wait, if either has run out. */
bool lagom_wait_pause(struct lagom_wait *wait, uint32_t microseconds);

/* Takes away what looking has taken since then, and says whether anything is left: for looks that may be long. */
bool lagom_wait_look(struct lagom_wait *wait);

/* Takes the lock, waiting at most `milliseconds` of the budget; not for a descriptor that is lost (*fd = -1, attachment.h). */
bool lagom_wait_budget_lock(const int *fd, uint32_t byte, uint32_t milliseconds);

#endif
