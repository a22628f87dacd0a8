/* SPDX-License-Identifier: Apache-2.0 */
/* join_harness.h - a join without CUPTI, clocks or threads, and what comes out of it; one per program. */
#ifndef LAGOM_JOIN_HARNESS_H
#define LAGOM_JOIN_HARNESS_H

#include "check.h"
#include "timeline/join.h"

#define MOST 4096

static struct lagom_join join;
static struct lagom_kernel_span out[MOST];
static uint32_t out_count;
static uint64_t clock_ns; /* the host's, while it launches */
static uint64_t serial;
static uint32_t correlation;

static void emit(void *context, const struct lagom_kernel_span *span)
{
    CHECK(context == &out_count);
    CHECK(out_count < MOST);
    out[out_count++] = *span;
}

static inline void forget_everything(void)
{
    memset(&join, 0, sizeof(join));
    join.emit = emit;
    join.context = &out_count;
}

/* CUPTI was switched on between the two times; the first launch after it comes 1,000 later. */
static inline void begin_between(uint64_t on_begin_ns, uint64_t on_end_ns)
{
    out_count = 0;
    clock_ns = on_end_ns + 1000;
    correlation = UINT32_MAX - 20; /* wraps in every test */
    lagom_join_start(&join, on_begin_ns, on_end_ns);
}

static inline void deliver(struct lagom_nccl_kernel kernel)
{
    lagom_join_kernel(&join, &kernel);
}

#endif
