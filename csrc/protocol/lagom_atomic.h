/* SPDX-License-Identifier: Apache-2.0 */
/* lagom_atomic.h - every memory ordering that crosses a process boundary, named once.
 *
 * load_acquire  pairs with the store_release or compare_exchange of the other party named at each use.
 * publish_fence is the store-load barrier of "I have written mine, now I look at yours" (last acknowledger commits).
 */
#ifndef LAGOM_ATOMIC_H
#define LAGOM_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>

#define lagom_load_acquire(pointer) __atomic_load_n((pointer), __ATOMIC_ACQUIRE)
#define lagom_load_relaxed(pointer) __atomic_load_n((pointer), __ATOMIC_RELAXED)
#define lagom_store_release(pointer, value) __atomic_store_n((pointer), (value), __ATOMIC_RELEASE)
#define lagom_store_relaxed(pointer, value) __atomic_store_n((pointer), (value), __ATOMIC_RELAXED)
#define lagom_fetch_add(pointer, value) __atomic_fetch_add((pointer), (value), __ATOMIC_ACQ_REL)
#define lagom_publish_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)

static inline bool lagom_compare_exchange(uint64_t *pointer, uint64_t expected, uint64_t desired)
{
    return __atomic_compare_exchange_n(pointer, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static inline bool lagom_compare_exchange32(uint32_t *pointer, uint32_t expected, uint32_t desired)
{
    return __atomic_compare_exchange_n(pointer, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

#endif
