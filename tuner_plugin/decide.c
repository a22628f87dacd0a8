#include "tuner_plugin/decide.h"

#include <stdio.h>

#include "protocol/lagom_atomic.h"
#include "tuner_plugin/cost_table.h"
#include "tuner_plugin/watch.h"

/* Written by one thread, read by the controller: no read-modify-write needed. */
static void add_one(uint64_t *counter)
{
    lagom_store_relaxed(counter, lagom_load_relaxed(counter) + 1);
}

static bool is_stock(const struct lagom_config *config)
{
    return config->algorithm == LAGOM_LEAVE && config->protocol == LAGOM_LEAVE && config->channels == 0 &&
           config->threads == 0 && config->chunk_bytes == 0;
}

/* Where NCCL bounds our answer by the channels it has built. On CollNet, and NVLS over several nodes, it does not, and a
 * channel too many would be used uninitialised; how many there are we are never told. */
static bool channels_are_bounded(int algorithm, uint32_t nodes)
{
    switch (algorithm) {
    case LAGOM_TREE:
    case LAGOM_RING:
    case LAGOM_PAT: return true;
    case LAGOM_NVLS:
    case LAGOM_NVLS_TREE: return nodes == 1;
    default: return false;
    }
}

/* The entry that the config asks for; the stock pick where it does not ask. */
static struct lagom_pick wanted_pick(const struct lagom_cost_table *table, struct lagom_pick stock,
                                     const struct lagom_config *config)
{
    if (config->algorithm == LAGOM_LEAVE && config->protocol == LAGOM_LEAVE) {
        return stock;
    }
    return lagom_cost_table_find(table, config->algorithm, config->protocol);
}

/* Narrows the config to what is possible here and now, and does it. Returns enum lagom_call_flags. */
static uint8_t apply(struct lagom_member *member, const struct lagom_question *question,
                     const struct lagom_cost_table *table, struct lagom_pick pick, struct lagom_config *config)
{
    bool changed = false;
    if (config->algorithm != LAGOM_LEAVE || config->protocol != LAGOM_LEAVE) {
        changed = lagom_cost_table_choose(table, pick.index);
    }
    if (config->channels != 0 && channels_are_bounded(pick.algorithm, member->nodes)) {
        *question->channels = config->channels;
        changed = true;
    } else {
        config->channels = 0;
    }
    if (config->threads != 0 && pick.algorithm == LAGOM_RING &&
        lagom_threads_set(&member->threads, pick.protocol, config->threads, config->channels != 0)) {
        changed = true;
    } else {
        config->threads = 0;
    }
    config->chunk_bytes = member->chunk_possible ? config->chunk_bytes : 0;
    return changed || config->chunk_bytes != 0 ? LAGOM_CALL_APPLIED : 0;
}

/* NCCL's thread table is filled by now. A guard that fails here is told where doctor and the controller look. */
__attribute__((noinline, cold)) static void confirm_threads(struct lagom_member *member)
{
    char reason[LAGOM_PATH_BYTES];
    bool was_possible = member->threads.possible;
    if (!lagom_threads_confirm(&member->threads, reason, sizeof(reason)) && was_possible) {
        member->agreement.no_threads = true;
        __atomic_fetch_and(&member->process->knobs, ~(uint32_t)LAGOM_KNOB_THREADS, __ATOMIC_RELAXED);
        snprintf(member->process->remark, sizeof(member->process->remark), "%s", reason);
    }
}

/* Without the profiler half nothing says that a graph is being captured; but during a capture NCCL registers buffers. */
static void note_registered(struct lagom_member *member)
{
    if (!member->captures_known) {
        lagom_store_relaxed(&member->slot->capturing, (uint64_t)1);
    }
}

static bool is_countable(const struct lagom_question *question, bool table_good, struct lagom_pick stock)
{
    return table_good && stock.index >= 0 && question->channels != NULL && question->function >= 0 &&
           question->function < LAGOM_FUNCTIONS;
}

void lagom_decide(struct lagom_member *member, const struct lagom_question *question)
{
    struct lagom_cost_table table;
    bool table_good = lagom_cost_table_open(&table, question->costs, question->algorithms, question->protocols);
    struct lagom_pick stock = table_good ? lagom_cost_table_stock(&table) : LAGOM_NO_PICK;
    lagom_threads_restore(&member->threads);
    if (!is_countable(question, table_good, stock)) {
        add_one(&member->slot->uncounted);
        return;
    }
    if (!member->threads.confirmed) {
        confirm_threads(member);
    }
    if (question->registered) {
        note_registered(member);
    }
    struct lagom_decision decision =
        lagom_agreement_decide(&member->agreement, (uint32_t)question->function, question->bytes);
    struct lagom_config *config = &decision.choice.config;
    struct lagom_pick pick = stock;
    uint8_t flags = 0;
    if (!is_stock(config)) {
        pick = wanted_pick(&table, stock, config);
        if (pick.index < 0) {
            *config = LAGOM_CONFIG_STOCK;
            pick = stock;
            flags = LAGOM_CALL_UNAVAILABLE;
        } else if ((flags = apply(member, question, &table, pick, config)) != 0) {
            add_one(&member->slot->applied);
        }
    }
    if (member->chunk_possible) {
        lagom_chunk_list_add(&member->chunks, (uint32_t)question->function, pick.algorithm, pick.protocol, config->chunk_bytes);
    }
    lagom_watch(member, question, &decision, stock, flags);
}
