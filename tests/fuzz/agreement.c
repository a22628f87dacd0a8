/* SPDX-License-Identifier: Apache-2.0 */
/* agreement.c - ranks, a publisher and a replay in a region that is written to behind their backs.
 *
 * Input: a first byte that says what may be damaged and whether a saved config is replayed, then operations. In `anywhere`
 * mode any byte of the region may change: nothing may be read or written outside, and no config leaves but a sound one.
 * In `guarded` mode the words, acknowledgements and registrations stay as they are (the file's owner and mode alone
 * guard them, csrc/README.md) and all else may change: then no two ranks may ever decide one call differently.
 */
#include "fuzz.h"

#include "agreement/agreement.h"
#include "agreement/publisher.h"
#include "agreement/replay.h"
#include "plan/plan.h"
#include "shm/capture.h"
#include "shm/ring.h"

#define RANKS 3u
#define CALLS 512u /* remembered a rank */
#define OPERATIONS 400u
#define COMM_ID 0x5eedULL
#define MIB (1ull << 20)

struct rank {
    struct lagom_agreement agreement;
    struct lagom_replay replay;
    uint64_t calls;
};

static struct lagom_region region;
static struct rank ranks[RANKS];
static struct lagom_config decided[CALLS];
static uint64_t frontier; /* calls that some rank has decided */
static struct lagom_plan content;
static bool anywhere;

/* ---- The scene -------------------------------------------------------------------------------------------------- */

static struct lagom_config channels(uint16_t count)
{
    struct lagom_config config = LAGOM_CONFIG_STOCK;
    config.channels = count;
    return config;
}

static void make_content(void)
{
    memset(&content, 0, sizeof(content));
    for (uint32_t i = 0; i < 3; i++) {
        content.sites[i] = (struct lagom_site){.bytes = (i + 1) * MIB,
                                               .function = LAGOM_ALL_GATHER,
                                               .incumbent = channels((uint16_t)(i + 2)),
                                               .candidate = channels((uint16_t)(i + 9))};
        content.positions[i] = (uint16_t)i;
    }
    content.positions[3] = 1;
    content.site_count = 3;
    content.position_count = 4;
    content.rules[0] = (struct lagom_rule){.bytes_max = UINT64_MAX,
                                           .function = LAGOM_ANY_FUNCTION,
                                           .incumbent = channels(5),
                                           .candidate = channels(6)};
    content.rule_count = 1;
}

static void clear_region(void)
{
    memset(&region, 0, offsetof(struct lagom_region, calls));
    struct lagom_communicator *entry = &region.communicators[1];
    entry->comm_id = COMM_ID;
    entry->rank_count = RANKS;
    entry->node_count = 1;
    entry->state = LAGOM_READY;
}

static void start_rank(uint32_t i, bool replayed)
{
    struct lagom_slot *slot = &region.slots[i];
    *slot = (struct lagom_slot){.state = LAGOM_READY,
                                .process = i,
                                .communicator = 1,
                                .rank = i,
                                .comm_id = COMM_ID,
                                .call_ring = i + 1};
    ranks[i].calls = 0;
    lagom_agreement_init(&ranks[i].agreement, &region, 1, slot, NULL);
    if (replayed) {
        EXPECT(lagom_replay_start(&ranks[i].replay, &ranks[i].agreement, &region, &content));
    }
}

/* ---- What is done to it ----------------------------------------------------------------------------------------- */

/* The areas that `guarded` mode leaves alone are the last two. */
static void damage(struct feed *feed)
{
    struct lagom_communicator *entry = &region.communicators[1];
    const struct {
        void *start;
        size_t bytes;
    } areas[] = {
        {&region.plans[1], 256},
        {&region.plans[1], sizeof(region.plans[1])},
        {region.plans[1].sites, 4 * sizeof(struct lagom_site)},
        {&entry->capture, 16}, /* and the hint, and the publisher */
        {&region.header, sizeof(region.header)},
        {region.processes, sizeof(region.processes)},
        {entry, 192},
        {region.slots, sizeof(region.slots)},
    };
    uint32_t usable = anywhere ? 8 : 6;
    uint32_t area = feed_u8(feed) % usable;
    size_t at = feed_u16(feed) % areas[area].bytes;
    size_t room = areas[area].bytes - at, length = feed_u8(feed) % 33;
    feed_bytes(feed, (char *)areas[area].start + at, length < room ? length : room);
}

/* Damaged as an attacker would: the hash fits. */
static void forge(struct feed *feed)
{
    damage(feed);
    struct lagom_plan *plan = &region.plans[1];
    plan->hash = lagom_plan_hash(plan);
}

static void publish(struct feed *feed)
{
    static struct lagom_plan plan;
    uint64_t smallest, largest;
    uint8_t how = feed_u8(feed);
    plan = content;
    lagom_counters(&region, 1, &smallest, &largest);
    plan.start_call = largest + (how & 15);
    plan.flags = (how & 16) != 0 ? LAGOM_PLAN_HAS_CANDIDATE : 0;
    plan.flags |= (how & 32) != 0 ? LAGOM_PLAN_START_SEARCHING : 0;
    plan.alternate_iterations = (how & 64) != 0 ? 2 : 1;
    plan.end_call = (how & 16) != 0 ? plan.start_call + 40 : 0;
    plan.sites[how % 3].incumbent = channels(how >> 2);
    if ((how & 128) != 0) {
        plan.position_count = 0;
    }
    uint32_t communicator = (how & 1) != 0 ? 1 : feed_u8(feed);
    if (lagom_publish(&region, communicator, &plan) == LAGOM_PUBLISH_OK) {
        EXPECT(lagom_plan_check(&plan, 0) == LAGOM_PLAN_SOUND);
    }
}

static void expect_agreed(uint64_t call, const struct lagom_config *config)
{
    if (anywhere || call >= CALLS) {
        return;
    }
    if (call >= frontier) {
        decided[call] = *config;
        frontier = call + 1;
    }
    EXPECT(memcmp(&decided[call], config, sizeof(*config)) == 0);
}

/* Which call comes is a function of its number: the ranks of a communicator see the same ones. */
static void next_call(struct rank *rank, uint8_t pattern)
{
    static const uint8_t order[] = {0, 1, 2, 1};
    uint64_t bytes = (order[rank->calls % 4] + 1u) * MIB;
    uint32_t function = LAGOM_ALL_GATHER;
    if (pattern != 0 && rank->calls % pattern == 0) {
        function = LAGOM_ALL_REDUCE;
        bytes = 7 * MIB;
    }
    struct lagom_decision decision = lagom_agreement_decide(&rank->agreement, function, bytes);
    EXPECT(decision.call == rank->calls);
    EXPECT(lagom_config_is_sound(&decision.choice.config));
    EXPECT(!decision.point.in_program || decision.point.position < LAGOM_MAX_POSITIONS);
    expect_agreed(rank->calls, &decision.choice.config);
    rank->calls++;
}

static void use_call_ring(struct feed *feed)
{
    static struct lagom_call_record out[64];
    uint32_t slot = feed_u8(feed), room = feed_u8(feed) % 65;
    const struct lagom_call_record record = {.call = slot};
    EXPECT(lagom_call_ring_push(&region, slot, &record) <= 1);
    EXPECT(lagom_call_ring_drain(&region, slot, out, room) <= room);
}

static void use_kernel_ring(struct feed *feed)
{
    static struct lagom_kernel_span out[64];
    uint32_t process = feed_u8(feed), room = feed_u8(feed) % 65;
    const struct lagom_kernel_span span = {.call = process};
    EXPECT(lagom_kernel_ring_push(&region, process, &span) <= 1);
    EXPECT(lagom_kernel_ring_drain(&region, process, out, room) <= room);
}

static void operate(struct feed *feed, uint8_t pattern)
{
    uint8_t operation = feed_u8(feed);
    switch (operation % 12) {
    case 0:
    case 1:
    case 2: next_call(&ranks[operation % 3], pattern); break;
    case 3:
        for (uint32_t i = 0; i < RANKS * 8; i++) { /* the job goes on for a while */
            next_call(&ranks[i % RANKS], pattern);
        }
        break;
    case 4: publish(feed); break;
    case 5: lagom_publish_poll(&region, feed_u8(feed) % 2 + (operation & 64)); break;
    case 6: lagom_publish_withdraw(&region, feed_u8(feed) % 2 + (operation & 64)); break;
    case 7: damage(feed); break;
    case 8: forge(feed); break;
    case 9: use_call_ring(feed); break;
    case 10: use_kernel_ring(feed); break;
    case 11:
        lagom_capture_set(&region, feed_u8(feed), operation);
        lagom_timeline_want(&region, feed_u8(feed), operation);
        lagom_publish_ready(&region, feed_u8(feed));
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed feed = {data, size};
    uint8_t mode = feed_u8(&feed), pattern = feed_u8(&feed) % 8;
    anywhere = (mode & 1) != 0;
    frontier = 0;
    make_content();
    clear_region();
    for (uint32_t i = 0; i < RANKS; i++) {
        start_rank(i, (mode & 2) != 0);
    }
    for (uint32_t i = 0; i < OPERATIONS && feed.left > 0; i++) {
        operate(&feed, pattern);
    }
    return 0;
}
