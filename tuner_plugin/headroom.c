/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/headroom.h"

#include <stdlib.h>

#include "tuner_plugin/cost_table.h"

#define MOST_CHANNELS 64u /* NCCL's MAXCHANNELS */
#define USUAL_THREADS 512u
#define LL128_THREADS 640u
#define SMALL_THRESHOLD 8u /* bytes a thread, LL and LL128 */
#define SIMPLE_THRESHOLD 64u

struct lagom_headroom lagom_headroom;

/* A number from 1 to `most`; 0 = there is none at *at. */
static uint32_t read_number(const char **at, uint32_t most)
{
    uint32_t value = 0;
    while (**at >= '0' && **at <= '9' && value <= most) {
        value = value * 10 + (uint32_t)(*(*at)++ - '0');
    }
    return value <= most ? value : 0;
}

/* The same behind a colon. */
static uint32_t read_next(const char **at, uint32_t most)
{
    return *(*at)++ == ':' ? read_number(at, most) : 0;
}

bool lagom_headroom_read(const char *value, struct lagom_headroom *out)
{
    struct lagom_headroom found = {.ring_threads = USUAL_THREADS};
    *out = (struct lagom_headroom){0};
    if (value == NULL || value[0] == '\0') {
        return true;
    }
    found.built = read_number(&value, MOST_CHANNELS);
    found.stock = found.built != 0 ? read_next(&value, MOST_CHANNELS) : 0;
    if (found.stock != 0 && *value != '\0') {
        found.ring_threads = read_next(&value, LL128_THREADS);
    }
    if (found.stock == 0 || found.built < found.stock || found.ring_threads == 0 || *value != '\0') {
        return false;
    }
    *out = found;
    return true;
}

/* Below this many bytes a channel NCCL does without it. */
static uint64_t bytes_a_channel(const struct lagom_headroom *headroom, int algorithm, int protocol, uint32_t ranks)
{
    bool ring = algorithm == LAGOM_RING;
    switch (protocol) {
    case LAGOM_LL: return (uint64_t)USUAL_THREADS * SMALL_THRESHOLD * (ring ? ranks : 1u);
    case LAGOM_LL128: return LL128_THREADS * SMALL_THRESHOLD;
    default: return (uint64_t)(ring ? headroom->ring_threads : USUAL_THREADS) * SIMPLE_THRESHOLD;
    }
}

/* NVLS has channels of its own, which NCCL_MIN_NCHANNELS does not touch; CollNet takes NC unchecked (apply.h). */
static bool has_head_room(int algorithm)
{
    return algorithm == LAGOM_RING || algorithm == LAGOM_TREE || algorithm == LAGOM_PAT;
}

uint32_t lagom_headroom_pin(const struct lagom_headroom *headroom, int algorithm, int protocol, uint64_t bytes,
                            uint32_t ranks)
{
    if (headroom->stock == 0 || !has_head_room(algorithm)) {
        return 0;
    }
    uint64_t enough = headroom->stock * bytes_a_channel(headroom, algorithm, protocol, ranks);
    return bytes >= enough ? headroom->stock : 0;
}

void lagom_headroom_keep_stock(const struct lagom_call *call, const struct lagom_pick *pick, uint32_t ranks)
{
    uint32_t channels = lagom_headroom_pin(&lagom_headroom, pick->algorithm, pick->protocol, call->bytes, ranks);
    if (channels != 0) {
        *call->channels = (int)channels;
    }
}

/* One a size: communicators come and go, and few sizes do. */
void *lagom_passthrough_for(uint32_t ranks)
{
    static struct lagom_passthrough *all; /* under the plugin's lock */
    struct lagom_passthrough *mine = all;
    if (lagom_headroom.stock == 0) {
        return NULL;
    }
    while (mine != NULL && mine->ranks != ranks) {
        mine = mine->next;
    }
    if (mine == NULL && (mine = calloc(1, sizeof(*mine))) != NULL) {
        mine->ranks = ranks;
        mine->next = all;
        all = mine;
    }
    return mine;
}

void lagom_passthrough_decide(const struct lagom_passthrough *passthrough, const struct lagom_call *call)
{
    struct lagom_cost_table table;
    if (call->channels == NULL || !lagom_cost_table_open(&table, call->costs, call->algorithms, call->protocols)) {
        return;
    }
    struct lagom_pick stock = lagom_cost_table_stock(&table);
    if (stock.index >= 0) {
        lagom_headroom_keep_stock(call, &stock, passthrough->ranks);
    }
}
