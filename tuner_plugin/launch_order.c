/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/launch_order.h"

#include <stdbool.h>
#include <stddef.h>

#include "protocol/lagom_atomic.h"

static bool take(struct lagom_launch_order *order)
{
    return lagom_compare_exchange32(&order->taken, 0, 1); /* acquire; pairs with give */
}

static void give(struct lagom_launch_order *order)
{
    lagom_store_release(&order->taken, 0u);
}

void lagom_launch_order_ask(struct lagom_launch_order *order, uint64_t call, uint32_t function, uint64_t bytes,
                            uint64_t now_ns)
{
    if (!take(order)) {
        return;
    }
    if (order->launched) {
        order->launched = 0;
        order->count = 0;
    }
    if (order->count < LAGOM_LAUNCH_ORDER_DEPTH) {
        order->asked[order->count++] =
            (struct lagom_asked){.call = call, .bytes_left = bytes, .asked_ns = now_ns, .function = function};
    }
    give(order);
}

void lagom_launch_order_launching(struct lagom_launch_order *order)
{
    if (take(order)) {
        order->launched = 1;
        give(order);
    }
}

/* The call that is exactly this one comes before an aggregate that merely has room for it. */
static struct lagom_asked *find(struct lagom_launch_order *order, uint32_t function, uint64_t bytes)
{
    struct lagom_asked *aggregate = NULL;
    for (uint32_t i = 0; i < order->count; i++) {
        struct lagom_asked *asked = &order->asked[i];
        if (asked->function != function || asked->bytes_left < bytes || asked->bytes_left == 0) {
            continue;
        }
        if (asked->bytes_left == bytes) {
            return asked;
        }
        aggregate = aggregate == NULL ? asked : aggregate;
    }
    return aggregate;
}

uint64_t lagom_launch_order_match(struct lagom_launch_order *order, uint32_t function, uint64_t bytes,
                                  uint64_t *asked_ns)
{
    *asked_ns = 0;
    if (!take(order)) {
        return LAGOM_UNKNOWN_CALL;
    }
    order->launched = 1;
    uint64_t call = LAGOM_UNKNOWN_CALL;
    struct lagom_asked *asked = find(order, function, bytes);
    if (asked != NULL) {
        asked->bytes_left -= bytes;
        call = asked->call;
        *asked_ns = asked->asked_ns;
    }
    give(order);
    return call;
}
