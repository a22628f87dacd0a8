/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_replay.c - LAGOM_MODE=replay and auto: a saved config takes effect on all ranks at one call, without a controller;
 * and every reason not to replay it leaves NCCL stock, says why, and says it where doctor looks. */
#include <pthread.h>

#include "tests/native/plugin_harness.h"

#define COMM 0x909u
#define CALLS 4000         /* at least */
#define MOST_CALLS 2000000 /* a rank may have to wait for a processor */
#define AG (4u * MIB)
#define RS (2u * MIB)

__attribute__((visibility("default"))) int ncclGetVersion(int *out)
{
    *out = 23007;
    return 0;
}

static struct plugin plugin;
static char config_path[128];

/* One iteration: AG, AG, AG, RS. The first AG keeps every channel, the others are tuned. */
static const char *const good_config = "lagom-config 1\n"
                                        "fingerprint nccl 23007\n"
                                        "fingerprint ranks 2\n"
                                        "communicator ranks=2 nodes=1 ordinal=0\n"
                                        "site 0 allgather 4194304\n"
                                        "site 1 allgather 4194304 nc=3 chunk=256K\n"
                                        "site 2 reducescatter 2097152 nc=5\n"
                                        "program 0 1 1 2\n"
                                        "end\n";

static void write_config(const char *text)
{
    snprintf(config_path, sizeof(config_path), "%s/config.%d", case_folder, (int)getpid());
    FILE *file = fopen(config_path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0);
    fclose(file);
    setenv("LAGOM_CONFIG", config_path, 1);
}

static int function_at(int step)
{
    return step % 4 == 3 ? LAGOM_REDUCE_SCATTER : LAGOM_ALL_GATHER;
}

static size_t bytes_at(int step)
{
    return step % 4 == 3 ? RS : AG;
}

static int channels_at(int step)
{
    static const int tuned[] = {0, 3, 3, 5};
    return tuned[step % 4];
}

/* A rank's thread: the program over and over, with what an epoch's end looks like now and then. */
struct worker {
    struct rank rank;
    int self;
    int first_tuned; /* call of this rank, -1 = none */
    int tuned;
    int wrong;
    int calls;
};
static uint32_t ranks_in_force;
#define MOST_AHEAD 256 /* calls: ranks of a job wait for each other in each of theirs */
static uint32_t done_by[2];

static void wait_for_the_other(int self, uint32_t step)
{
    lagom_store_release(&done_by[self], step);
    while (step > lagom_load_acquire(&done_by[1 - self]) + MOST_AHEAD) {
        usleep(100);
    }
}

static int most_calls(void)
{
    const char *most = getenv("TEST_CALLS_AT_MOST");
    return most == NULL ? MOST_CALLS : atoi(most);
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    int most = most_calls();
    worker->first_tuned = -1;
    for (int step = 0; step < CALLS || (lagom_load_acquire(&ranks_in_force) < 2 && step < most); step++) {
        call(&worker->rank, function_at(step), bytes_at(step));
        worker->calls++;
        if (worker->rank.channels != 0 && worker->first_tuned < 0) {
            worker->first_tuned = step;
            lagom_fetch_add(&ranks_in_force, 1u);
        }
        worker->tuned += worker->rank.channels != 0;
        bool in_force = worker->first_tuned >= 0;
        worker->wrong += worker->rank.channels != (in_force ? channels_at(step) : 0);
        if (step % 4 == 1) {
            size_t chunk = chunk_of(&worker->rank, LAGOM_ALL_GATHER, LAGOM_RING, LAGOM_SIMPLE, 2 * MIB);
            worker->wrong += chunk != (worker->rank.channels == 3 ? 256u << 10 : 2 * MIB);
        }
        wait_for_the_other(worker->self, (uint32_t)step);
    }
    lagom_store_release(&done_by[worker->self], UINT32_MAX - MOST_AHEAD);
    return NULL;
}

static void two_workers(struct worker workers[2])
{
    pthread_t threads[2];
    plugin = load_plugin();
    for (int i = 0; i < 2; i++) {
        workers[i] = (struct worker){.rank = make_rank(&plugin, 6, COMM, 2, 1), .self = i};
        CHECK(workers[i].rank.context != NULL);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
}

static void replayed_from_one_call_on(void)
{
    struct worker workers[2];
    write_config(good_config);
    setenv("LAGOM_MODE", "replay", 1);
    two_workers(workers);
    CHECK(workers[0].first_tuned >= 0);
    CHECK_EQUAL(workers[0].first_tuned, workers[1].first_tuned);
    CHECK_EQUAL(workers[0].first_tuned % 4, 1);
    for (int i = 0; i < 2; i++) {
        CHECK_EQUAL(workers[i].wrong, 0);
        int in_force = workers[i].calls - workers[i].first_tuned; /* from the second position on: 3 of 4 are tuned */
        CHECK(workers[i].tuned >= in_force * 3 / 4 && workers[i].tuned <= in_force * 3 / 4 + 1);
    }
}

static void auto_replays_a_config_that_fits(void)
{
    struct worker workers[2];
    write_config(good_config);
    two_workers(workers); /* LAGOM_MODE unset */
    CHECK(workers[0].first_tuned >= 0);
    CHECK_EQUAL(workers[0].first_tuned, workers[1].first_tuned);
}

/* NCCL 2.30 would take an AllGather's channels unchecked, and this build tells nobody how many there are. */
static void nobodys_config_is_held_to_what_is_known_to_be_built(void)
{
    struct worker workers[2];
    write_config("lagom-config 1\n"
                  "communicator ranks=2 nodes=1 ordinal=0\n"
                  "rule allgather 1M - nc=3\n"
                  "end\n");
    setenv("LAGOM_MODE", "replay", 1);
    setenv("TEST_CALLS_AT_MOST", "8000", 1);
    two_workers(workers);
    CHECK(workers[0].first_tuned < 0 && workers[1].first_tuned < 0);
    const struct lagom_slot *slots = map_region()->slots;
    CHECK(slots[0].refused_fault == LAGOM_PLAN_MANY_CHANNELS || slots[1].refused_fault == LAGOM_PLAN_MANY_CHANNELS);
}

static void refused(const char *mode, const char *reason, bool context_left)
{
    void *context = NULL;
    setenv("LAGOM_MODE", mode, 1);
    plugin = load_plugin();
    CHECK(plugin.v6->init(&context, COMM, 2, 1, NULL, NULL, NULL) == 0);
    hold(NULL, context);
    CHECK((context != NULL) == context_left);
    struct lagom_region *region = map_region();
    CHECK(region != NULL);
    if (strstr(region->processes[0].remark, reason) == NULL) {
        fprintf(stderr, "remark is: %s\n", region->processes[0].remark);
        exit(1);
    }
    struct rank rank = {.plugin = plugin, .api = 6, .context = context};
    for (int step = 0; step < 3000; step++) {
        call(&rank, function_at(step), bytes_at(step));
        CHECK(untouched(&rank));
    }
}

static void no_config_named(void)
{
    refused("replay", "LAGOM_CONFIG", false);
}

static void no_such_file(void)
{
    setenv("LAGOM_CONFIG", "/nonexistent/config.lagom", 1);
    refused("replay", "saved config refused", false);
}

static void a_line_that_is_not_understood(void)
{
    write_config("lagom-config 1\nfingerprint nccl 23007\ncommunicator ranks=2 nodes=1 ordinal=0\nsite zero\nend\n");
    refused("replay", "line 4", false);
}

static void another_nccl(void)
{
    write_config("lagom-config 1\nfingerprint nccl 22809\ncommunicator ranks=2 nodes=1 ordinal=0\n"
                  "rule allgather 0 - nc=3\nend\n");
    refused("replay", "made for NCCL 2.28.9, this job runs NCCL 2.30.7; NCCL chooses", false);
}

static void another_number_of_ranks(void)
{
    setenv("WORLD_SIZE", "16", 1);
    write_config(good_config);
    refused("replay", "made for 2 ranks, this job has 16", false);
}

static void another_gpu(void)
{
    write_config("lagom-config 1\nfingerprint gpu \"NVIDIA B999\"\ncommunicator ranks=2 nodes=1 ordinal=0\n"
                  "rule allgather 0 - nc=3\nend\n");
    refused("replay", "B999", false);
}

static void without_peer_access(void)
{
    setenv("NCCL_P2P_DISABLE", "1", 1);
    write_config("lagom-config 1\nfingerprint p2p 1\ncommunicator ranks=2 nodes=1 ordinal=0\n"
                  "rule allgather 0 - nc=3\nend\n");
    refused("replay", "peer access", false);
}

static void of_a_simulated_job(void)
{
    write_config("lagom-config 1\nfingerprint simulated 1\ncommunicator ranks=2 nodes=1 ordinal=0\n"
                  "rule allgather 0 - nc=3\nend\n");
    refused("replay", "made in a simulated job, this job is real; NCCL chooses", false);
}

/* It goes on to tune: it keeps its place for a controller, stock until then. */
static void replay_or_tune_with_a_config_that_does_not_fit(void)
{
    setenv("WORLD_SIZE", "16", 1);
    setenv("LAGOM_CONTROLLER", "auto", 1);
    setenv("LAGOM_PYTHON", "/usr/bin/true", 1);
    write_config(good_config);
    refused("replay-or-tune", "the job is tuned instead", true);
}

/* The same where no rank may start a controller and none runs: it is not said to be tuned. */
static void replay_or_tune_without_a_controller(void)
{
    setenv("WORLD_SIZE", "16", 1);
    setenv("LAGOM_CONTROLLER", "none", 1);
    write_config(good_config);
    refused("replay-or-tune", "LAGOM_CONTROLLER=none: no controller will start", true);
}

static void no_section_for_this_communicator(void)
{
    write_config("lagom-config 1\ncommunicator ranks=4 nodes=1 ordinal=0\nrule allgather 0 - nc=3\nend\n");
    setenv("LAGOM_MODE", "replay", 1);
    plugin = load_plugin();
    void *context = &context;
    CHECK(plugin.v6->init(&context, COMM, 2, 1, NULL, NULL, NULL) == 0);
    CHECK(context == NULL);
}

/* LAGOM_CONFIG alone never starts a search. */
static void auto_never_tunes_instead(void)
{
    setenv("WORLD_SIZE", "16", 1);
    setenv("LAGOM_CONTROLLER", "auto", 1);
    setenv("LAGOM_PYTHON", "/usr/bin/true", 1);
    write_config(good_config);
    refused("auto", "this job has 16; NCCL chooses", false);
    CHECK_EQUAL(map_region()->processes[0].saved_config, LAGOM_SAVED_CONFIG_OTHER_RANKS);
    CHECK_TEXT(map_region()->processes[0].refusal.here, "16");
}

/* Ranks with different saved configs: the plan of one is not the other's, nobody starts. */
static void configs_that_differ(void)
{
    write_config(good_config);
    setenv("LAGOM_MODE", "replay", 1);
    pid_t other = fork();
    if (other == 0) {
        write_config("lagom-config 1\ncommunicator ranks=2 nodes=1 ordinal=0\nrule allgather 0 - nc=9\nend\n");
    }
    plugin = load_plugin();
    struct rank rank = make_rank(&plugin, 6, COMM, 2, 1);
    CHECK(rank.context != NULL);
    for (int step = 0; step < 4000; step++) {
        call(&rank, function_at(step), bytes_at(step));
        CHECK(untouched(&rank));
        usleep(step % 8 == 0 ? 50 : 0);
    }
    if (other == 0) {
        exit(0);
    }
    int status = 0;
    CHECK(waitpid(other, &status, 0) == other && status == 0);
}

int main(void)
{
    int failures = 0;
    failures += RUN(replayed_from_one_call_on);
    failures += RUN(auto_replays_a_config_that_fits) + RUN(nobodys_config_is_held_to_what_is_known_to_be_built);
    failures += RUN(no_config_named);
    failures += RUN(no_such_file);
    failures += RUN(a_line_that_is_not_understood);
    failures += RUN(another_nccl);
    failures += RUN(another_number_of_ranks);
    failures += RUN(another_gpu);
    failures += RUN(without_peer_access);
    failures += RUN(of_a_simulated_job);
    failures += RUN(replay_or_tune_with_a_config_that_does_not_fit) + RUN(auto_never_tunes_instead);
    failures += RUN(replay_or_tune_without_a_controller);
    failures += RUN(no_section_for_this_communicator);
    failures += RUN(configs_that_differ);
    return failures != 0;
}
