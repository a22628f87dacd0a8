/* SPDX-License-Identifier: Apache-2.0 */
/* A publisher writes the next plan once a rank's counter and active_epoch say that it runs this one. Both are relaxed here:
 * the rank still cannot have copied the next plan, because it copied before it stored ack_epoch (release), and the publisher
 * committed only after it had read that (acquire). -DACK=memory_order_relaxed: under IMM it can. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#ifndef ACK
#define ACK memory_order_release
#endif

enum { PREPARED_1 = 5, COMMITTED_1 = 4, PREPARED_2 = 9, START = 9 };

static atomic_int plan = 1, word = PREPARED_1, ack_epoch, active_epoch, calls;
static int copied;

static void *rank(void *unused)
{
    (void)unused;
    if (atomic_load_explicit(&word, memory_order_acquire) != PREPARED_1) {
        return NULL;
    }
    copied = atomic_load_explicit(&plan, memory_order_relaxed);
    atomic_store_explicit(&ack_epoch, 1, ACK);
    if (atomic_load_explicit(&word, memory_order_acquire) == COMMITTED_1) {
        atomic_store_explicit(&active_epoch, 1, memory_order_relaxed);
        atomic_store_explicit(&calls, START + 1, memory_order_relaxed);
    }
    return NULL;
}

static void swap(int from, int to)
{
    atomic_compare_exchange_strong_explicit(&word, &from, to, memory_order_acq_rel, memory_order_acquire);
}

static void *publisher(void *unused)
{
    (void)unused;
    if (atomic_load_explicit(&ack_epoch, ACK == memory_order_release ? memory_order_acquire : ACK) != 1) {
        return NULL;
    }
    swap(PREPARED_1, COMMITTED_1);
    if (atomic_load_explicit(&calls, memory_order_relaxed) <= START ||
        atomic_load_explicit(&active_epoch, memory_order_relaxed) != 1) {
        return NULL;
    }
    atomic_store_explicit(&plan, 2, memory_order_relaxed);
    swap(COMMITTED_1, PREPARED_2);
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, rank, NULL);
    pthread_create(&threads[1], NULL, publisher, NULL);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert(copied != 2);
    return 0;
}
