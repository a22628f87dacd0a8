/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/decide.h"

#include "protocol/lagom_atomic.h"
#include "tuner_plugin/apply.h"
#include "tuner_plugin/cost_table.h"
#include "tuner_plugin/headroom.h"
#include "tuner_plugin/call_recorder.h"

/* Written by one thread, read by the controller: no read-modify-write needed. */
static void add_one(uint64_t *counter)
{
    lagom_store_relaxed(counter, lagom_load_relaxed(counter) + 1);
}

static bool apply_threads(struct lagom_comm_context *comm, const struct lagom_pick *pick, struct lagom_config *config)
{
    if (config->threads == 0) {
        return false;
    }
    if (pick->algorithm == LAGOM_RING &&
        lagom_threads_set(&comm->threads, pick->protocol, config->threads, config->channels != 0)) {
        return true;
    }
    config->threads = 0;
    return false;
}

/* getChunkSize will come for it. */
static bool apply_chunk(const struct lagom_comm_context *comm, struct lagom_config *config)
{
    if (config->chunk_bytes != 0 && !comm->chunk_possible) {
        config->chunk_bytes = 0;
    }
    return config->chunk_bytes != 0;
}

/* Does what the config asks for, and takes out of it what is not possible here. true = something was changed. */
static bool apply(struct lagom_comm_context *comm, const struct lagom_call *call, const struct lagom_cost_table *table,
                  const struct lagom_pick *stock, const struct lagom_pick *pick, struct lagom_config *config)
{
    bool changed = lagom_apply_algorithm(table, stock, pick, config);
    config->channels = lagom_built_channels_bound(&comm->channels, call->function, config->channels);
    changed |= lagom_apply_channels(call->channels, pick->algorithm, comm->nodes, config);
    changed |= apply_threads(comm, pick, config);
    changed |= apply_chunk(comm, config);
    return changed;
}

/* NCCL's thread table is filled by now. A guard that fails here is reported where doctor and the controller read it. */
__attribute__((noinline, cold)) static void confirm_threads(struct lagom_comm_context *comm)
{
    char reason[LAGOM_PATH_BYTES];
    bool was_possible = comm->threads.possible;
    if (!lagom_threads_confirm(&comm->threads, reason, sizeof(reason)) && was_possible) {
        comm->agreement.no_threads = true;
        __atomic_fetch_and(&comm->process->knobs, ~(uint32_t)LAGOM_KNOB_THREADS, __ATOMIC_RELAXED);
        lagom_threads_remark(comm->process, reason);
    }
}

/* Without the profiler plugin nothing reports a graph capture; but NCCL registers buffers during one. */
static void note_registered(struct lagom_comm_context *comm)
{
    if (!comm->captures_known) {
        lagom_store_relaxed(&comm->slot->capturing, (uint64_t)1);
    }
}

/* From the config to NCCL. Returns enum lagom_call_flags; *pick is what NCCL will use. */
static uint8_t carry_out(struct lagom_comm_context *comm, const struct lagom_call *call,
                         const struct lagom_cost_table *table, const struct lagom_pick *stock, struct lagom_pick *pick,
                         struct lagom_config *config)
{
    if (lagom_config_is_stock(config)) {
        return 0;
    }
    *pick = lagom_pick_for(table, stock, config);
    if (pick->index < 0) { /* not offered */
        *config = LAGOM_CONFIG_STOCK;
        *pick = *stock;
        return LAGOM_CALL_UNAVAILABLE;
    }
    if (!apply(comm, call, table, stock, pick, config)) {
        return 0;
    }
    add_one(&comm->slot->applied);
    return LAGOM_CALL_APPLIED;
}

/* Numbers from 5 on are no collectives we know. The pick is none where the table is not one, or offers nothing. */
static bool is_call(const struct lagom_call *call, const struct lagom_pick *stock)
{
    return stock->index >= 0 && call->channels != NULL && call->function >= 0 && call->function < LAGOM_FUNCTIONS;
}

/* NCCL 2.32 also asks what a collective would cost, to choose between its kernels and symmetric ones: of rounded bytes,
 * and of no operation at all. The call itself is asked about afterwards. */
static bool is_estimate(const struct lagom_call *call)
{
    return call->pipe_ops == 0;
}

static void prepare_first_call(struct lagom_comm_context *comm)
{
    if (!comm->threads.confirmed) {
        lagom_built_channels_look(&comm->channels);
        confirm_threads(comm);
    }
}

void lagom_decide(struct lagom_comm_context *comm, const struct lagom_call *call)
{
    struct lagom_cost_table table;
    struct lagom_pick stock = LAGOM_NO_PICK;
    if (lagom_cost_table_open(&table, call->costs, call->algorithms, call->protocols)) {
        stock = lagom_cost_table_stock(&table);
    }
    lagom_threads_restore(&comm->threads);
    if (__builtin_expect(is_estimate(call), false)) {
        return; /* stock's answer */
    }
    if (__builtin_expect(!is_call(call, &stock), false)) {
        add_one(&comm->slot->uncounted);
        return;
    }
    prepare_first_call(comm);
    if (call->registered) {
        note_registered(comm);
    }
    struct lagom_decision decision = lagom_agreement_decide(&comm->agreement, (uint32_t)call->function, call->bytes);
    struct lagom_pick pick = stock;
    uint8_t flags = carry_out(comm, call, &table, &stock, &pick, &decision.choice.config);
    if (decision.choice.config.channels == 0) {
        lagom_headroom_keep_stock(call, &pick, comm->ranks);
    }
    if (comm->chunk_possible) {
        lagom_chunk_list_add(&comm->chunks, (uint32_t)call->function, pick.algorithm, pick.protocol,
                             decision.choice.config.chunk_bytes);
    }
    lagom_record_call_if_wanted(comm, call, &decision, &stock, flags);
}
