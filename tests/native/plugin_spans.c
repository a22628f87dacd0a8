/* SPDX-License-Identifier: Apache-2.0 */
/* Spans of one process from several threads: a thread that pushes thousands in a row is in nobody's way. */
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol/lagom_atomic.h"
#include "shm/ring.h"
#include "tests/native/check.h"

/* Its turn and who is in a hurry are looked at from within; the plugin's own object is linked as well. */
#define lagom_span_push push_in_a_hurry
#define lagom_span_push_patiently push_patiently
#include "tuner_plugin/spans.c"

#define LAUNCHERS 2
#define LAUNCHES 3000u
#define LAUNCH_EVERY_US 20u

#define A_WHILE_US 1000u

static struct lagom_region *region;
static uint32_t over;     /* nobody pushes in bulk any more */
static uint32_t all_said; /* nor anything else: what is in the ring is the rest */
static uint64_t pushed_in_bulk, read_in_bulk;

static void begin(void)
{
    if (region != NULL) {
        munmap(region, sizeof(*region));
    }
    region = mmap(NULL, sizeof(*region), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(region != MAP_FAILED);
    over = all_said = turn = hurried = 0;
}

/* ---- Who goes first --------------------------------------------------------------------------------------------- */

static uint64_t pushed(void)
{
    return lagom_load_acquire(&region->processes[0].kernel_head);
}

static uint64_t dropped(void)
{
    return lagom_load_acquire(&region->processes[0].kernel_drops);
}

static void *end_after_a_while(void *flag)
{
    usleep(A_WHILE_US);
    CHECK_EQUAL(pushed(), 0); /* it waited */
    lagom_store_release((uint32_t *)flag, 0u);
    return NULL;
}

/* `flag` is up, and comes down after a while. */
static void push_patiently_while(uint32_t *flag)
{
    const struct lagom_kernel_span span = {.source = LAGOM_SPAN_CUPTI};
    pthread_t other;
    *flag = 1;
    CHECK(pthread_create(&other, NULL, end_after_a_while, flag) == 0);
    for (uint64_t i = 0; pushed() == 0 && i < 1000; i++) {
        push_patiently(region, 0, &span);
    }
    pthread_join(other, NULL);
}

static void patience_lets_the_hurried_go_first(void)
{
    begin();
    push_patiently_while(&hurried);
    CHECK_EQUAL(pushed(), 1);
    CHECK_EQUAL(turn, 0);
}

static void patience_outlasts_a_long_push(void)
{
    begin();
    push_patiently_while(&turn);
    CHECK_EQUAL(pushed(), 1);
    CHECK_EQUAL(turn, 0);
}

static void a_launch_waits_for_nobody(void)
{
    const struct lagom_kernel_span span = {.source = LAGOM_SPAN_NCCL_EVENT};
    begin();
    turn = 1;
    push_in_a_hurry(region, 0, &span);
    CHECK_EQUAL(pushed(), 0);
    CHECK_EQUAL(dropped(), 1);
    CHECK_EQUAL(hurried, 0);
    turn = 0;
    push_in_a_hurry(region, 0, &span);
    CHECK_EQUAL(pushed(), 1);
    CHECK_EQUAL(dropped(), 1);
}

/* ---- All at once ------------------------------------------------------------------------------------------------ */

static void *push_in_bulk(void *argument)
{
    struct lagom_kernel_span span = {.source = LAGOM_SPAN_CUPTI};
    (void)argument;
    while (lagom_load_acquire(&over) == 0) {
        const struct lagom_process *process = &region->processes[0];
        uint64_t used = lagom_load_relaxed(&process->kernel_head) - lagom_load_acquire(&process->kernel_tail);
        if (used < LAGOM_KERNEL_RING_CAPACITY / 2) { /* as csrc/timeline does: room is left for the others */
            push_patiently(region, 0, &span);
            pushed_in_bulk++;
        }
    }
    return NULL;
}

static void *launch(void *argument)
{
    struct lagom_kernel_span span = {.source = LAGOM_SPAN_NCCL_EVENT};
    (void)argument;
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        span.call = i;
        push_in_a_hurry(region, 0, &span);
        usleep(LAUNCH_EVERY_US);
    }
    return NULL;
}

static void *read_all(void *argument)
{
    static struct lagom_kernel_span spans[4096];
    uint64_t *launches = argument;
    for (bool last = false; !last;) {
        last = lagom_load_acquire(&all_said) != 0;
        for (uint32_t count; (count = lagom_kernel_ring_drain(region, 0, spans, 4096)) > 0;) {
            for (uint32_t i = 0; i < count; i++) {
                *launches += spans[i].source == LAGOM_SPAN_NCCL_EVENT;
                read_in_bulk += spans[i].source == LAGOM_SPAN_CUPTI;
            }
        }
        usleep(10);
    }
    return NULL;
}

/* Each is read or counted as dropped. Without patience a fifth of the launches was lost; what still is, is lost while the
 * other thread sleeps in the middle of a push, as it does where threads are more than processors: so no number is asked
 * for that a busy machine might miss. */
static void launches_come_through(void)
{
    pthread_t bulk, reader, launchers[LAUNCHERS];
    uint64_t launches = 0;
    begin();
    CHECK(pthread_create(&reader, NULL, read_all, &launches) == 0);
    CHECK(pthread_create(&bulk, NULL, push_in_bulk, NULL) == 0);
    for (int i = 0; i < LAUNCHERS; i++) {
        CHECK(pthread_create(&launchers[i], NULL, launch, NULL) == 0);
    }
    for (int i = 0; i < LAUNCHERS; i++) {
        pthread_join(launchers[i], NULL);
    }
    lagom_store_release(&over, 1u);
    pthread_join(bulk, NULL);
    lagom_store_release(&all_said, 1u);
    pthread_join(reader, NULL);
    printf("%lu of %u launches, %lu in bulk\n", launches, LAUNCHERS * LAUNCHES, pushed_in_bulk);
    CHECK(pushed_in_bulk > LAUNCHES);
    CHECK(launches >= LAUNCHERS);
    CHECK_EQUAL(read_in_bulk + launches + dropped(), pushed_in_bulk + LAUNCHERS * LAUNCHES);
}

#define DROPS 100000u

static void *push_into_a_full_ring(void *argument)
{
    const struct lagom_kernel_span span = {.source = LAGOM_SPAN_CUPTI};
    uint64_t *pushes = argument;
    for (; lagom_load_acquire(&over) == 0; (*pushes)++) {
        CHECK(!lagom_kernel_ring_push(region, 0, &span));
    }
    return NULL;
}

/* The thread that has its turn finds no room, while another one finds no turn: both count in the same word. */
static void both_kinds_of_drops_are_counted(void)
{
    const struct lagom_kernel_span span = {.source = LAGOM_SPAN_NCCL_EVENT};
    uint64_t pushes = 0;
    pthread_t other;
    begin();
    turn = 1; /* it is that thread's */
    region->processes[0].kernel_head = LAGOM_KERNEL_RING_CAPACITY;
    CHECK(pthread_create(&other, NULL, push_into_a_full_ring, &pushes) == 0);
    while (dropped() == 0) { /* it has begun: from here both count at once */
        usleep(10);
    }
    for (uint32_t i = 0; i < DROPS; i++) {
        push_in_a_hurry(region, 0, &span);
    }
    lagom_store_release(&over, 1u);
    pthread_join(other, NULL);
    CHECK_EQUAL(dropped(), pushes + DROPS);
}

int main(void)
{
    RUN(patience_lets_the_hurried_go_first);
    RUN(patience_outlasts_a_long_push);
    RUN(a_launch_waits_for_nobody);
    RUN(both_kinds_of_drops_are_counted);
    RUN(launches_come_through);
    return 0;
}
