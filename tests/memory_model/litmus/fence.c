/* SPDX-License-Identifier: Apache-2.0 */
/* Two ranks acknowledge (agreement.c, acknowledge): with the fence one of them sees both, in every execution.
 * -DFENCE=memory_order_acq_rel: neither may. */
#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

#ifndef FENCE
#define FENCE memory_order_seq_cst
#endif

static atomic_int ack_epoch[2];
static int seen[2];

static void *rank(void *index)
{
    size_t mine = (size_t)index;
    atomic_store_explicit(&ack_epoch[mine], 1, memory_order_release);
    atomic_thread_fence(FENCE);
    for (size_t i = 0; i < 2; i++) {
        seen[mine] += atomic_load_explicit(&ack_epoch[i], memory_order_acquire);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++) {
        pthread_create(&threads[i], NULL, rank, (void *)i);
    }
    for (size_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
    }
    assert(seen[0] == 2 || seen[1] == 2);
    return 0;
}
