/* SPDX-License-Identifier: Apache-2.0 */
#include "agreement/publisher.h"

#include "agreement/switch.h"
#include "plan/plan.h"
#include "protocol/lagom_atomic.h"

static bool is_ready_slot(struct lagom_slot *slot, uint32_t communicator)
{
    return lagom_load_acquire(&slot->state) == LAGOM_READY && lagom_load_relaxed(&slot->communicator) == communicator;
}

uint32_t lagom_counters(struct lagom_region *region, uint32_t communicator, uint64_t *smallest, uint64_t *largest)
{
    uint32_t slots = 0;
    *smallest = 0;
    *largest = 0;
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        if (!is_ready_slot(&region->slots[i], communicator)) {
            continue;
        }
        uint64_t calls = lagom_load_acquire(&region->slots[i].calls); /* pairs with publish_counter */
        *smallest = slots == 0 || calls < *smallest ? calls : *smallest;
        *largest = calls > *largest ? calls : *largest;
        slots++;
    }
    return slots;
}

static bool all_passed(struct lagom_region *region, uint32_t communicator, uint64_t epoch)
{
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        struct lagom_slot *slot = &region->slots[i];
        if (!is_ready_slot(slot, communicator)) {
            continue;
        }
        uint64_t calls = lagom_load_acquire(&slot->calls);
        uint64_t active = lagom_load_acquire(&slot->active_epoch); /* pairs with activate */
        if (!lagom_switch_passed(epoch, active, lagom_load_relaxed(&slot->active_start), calls)) {
            return false;
        }
    }
    return true;
}

static bool may_prepare(struct lagom_region *region, uint32_t communicator, uint64_t word)
{
    return lagom_switch_may_prepare(word, all_passed(region, communicator, LAGOM_WORD_EPOCH(word)));
}

int lagom_publish_ready(struct lagom_region *region, uint32_t communicator)
{
    if (communicator >= LAGOM_MAX_COMMUNICATORS) {
        return 0;
    }
    return may_prepare(region, communicator, lagom_load_acquire(&region->communicators[communicator].word));
}

/* A rank whose number is not known is compared by its process and GPU. */
static bool same_rank(const struct lagom_slot *one, const struct lagom_slot *other)
{
    uint32_t ranks[] = {lagom_load_relaxed(&one->rank), lagom_load_relaxed(&other->rank)};
    uint32_t devices[] = {lagom_load_relaxed(&one->device), lagom_load_relaxed(&other->device)};
    if (ranks[0] != LAGOM_UNKNOWN_RANK && ranks[1] != LAGOM_UNKNOWN_RANK) {
        return ranks[0] == ranks[1];
    }
    bool may_be_one =
        devices[0] == devices[1] || devices[0] == LAGOM_UNKNOWN_DEVICE || devices[1] == LAGOM_UNKNOWN_DEVICE;
    return may_be_one && lagom_load_relaxed(&one->process) == lagom_load_relaxed(&other->process);
}

static bool is_registered_before(struct lagom_region *region, uint32_t communicator, uint32_t slot)
{
    for (uint32_t i = 0; i < slot; i++) {
        if (is_ready_slot(&region->slots[i], communicator) && same_rank(&region->slots[i], &region->slots[slot])) {
            return true;
        }
    }
    return false;
}

int lagom_publish_has_double(struct lagom_region *region, uint32_t communicator)
{
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        if (is_ready_slot(&region->slots[i], communicator) && is_registered_before(region, communicator, i)) {
            return 1;
        }
    }
    return 0;
}

int lagom_publish_complete(struct lagom_region *region, uint32_t communicator)
{
    if (communicator >= LAGOM_MAX_PLANS) {
        return 0;
    }
    struct lagom_communicator *entry = &region->communicators[communicator];
    uint64_t smallest, largest;
    uint32_t slots = lagom_counters(region, communicator, &smallest, &largest);
    return lagom_load_acquire(&entry->state) == LAGOM_READY && lagom_load_relaxed(&entry->node_count) == 1 &&
           slots != 0 && slots == lagom_load_relaxed(&entry->rank_count) &&
           !lagom_publish_has_double(region, communicator);
}

int lagom_publish_claim(struct lagom_region *region, uint32_t communicator)
{
    if (communicator >= LAGOM_MAX_PLANS) {
        return 0;
    }
    struct lagom_communicator *entry = &region->communicators[communicator];
    lagom_compare_exchange(&entry->publisher, 0, LAGOM_CONTROLLER_PUBLISHES);
    return lagom_load_acquire(&entry->publisher) == LAGOM_CONTROLLER_PUBLISHES ||
           LAGOM_WORD_STATE(lagom_load_acquire(&entry->word)) == LAGOM_COMMITTED;
}

static bool is_sound(struct lagom_plan *plan)
{
    plan->hash = lagom_plan_hash(plan);
    return lagom_plan_check(plan, plan->comm_id) == LAGOM_PLAN_SOUND;
}

/* Gives the plan its place in this communicator's life, or leaves it as it was. */
static bool address(struct lagom_plan *plan, uint64_t comm_id, uint64_t history_call)
{
    uint64_t old_hash = plan->hash, old_comm_id = plan->comm_id, old_history = plan->history_call;
    plan->comm_id = comm_id;
    plan->history_call = history_call;
    if (is_sound(plan)) {
        return true;
    }
    plan->hash = old_hash;
    plan->comm_id = old_comm_id;
    plan->history_call = old_history;
    return false;
}

/* An epoch that this communicator has never seen: above the word's, whatever has become of the region's counter. Were one
 * used twice, the acknowledgements of its first plan would count for the second. */
static uint64_t fresh_epoch(struct lagom_region *region, uint64_t word)
{
    uint64_t counted = lagom_fetch_add(&region->header.epoch_counter, 1) + 1, next = LAGOM_WORD_EPOCH(word) + 1;
    bool usable = counted >= next && counted <= LAGOM_WORD_EPOCH(UINT64_MAX) - UINT32_MAX;
    if (!usable) {
        lagom_store_release(&region->header.epoch_counter, next);
    }
    return usable ? counted : next;
}

static enum lagom_publish_result write_prepared(struct lagom_region *region, uint32_t communicator,
                                                struct lagom_plan *plan, uint64_t word)
{
    uint64_t *shared = &region->communicators[communicator].word;
    plan->epoch = fresh_epoch(region, word);
    plan->hash = lagom_plan_hash(plan);
    lagom_plan_copy(&region->plans[communicator], plan);
    bool swapped = lagom_compare_exchange(shared, word, LAGOM_WORD(LAGOM_PREPARED, plan->epoch));
    return swapped ? LAGOM_PUBLISH_OK : LAGOM_PUBLISH_BUSY; /* lost only to a second publisher, whom the lock forbids */
}

enum lagom_publish_result lagom_publish(struct lagom_region *region, uint32_t communicator, struct lagom_plan *plan)
{
    if (communicator >= LAGOM_MAX_PLANS) {
        return LAGOM_PUBLISH_INCOMPLETE;
    }
    struct lagom_communicator *entry = &region->communicators[communicator];
    uint64_t comm_id = lagom_load_acquire(&entry->comm_id);
    uint64_t smallest, largest;
    if (plan->comm_id != 0 && plan->comm_id != comm_id) {
        return LAGOM_PUBLISH_REPLACED; /* its communicator was destroyed, and another has the entry now */
    }
    if (!lagom_publish_complete(region, communicator)) {
        return LAGOM_PUBLISH_INCOMPLETE;
    }
    lagom_counters(region, communicator, &smallest, &largest);
    uint64_t word = lagom_load_acquire(&entry->word);
    if (!may_prepare(region, communicator, word)) {
        return LAGOM_PUBLISH_BUSY;
    }
    if (plan->start_call <= largest) {
        return LAGOM_PUBLISH_LATE;
    }
    if (!address(plan, comm_id, largest)) {
        return LAGOM_PUBLISH_BAD_PLAN;
    }
    return write_prepared(region, communicator, plan, word);
}

static struct lagom_ack read_ack(struct lagom_slot *slot)
{
    struct lagom_ack ack;
    ack.refused_epoch = lagom_load_acquire(&slot->refused_epoch); /* pairs with refuse */
    ack.epoch = lagom_load_acquire(&slot->ack_epoch);             /* pairs with acknowledge */
    ack.plan_hash = lagom_load_relaxed(&slot->ack_plan_hash);
    ack.history_hash = lagom_load_relaxed(&slot->ack_history_hash);
    return ack;
}

static enum lagom_verdict judge_epoch(struct lagom_region *region, uint32_t communicator, uint64_t epoch)
{
    struct lagom_tally tally = {.epoch = epoch, .doubled = lagom_publish_has_double(region, communicator)};
    for (uint32_t i = 0; i < LAGOM_MAX_SLOTS; i++) {
        if (is_ready_slot(&region->slots[i], communicator)) {
            struct lagom_ack ack = read_ack(&region->slots[i]);
            lagom_tally_add(&tally, &ack);
        }
    }
    return lagom_tally_verdict(&tally, lagom_load_relaxed(&region->communicators[communicator].rank_count));
}

static enum lagom_outcome outcome_of(uint64_t word)
{
    switch (LAGOM_WORD_STATE(word)) {
    case LAGOM_COMMITTED: return LAGOM_OUTCOME_COMMITTED;
    case LAGOM_ABORTED: return LAGOM_OUTCOME_ABORTED;
    case LAGOM_PREPARED:
    case LAGOM_LOCKED: return LAGOM_OUTCOME_OPEN;
    }
    return LAGOM_OUTCOME_OPEN;
}

/* Tries to move an open word; whoever was faster, what it says afterwards is the outcome. */
static enum lagom_outcome settle(struct lagom_communicator *entry, uint64_t word, enum lagom_switch_state state)
{
    lagom_compare_exchange(&entry->word, word, LAGOM_WORD(state, LAGOM_WORD_EPOCH(word)));
    return outcome_of(lagom_load_acquire(&entry->word));
}

enum lagom_outcome lagom_publish_poll(struct lagom_region *region, uint32_t communicator)
{
    if (communicator >= LAGOM_MAX_COMMUNICATORS) {
        return LAGOM_OUTCOME_ABORTED;
    }
    struct lagom_communicator *entry = &region->communicators[communicator];
    uint64_t word = lagom_load_acquire(&entry->word);
    if (LAGOM_WORD_STATE(word) != LAGOM_PREPARED) {
        return outcome_of(word);
    }
    switch (judge_epoch(region, communicator, LAGOM_WORD_EPOCH(word))) {
    case LAGOM_VERDICT_COMMIT: return settle(entry, word, LAGOM_COMMITTED);
    case LAGOM_VERDICT_ABORT: return settle(entry, word, LAGOM_ABORTED);
    case LAGOM_VERDICT_WAIT: break;
    }
    return LAGOM_OUTCOME_OPEN;
}

enum lagom_outcome lagom_publish_withdraw(struct lagom_region *region, uint32_t communicator)
{
    if (communicator >= LAGOM_MAX_COMMUNICATORS) {
        return LAGOM_OUTCOME_ABORTED;
    }
    struct lagom_communicator *entry = &region->communicators[communicator];
    uint64_t word = lagom_load_acquire(&entry->word);
    return LAGOM_WORD_STATE(word) == LAGOM_PREPARED ? settle(entry, word, LAGOM_ABORTED) : outcome_of(word);
}
