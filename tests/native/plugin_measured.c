/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_measured.c - kernels that are being timed: a handle names one collective and no later one, and its span ends
 * with its last channel. */
#include "protocol/lagom_atomic.h"
#include "tests/native/check.h"
#include "tuner_plugin/measured.h"

static void *begin(uint16_t channels, uint32_t slot)
{
    const struct lagom_measured of = {.span = {.channels = channels, .slot = slot}};
    void *handle = lagom_measured_begin(&of);
    CHECK(handle != NULL);
    return handle;
}

static void a_span_ends_with_its_last_channel(void)
{
    struct lagom_measured done;
    void *collective = begin(3, 7), *channel[3];
    const uint64_t started[3] = {120, 100, 110}, stopped[3] = {200, 260, 230};
    for (int i = 0; i < 3; i++) {
        channel[i] = lagom_measured_channel_started(collective, started[i]);
        CHECK(channel[i] != NULL);
    }
    CHECK(!lagom_measured_channel_stopped(channel[0], stopped[0], &done));
    CHECK(!lagom_measured_channel_stopped(channel[1], stopped[1], &done));
    CHECK(lagom_measured_channel_stopped(channel[2], stopped[2], &done));
    CHECK_EQUAL(done.span.start_ns, 100);
    CHECK_EQUAL(done.span.end_ns, 260);
    CHECK_EQUAL(done.span.slot, 7);
    CHECK(lagom_measured_channel_started(collective, 1) == NULL); /* it is over */
}

/* Events come late: those of a collective that is over must not enter the one that has its place now. */
static void a_late_event_does_not_enter_the_next_collective_of_its_place(void)
{
    struct lagom_measured done;
    void *first = begin(1, 1), *late = lagom_measured_channel_started(first, 10);
    CHECK(lagom_measured_channel_stopped(late, 20, &done));
    void *reused[LAGOM_MEASURED_ENTRIES];
    for (uint32_t i = 0; i < LAGOM_MEASURED_ENTRIES; i++) { /* every place, so the first one's too */
        reused[i] = begin(1, 2);
    }
    CHECK(lagom_measured_channel_started(first, 5) == NULL);
    CHECK(!lagom_measured_channel_stopped(late, 30, &done));
    CHECK_EQUAL(lagom_measured_slot(first), UINT32_MAX);
    for (uint32_t i = 0; i < LAGOM_MEASURED_ENTRIES; i++) {
        void *channel = lagom_measured_channel_started(reused[i], 100);
        CHECK(lagom_measured_channel_stopped(channel, 200, &done));
        CHECK_EQUAL(done.span.start_ns, 100);
        CHECK_EQUAL(done.span.end_ns, 200);
    }
}

int main(void)
{
    RUN(a_span_ends_with_its_last_channel);
    RUN(a_late_event_does_not_enter_the_next_collective_of_its_place);
    return 0;
}
