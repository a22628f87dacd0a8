/* SPDX-License-Identifier: Apache-2.0 */
/* relacy_runtime.cpp - the shipped C functions under Relacy's C++11 memory model.
 *
 * The C code is compiled by gcc with -fsanitize=thread, which calls a function at every access: __tsan_atomic64_load and
 * so on, with the memory order that the source names. This file is that run-time library. It does not look for races of
 * real threads as ThreadSanitizer's would: it lets Relacy choose which of the stores allowed by the model a load sees.
 */
#include <relacy/relacy.hpp>

#undef new /* Relacy makes it a macro */

#include <cstdint>
#include <new>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "scenario.h"

namespace {

typedef rl::generic_atomic<uint64_t, false> atomic_word;
typedef rl::var<uint64_t> plain_word;

/* A tracked atomic: Relacy holds the difference from the value it had when the threads started. Real memory always holds
 * the newest store, so that code outside the model (setup, check) needs no other way to read it. */
struct cell {
    uintptr_t at;
    unsigned width;
    uint64_t initial;
    atomic_word *word;
};

struct range {
    uintptr_t begin, end;
};

const unsigned MOST_CELLS = 512, MOST_RANGES = 16, MOST_PLAIN = 128, LEARNING = 300;

/* Not on the heap: Relacy tracks what is allocated while it runs. */
cell cells[MOST_CELLS];
unsigned cell_count, started;
alignas(16) unsigned char cell_memory[MOST_CELLS][sizeof(atomic_word)];
alignas(16) unsigned char plain_memory[MOST_PLAIN][sizeof(plain_word)];
unsigned plain_count;
range shared[MOST_RANGES], plain[MOST_RANGES], narrow[MOST_RANGES];
unsigned shared_count, plain_range_count, narrow_count;
bool running; /* the threads are: accesses belong to the model */

void give_up(const char *why)
{
    std::fprintf(stderr, "relacy_runtime: %s\n", why);
    std::exit(2);
}

void add_range(range *ranges, unsigned &count, void *memory, size_t bytes)
{
    if (count == MOST_RANGES) {
        give_up("too many ranges; raise MOST_RANGES.");
    }
    ranges[count++] = range{(uintptr_t)memory, (uintptr_t)memory + bytes};
}

bool inside(const range *ranges, unsigned count, uintptr_t at)
{
    for (unsigned i = 0; i < count; i++) {
        if (at >= ranges[i].begin && at < ranges[i].end) {
            return true;
        }
    }
    return false;
}

uint64_t memory_read(uintptr_t at, unsigned width)
{
    return width == 8 ? *(uint64_t *)at : *(uint32_t *)at;
}

void memory_write(uintptr_t at, unsigned width, uint64_t value)
{
    if (width == 8) {
        *(uint64_t *)at = value;
    } else {
        *(uint32_t *)at = (uint32_t)value;
    }
}

uint64_t cut(uint64_t value, unsigned width)
{
    return width == 8 ? value : (uint32_t)value;
}

cell *find_cell(uintptr_t at)
{
    for (unsigned i = 0; i < cell_count; i++) {
        if (cells[i].at <= at && at < cells[i].at + cells[i].width) {
            return &cells[i];
        }
    }
    return nullptr;
}

/* Stored before the threads start: to them that is the past. */
void start_cell(cell *of)
{
    of->initial = memory_read(of->at, of->width);
    of->word = new (cell_memory[of - cells]) atomic_word;
    of->word->store(0, rl::mo_relaxed, $);
}

/* Which words are atomics is learnt from the accesses themselves: one is tracked from the execution after its first use.
 * nullptr = not yet. */
cell *cell_of(uintptr_t at, unsigned width)
{
    cell *found = find_cell(at);
    if (found != nullptr && (found->at != at || found->width != width)) {
        give_up("a field is accessed in two sizes; name it by model_narrow.");
    }
    if (found == nullptr) {
        if (cell_count == MOST_CELLS) {
            give_up("too many atomics; raise MOST_CELLS.");
        }
        found = &cells[cell_count++];
        *found = cell{at, width, 0, nullptr};
    }
    return found->word == nullptr ? nullptr : found;
}

rl::memory_order order_of(int order)
{
    static const rl::memory_order orders[] = {rl::mo_relaxed, rl::mo_consume, rl::mo_acquire,
                                              rl::mo_release, rl::mo_acq_rel, rl::mo_seq_cst};
    return orders[order];
}

bool tracked(uintptr_t at)
{
    return running && inside(shared, shared_count, at);
}

bool split(uintptr_t at, unsigned width)
{
    return width == 8 && inside(narrow, narrow_count, at);
}

uint64_t load(uintptr_t at, unsigned width, int order)
{
    if (tracked(at) && split(at, width)) {
        uint64_t low = load(at, 4, order);
        return low | load(at + 4, 4, order) << 32;
    }
    cell *of = tracked(at) ? cell_of(at, width) : nullptr;
    return of == nullptr ? memory_read(at, width) : cut(of->word->load(order_of(order), $) + of->initial, width);
}

void store(uintptr_t at, unsigned width, uint64_t value, int order)
{
    if (tracked(at) && split(at, width)) {
        store(at, 4, (uint32_t)value, order);
        store(at + 4, 4, value >> 32, order);
        return;
    }
    cell *of = tracked(at) ? cell_of(at, width) : nullptr;
    if (of != nullptr) {
        of->word->store(value - of->initial, order_of(order), $);
    }
    memory_write(at, width, value);
}

uint64_t fetch_add(uintptr_t at, unsigned width, uint64_t value, int order)
{
    cell *of = tracked(at) ? cell_of(at, width) : nullptr;
    uint64_t before = of == nullptr ? memory_read(at, width)
                                    : cut(of->word->fetch_add(value, order_of(order), $) + of->initial, width);
    memory_write(at, width, before + value);
    return before;
}

bool compare_exchange(uintptr_t at, unsigned width, uint64_t *expected, uint64_t desired, int order, int failure)
{
    uint64_t seen = memory_read(at, width);
    bool swapped = seen == *expected;
    cell *of = tracked(at) ? cell_of(at, width) : nullptr;
    if (of != nullptr) {
        seen = *expected - of->initial;
        swapped = of->word->compare_exchange(rl::bool_t<false>(), seen, desired - of->initial, order_of(order),
                                             order_of(failure), $);
        seen = cut(seen + of->initial, width);
    }
    if (swapped) {
        memory_write(at, width, desired);
    }
    *expected = seen;
    return swapped;
}

plain_word *plain_of(uintptr_t at)
{
    unsigned before = 0;
    for (unsigned i = 0; i < plain_range_count; i++) {
        if (at >= plain[i].begin && at < plain[i].end) {
            return (plain_word *)plain_memory[before + (at - plain[i].begin) / 8];
        }
        before += (unsigned)(plain[i].end - plain[i].begin) / 8;
    }
    return nullptr;
}

void plain_access(uintptr_t at, unsigned width, bool write)
{
    if (!running) {
        return;
    }
    for (uintptr_t word = at & ~(uintptr_t)7; word < at + width; word += 8) {
        plain_word *of = plain_of(word);
        if (of == nullptr) {
            continue;
        }
        if (write) {
            (*of)($).store(0);
        } else {
            (*of)($).load();
        }
    }
    /* A field that is atomic elsewhere: what a plain read sees must be the only value that the model allows. */
    cell *of = find_cell(at);
    if (of != nullptr && of->word != nullptr && !write && of->at == at && of->width == width) {
        uint64_t seen = cut(of->word->load(rl::mo_relaxed, $) + of->initial, width);
        model_require(seen == memory_read(at, width), "a plain read races with an atomic store");
    }
}

void start_words(void)
{
    for (unsigned i = 0; i < plain_range_count; i++) {
        for (uintptr_t at = plain[i].begin; at < plain[i].end; at += 8) {
            if (plain_count == MOST_PLAIN) {
                give_up("too much plain memory; raise MOST_PLAIN.");
            }
            (*new (plain_memory[plain_count++]) plain_word)($).store(0);
        }
    }
}

void end_words(void)
{
    for (unsigned i = 0; i < started; i++) {
        cells[i].word->~atomic_word();
        cells[i].word = nullptr;
    }
    for (unsigned i = 0; i < plain_count; i++) {
        ((plain_word *)plain_memory[i])->~plain_word();
    }
}

template <int THREADS> struct scenario : rl::test_suite<scenario<THREADS>, THREADS> {
    void before()
    {
        running = false;
        plain_count = shared_count = plain_range_count = narrow_count = 0;
        scenario_setup();
        start_words();
        started = cell_count;
        for (unsigned i = 0; i < started; i++) {
            start_cell(&cells[i]);
        }
        running = true;
    }

    void thread(unsigned index) { scenario_thread(index); }

    void after()
    {
        running = false;
        scenario_check();
        end_words();
    }
};

template <int THREADS> int run(rl::test_params &params)
{
    rl::test_params learning;
    learning.iteration_count = LEARNING;
    learning.progress_output_period = params.progress_output_period;
    learning.execution_depth_limit = params.execution_depth_limit;
    if (!rl::simulate<scenario<THREADS>>(learning)) {
        return 1;
    }
    return rl::simulate<scenario<THREADS>>(params) ? 0 : 1;
}

} // namespace

extern "C" {

void model_share(void *memory, size_t bytes)
{
    memset(memory, 0, bytes);
    add_range(shared, shared_count, memory, bytes);
}

void model_plain(void *memory, size_t bytes)
{
    add_range(plain, plain_range_count, memory, bytes);
}

void model_narrow(void *memory, size_t bytes)
{
    add_range(narrow, narrow_count, memory, bytes);
}

void model_private(void *memory, size_t bytes)
{
    memset(memory, 0, bytes);
}

void model_require(int holds, const char *what)
{
    if (!holds) {
        rl::ctx().fail_test(what, rl::test_result_user_assert_failed, $);
    }
}

/* memcpy of the C sources (-Wl,--wrap=memcpy, and __builtin_memcpy defined as this): gcc does not instrument it. */
void *model_memcpy(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        size_t part = bytes - i < 8 ? bytes - i : 8;
        plain_access((uintptr_t)from + i, (unsigned)part, false);
        plain_access((uintptr_t)to + i, (unsigned)part, true);
        memmove((char *)to + i, (const char *)from + i, part);
    }
    return to;
}

void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}

#define PLAIN(bytes)                                                                                                   \
    void __tsan_read##bytes(void *at) { plain_access((uintptr_t)at, bytes, false); }                                   \
    void __tsan_write##bytes(void *at) { plain_access((uintptr_t)at, bytes, true); }                                   \
    void __tsan_unaligned_read##bytes(void *at) { plain_access((uintptr_t)at, bytes, false); }                         \
    void __tsan_unaligned_write##bytes(void *at) { plain_access((uintptr_t)at, bytes, true); }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)
void __tsan_read_range(void *at, size_t bytes) { plain_access((uintptr_t)at, (unsigned)bytes, false); }
void __tsan_write_range(void *at, size_t bytes) { plain_access((uintptr_t)at, (unsigned)bytes, true); }

#define ATOMIC(bits)                                                                                                   \
    uint##bits##_t __tsan_atomic##bits##_load(const volatile void *at, int order)                                      \
    {                                                                                                                  \
        return (uint##bits##_t)load((uintptr_t)at, bits / 8, order);                                                   \
    }                                                                                                                  \
    void __tsan_atomic##bits##_store(volatile void *at, uint##bits##_t value, int order)                               \
    {                                                                                                                  \
        store((uintptr_t)at, bits / 8, value, order);                                                                  \
    }                                                                                                                  \
    uint##bits##_t __tsan_atomic##bits##_fetch_add(volatile void *at, uint##bits##_t value, int order)                 \
    {                                                                                                                  \
        return (uint##bits##_t)fetch_add((uintptr_t)at, bits / 8, value, order);                                       \
    }                                                                                                                  \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile void *at, void *expected, uint##bits##_t desired,       \
                                                      int order, int failure)                                          \
    {                                                                                                                  \
        uint64_t seen = *(uint##bits##_t *)expected;                                                                   \
        bool swapped = compare_exchange((uintptr_t)at, bits / 8, &seen, desired, order, failure);                      \
        *(uint##bits##_t *)expected = (uint##bits##_t)seen;                                                            \
        return swapped;                                                                                                \
    }
ATOMIC(32)
ATOMIC(64)

void __tsan_atomic_thread_fence(int order)
{
    if (running && order != __ATOMIC_RELAXED) {
        rl::atomic_thread_fence(order_of(order), $);
    }
}

void __tsan_atomic_signal_fence(int) {}

} // extern "C"

/* <program> EXECUTIONS [BOUND]: without BOUND random executions, with it every one of at most BOUND preemptions.
 * Exit 0 = no violation, 1 = one was found (its trace is on stdout), 2 = the scenario itself is wrong. */
int main(int argc, char **argv)
{
    rl::test_params params;
    params.iteration_count = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 10000;
    params.execution_depth_limit = 1u << 20;
    params.progress_output_period = 1u << 30;
    params.collect_history = params.output_history = std::getenv("LAGOM_MODEL_HISTORY") != nullptr;
    if (argc > 2) {
        params.search_type = rl::sched_bound;
        params.context_bound = (unsigned)std::atoi(argv[2]);
    }
    if (scenario_threads == 2) {
        return run<2>(params);
    }
    if (scenario_threads == 3) {
        return run<3>(params);
    }
    give_up("a scenario has 2 or 3 threads.");
}
