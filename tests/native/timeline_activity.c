/* SPDX-License-Identifier: Apache-2.0 */
/* The buffers alone: on and off a thousand times, none leaks, none is lost, and more is asked for than there is. */
#include <limits.h>

#include "timeline/activity.h"
#include "timeline_harness.h"

static struct lagom_cupti cupti;

static void open_both(void)
{
    char reason[256];
    load_fakes();
    CHECK(lagom_cupti_open(&cupti, reason, sizeof(reason)));
    CHECK(strstr(cupti.path, "fakes/libcupti.so.13") != NULL);
    CHECK_EQUAL(cupti.version, 130001);
}

static uint32_t read_all(void)
{
    struct lagom_activity_batch batch;
    uint32_t records = 0;
    while (lagom_activity_take(&batch, UINT64_MAX)) {
        void *record = NULL;
        CHECK_EQUAL((uintptr_t)batch.records % CUPTI_BUFFER_ALIGNMENT, 0);
        while (cupti.next_record(batch.records, batch.valid, &record) == CUPTI_RESULT_SUCCESS) {
            records++;
        }
        lagom_activity_give_back(&batch);
    }
    return records;
}

static void on_and_off_a_thousand_times(void)
{
    open_both();
    for (uint32_t i = 0; i < 1000; i++) {
        CHECK(lagom_activity_enable(&cupti) == NULL);
        for (uint32_t kernel = 0; kernel < 20; kernel++) {
            fake.launch(MATMUL, 1, 1, 1, 2, 0);
        }
        lagom_activity_disable(&cupti);
        fake.launch(MATMUL, 1, 1, 1, 2, 0);
        cupti.flush_all(CUPTI_FLUSH_COMPLETE);
        CHECK_EQUAL(read_all(), 20);
        CHECK_EQUAL(lagom_activity_out(), 0);
        lagom_activity_give_clock_back(&cupti);
        lagom_activity_close();
    }
    CHECK_EQUAL(lagom_activity_completed(), 1000);
    CHECK_EQUAL(lagom_activity_foreign(), 0);
    free(region);
}

static void more_than_there_is(void)
{
    size_t dropped = 0;
    open_both();
    CHECK(lagom_activity_enable(&cupti) == NULL);
    for (uint32_t i = 0; i < 60000; i++) {
        fake.launch(MATMUL, 1, 1, 1, 2, 0);
    }
    lagom_activity_disable(&cupti);
    cupti.flush_all(CUPTI_FLUSH_COMPLETE);
    uint32_t seen = read_all();
    CHECK_EQUAL(cupti.dropped(NULL, 0, &dropped), CUPTI_RESULT_SUCCESS);
    CHECK(dropped > 0);
    CHECK_EQUAL(seen + dropped, 60000);
    lagom_activity_close();
    free(region);
}

/* A buffer that another profiler keeps: not waited for, not handed out twice, and taken back if it ever comes. */
static void abandoned(void)
{
    open_both();
    CHECK(lagom_activity_enable(&cupti) == NULL);
    fake.launch(MATMUL, 1, 1, 1, 2, 0);
    CHECK_EQUAL(lagom_activity_out(), 1);
    lagom_activity_abandon();
    CHECK_EQUAL(lagom_activity_out(), 0);
    lagom_activity_close(); /* must not free what CUPTI may still write to */
    fake.launch(MATMUL, 1, 1, 1, 2, 0);
    cupti.flush_all(CUPTI_FLUSH_COMPLETE);
    CHECK_EQUAL(read_all(), 2);
    lagom_activity_disable(&cupti);
    lagom_activity_close();
    free(region);
}

static struct lagom_activity_batch take_at(uint64_t now)
{
    struct lagom_activity_batch batch;
    CHECK(lagom_activity_take(&batch, now));
    lagom_activity_give_back(&batch);
    return batch;
}

/* The first of three comes last: the others are kept for a while, then read, and it is said that one is missing. */
static void passed_over(void)
{
    struct lagom_activity_batch batch;
    open_both();
    CHECK(lagom_activity_enable(&cupti) == NULL);
    fake.launch(MATMUL, 1, 1, 1, 2, 0);
    fake.delay();
    fake.flush();
    fake.launch(MATMUL, 1, 1, 1, 2, 0);
    fake.delay(); /* in place of the first, which never comes */
    fake.flush();
    fake.launch(MATMUL, 1, 1, 1, 2, 0);
    fake.flush(); /* the third, then the second */
    uint64_t now = now_ns();
    CHECK_EQUAL(lagom_activity_out(), 1);
    CHECK(!lagom_activity_take(&batch, now));
    CHECK(!lagom_activity_take(&batch, 1)); /* read before CUPTI's thread wrote down when it was full */
    now += 2ull * LAGOM_ACTIVITY_PATIENCE_NS;
    batch = take_at(now);
    CHECK_EQUAL(batch.passed_over, 1);
    CHECK(!batch.late);
    batch = take_at(now);
    CHECK_EQUAL(batch.passed_over, 0); /* said once */
    CHECK(!lagom_activity_take(&batch, now));
    lagom_activity_disable(&cupti);
    lagom_activity_close();
    free(region);
}

/* The first of two comes last, but soon: nothing is missing. */
static void in_order_again(void)
{
    open_both();
    CHECK(lagom_activity_enable(&cupti) == NULL);
    fake.launch(MATMUL, 1, 1, 1, 2, 0);
    fake.delay();
    fake.flush();
    fake.launch(MATMUL, 1, 1, 1, 2, 0);
    fake.launch(MATMUL, 1, 1, 1, 2, 0);
    cupti.flush_all(CUPTI_FLUSH_COMPLETE); /* the second, then the first */
    struct lagom_activity_batch first = take_at(now_ns());
    CHECK_EQUAL(first.passed_over, 0);
    CHECK(!first.late);
    CHECK(!take_at(now_ns()).late);
    lagom_activity_disable(&cupti);
    lagom_activity_close();
    free(region);
}

int main(void)
{
    build_fakes();
    CASE(on_and_off_a_thousand_times);
    CASE(more_than_there_is);
    CASE(abandoned);
    CASE(passed_over);
    CASE(in_order_again);
    end_cases();
    return 0;
}
