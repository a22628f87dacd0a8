/* wait_budget.h - how long one process may wait for others while it registers: two seconds over all its communicators
 * together, because NCCL's init waits with it. Then it gives up for good: what comes later falls back to NCCL at once.
 *
 * Only waiting is counted, by the monotonic clock, and of one pause no more than 50 ms: a pause that took longer was spent
 * without a processor, which says nothing about the lock. Whatever a pause took, the lock is tried once more before giving
 * up. A lock that is free costs nothing. Internal to csrc/shm; the attachments' lock is held.
 */
#ifndef LAGOM_WAIT_BUDGET_H
#define LAGOM_WAIT_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define LAGOM_WAIT_BUDGET_MILLISECONDS 2000u

void lagom_wait_budget_renew(void); /* whoever attaches has all of it */
bool lagom_wait_budget_over(void);  /* a lock was still held when all of it was spent */

/* Sleeps, and takes the time that took from the budget and from *share_ns. false, without sleeping and with *share_ns at
 * 0, if either has run out. */
bool lagom_wait_budget_pause(uint64_t *share_ns, uint32_t microseconds);

/* Takes the lock, waiting at most `milliseconds` of the budget. */
bool lagom_wait_budget_lock(int fd, uint32_t byte, uint32_t milliseconds);

#endif
