/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_notes.c - what the plugin tells the kernel timeline: of launches and of the times that NCCL took, and where
 * NCCL reports nothing, of its calls. */
#include <limits.h>

#include "tests/native/profiler_harness.h"

struct fake_notes { /* tests/native/fakes/fake_timeline.c */
    uint32_t asked;
    uint32_t unreported;
    uint32_t ran;
    struct lagom_kernel_span last;
};

/* The plugin looks for the timeline's library beside itself: a copy of it, beside one that counts. */
static const struct fake_notes *load_beside_a_counting_timeline(void)
{
    static char path[PATH_MAX];
    char command[2 * PATH_MAX];
    snprintf(path, sizeof(path), "%s/libnccl-tuner-lagom.so", case_folder);
    snprintf(command, sizeof(command),
             "cp '%s' '%s' && ${CC:-gcc} -std=c11 -O1 -shared -fPIC -Icsrc tests/native/fakes/fake_timeline.c "
             "-o '%s/liblagom_timeline.so'",
             plugin_path(), path, case_folder);
    CHECK(system(command) == 0);
    setenv("LAGOM_TEST_PLUGIN", path, 1);
    setenv("LAGOM_TIMELINE", "1", 1);
    plugin = load_plugin();
    snprintf(path, sizeof(path), "%s/liblagom_timeline.so", case_folder);
    void *timeline = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(timeline != NULL);
    return find_symbol(timeline, "fake_notes");
}

static void ask_of_all_functions(struct rank *rank)
{
    static const int functions[] = {LAGOM_ALL_GATHER, LAGOM_REDUCE_SCATTER, LAGOM_ALL_REDUCE, LAGOM_REDUCE};
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        call(rank, functions[i], MIB);
    }
    call(rank, LAGOM_BROADCAST, 4);
}

/* NCCL tells the profiler plugin of all but Broadcasts: those alone are noted when it asks. */
static void only_broadcasts_are_noted_when_asked(void)
{
    struct profiled_rank pair[2];
    if (sanitized()) {
        return; /* the plugin is in this program, and beside it is no place of ours */
    }
    const struct fake_notes *notes = load_beside_a_counting_timeline();
    pair[0] = make_profiled(6, 0, "fsdp");
    pair[1] = make_profiled(6, 1, "fsdp");
    region = map_region();
    communicator = find_communicator_of(region, COMM);
    ask_of_all_functions(&pair[0].rank); /* nobody captures */
    CHECK_EQUAL(notes->unreported, 0);
    lagom_capture_set(region, communicator, LAGOM_CAPTURE_KERNELS);
    uint64_t number = region->slots[0].calls;
    ask_of_all_functions(&pair[0].rank);
    CHECK_EQUAL(notes->unreported, 1);
    CHECK_EQUAL(notes->asked, 0);
    CHECK_EQUAL(notes->last.function, LAGOM_BROADCAST);
    CHECK_EQUAL(notes->last.call, number + 4);
    CHECK_EQUAL(notes->last.bytes, 4);
    CHECK_EQUAL(notes->last.slot, 0);
}

/* When NCCL has timed the last channel of a kernel, the timeline is told, once. */
static void kernels_that_ran_are_noted(void)
{
    struct profiled_rank pair[2];
    if (sanitized()) {
        return;
    }
    const struct fake_notes *notes = load_beside_a_counting_timeline();
    pair[0] = make_profiled(6, 0, "fsdp");
    pair[1] = make_profiled(6, 1, "fsdp");
    region = map_region();
    communicator = find_communicator_of(region, COMM);
    measure(&pair[0], LAGOM_CAPTURE_KERNELS);
    uint64_t number = region->slots[0].calls;
    call(&pair[0].rank, LAGOM_ALL_GATHER, 2 * 2 * MIB);
    union nccl_event_body body = coll_of("AllGather", MIB, 3, 41);
    void *coll = start(&pair[0], COLL, NULL, &body);
    CHECK_EQUAL(notes->ran, 0);
    run_kernel(&pair[0], coll, 3, 5000);
    CHECK_EQUAL(notes->ran, 1);
    CHECK_EQUAL(notes->last.call, number);
    CHECK_EQUAL(notes->last.slot, 0);
    CHECK_EQUAL(notes->last.start_ns, 5000);
    CHECK_EQUAL(notes->last.end_ns, 6002);
}

/* Nothing is told at all: every call is noted, Broadcasts like the others. */
static void all_are_noted_without_the_profiler_half(void)
{
    if (sanitized()) {
        return;
    }
    const struct fake_notes *notes = load_beside_a_counting_timeline();
    struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
    region = map_region();
    lagom_capture_set(region, find_communicator_of(region, COMM), LAGOM_CAPTURE_KERNELS);
    ask_of_all_functions(&rank);
    CHECK_EQUAL(notes->asked, 5);
    CHECK_EQUAL(notes->unreported, 0);
}

int main(void)
{
    int failures = 0;
    failures += RUN(kernels_that_ran_are_noted);
    failures += RUN(only_broadcasts_are_noted_when_asked);
    failures += RUN(all_are_noted_without_the_profiler_half);
    return failures != 0;
}
