/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads of a process push a span each, by turns: the ring has one producer at a time, so each span arrives whole and
 * once, or is counted. The ring itself is the scenario `ring`. */
#include "tests/memory_model/scenario.h"

#include "protocol/lagom_protocol.h"
#include "shm/ring.c"

#define push push_in_turn /* the ring has one of this name */
#include "tuner_plugin/spans.c"
#undef push

const unsigned scenario_threads = 2;

static struct lagom_region region;

void scenario_setup(void)
{
    model_share(&region, sizeof(region));
    model_plain(region.kernels[0], sizeof(region.kernels[0]));
    model_share(&turn, sizeof(turn));
    model_share(&hurried, sizeof(hurried));
}

void scenario_thread(unsigned thread)
{
    const struct lagom_kernel_span span = {.call = thread + 1, .end_ns = thread + 1};
    lagom_span_push(&region, 0, &span);
}

void scenario_check(void)
{
    struct lagom_kernel_span spans[2];
    uint32_t count = lagom_kernel_ring_drain(&region, 0, spans, 2);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < count; i++) {
        model_require(spans[i].call == spans[i].end_ns && (seen & spans[i].call) == 0, "a span is torn, or came twice");
        seen |= spans[i].call;
    }
    model_require(count + region.processes[0].kernel_drops == 2, "a span was lost and not counted");
}
