/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_static_rules.c - NCCL 2.21 to 2.26, where no id is told: size rules from the first call on, one reading a node, and
 * not a byte where no rule speaks, nobody asked, or the release is another. */
#include <stddef.h>

#include "shm/node_rules.h"
#include "tests/native/plugin_harness.h"
#include "tuner_plugin/static_rules.h"

static int version;
__attribute__((visibility("default"))) int ncclGetVersion(int *out)
{
    *out = version;
    return 0;
}

static void log_nothing(int level, unsigned long flags, const char *file, int line, const char *format, ...)
{
    (void)level, (void)flags, (void)file, (void)line, (void)format;
}

static struct plugin plugin;

/* Context of one communicator, and whether there is one. */
static void *init(int api, size_t ranks, size_t nodes)
{
    void *context = NULL;
    int failure = api == 2   ? plugin.v2->init(ranks, nodes, log_nothing, &context)
                  : api == 3 ? plugin.v3->init(ranks, nodes, log_nothing, &context)
                             : plugin.v4->init(ranks, nodes, log_nothing, &context);
    CHECK(failure == 0);
    hold(NULL, context);
    return context;
}

static int version_of(int api)
{
    return api == 2 ? 22105 : api == 3 ? 22304 : 22602;
}

static void use(int api, const char *mode, const char *rules)
{
    version = version_of(api);
    plugin = load_plugin();
    if (mode != NULL) {
        setenv("LAGOM_MODE", mode, 1);
    }
    setenv("LAGOM_SET", rules, 1);
}

static void end(int api, void *context)
{
    hold(context, NULL);
    CHECK((api == 2   ? plugin.v2->destroy(context)
           : api == 3 ? plugin.v3->destroy(context)
                      : plugin.v4->destroy(context)) == 0);
}

/* ---- With a table (v3, v4) -------------------------------------------------------------------------------------- */

static struct rank ask_table(int api, void *context, int function, size_t bytes)
{
    struct rank rank = {.plugin = plugin, .api = api, .context = context};
    float **flat = (float **)(void *)rank.table;
    offer(&rank);
    CHECK((api == 3 ? plugin.v3->get_coll_info(context, function, bytes, 1, flat, ALGORITHMS, PROTOCOLS, &rank.channels)
                    : plugin.v4->get_coll_info(context, function, bytes, 1, flat, ALGORITHMS, PROTOCOLS, 1,
                                               &rank.channels)) == 0);
    return rank;
}

static void rules_hold_from_the_first_call(int api)
{
    use(api, "replay", "allgather:>=1M:nc=3; allreduce:=4096:algo=tree,proto=ll,nc=2 # two\nreduce:any:proto=ll128");
    void *context = init(api, 2, 1);
    CHECK(context != NULL);
    struct rank rank = ask_table(api, context, LAGOM_ALL_GATHER, MIB);
    CHECK_EQUAL(rank.channels, 3);
    CHECK_EQUAL(stock_pick(&rank), LAGOM_RING * PROTOCOLS + LAGOM_SIMPLE);
    rank = ask_table(api, context, LAGOM_ALL_REDUCE, 4096);
    CHECK_EQUAL(rank.channels, 2);
    CHECK_EQUAL(stock_pick(&rank), LAGOM_TREE * PROTOCOLS + LAGOM_LL);
    rank = ask_table(api, context, LAGOM_REDUCE, 100);
    CHECK_EQUAL(rank.channels, 0);
    CHECK_EQUAL(stock_pick(&rank), LAGOM_RING * PROTOCOLS + LAGOM_LL128);
    end(api, context);
}

static void a_miss_leaves_every_byte(int api)
{
    use(api, "replay", "allgather:>=1M:nc=3; allreduce:=4096:algo=pat,nc=2");
    void *context = init(api, 2, 1);
    const struct rank misses[] = {
        ask_table(api, context, LAGOM_ALL_GATHER, MIB - 1), /* no rule */
        ask_table(api, context, LAGOM_REDUCE_SCATTER, MIB),
        ask_table(api, context, LAGOM_ALL_REDUCE, 4096), /* PAT is not offered: the config is one thing */
        ask_table(api, context, 5, MIB),
        ask_table(api, context, -1, MIB),
    };
    for (size_t i = 0; i < sizeof(misses) / sizeof(misses[0]); i++) {
        CHECK(untouched(&misses[i]));
    }
    end(api, context);
}

static void with_a_table_v3(void)
{
    rules_hold_from_the_first_call(3);
}

static void with_a_table_v4(void)
{
    rules_hold_from_the_first_call(4);
}

static void misses_v3(void)
{
    a_miss_leaves_every_byte(3);
}

static void misses_v4(void)
{
    a_miss_leaves_every_byte(4);
}

/* ---- Without one (v2) ------------------------------------------------------------------------------------------- */

struct answer {
    int algorithm, protocol, channels;
};

static struct answer ask_v2(void *context, int function, size_t bytes, int coll_net)
{
    struct answer answer = {-1, -1, 0};
    CHECK(plugin.v2->get_coll_info(context, function, bytes, coll_net, 1, 1, &answer.algorithm, &answer.protocol,
                                   &answer.channels) == 0);
    return answer;
}

static bool left(struct answer answer)
{
    return answer.algorithm == -1 && answer.protocol == -1 && answer.channels == 0;
}

static const char *const plain_rules = "allgather:>=1M:nc=3; allreduce:=4096:algo=tree,proto=ll,nc=2;"
                                       "reducescatter:any:algo=ring,proto=ll128,nc=2; allreduce:=8192:algo=ring;"
                                       "broadcast:any:algo=tree,proto=simple";

static void v2_answers_what_every_communicator_has(void)
{
    use(2, "replay", plain_rules);
    void *context = init(2, 2, 1);
    struct answer answer = ask_v2(context, LAGOM_ALL_GATHER, MIB, 0);
    CHECK(answer.algorithm == -1 && answer.protocol == -1 && answer.channels == 3);
    answer = ask_v2(context, LAGOM_ALL_REDUCE, 4096, 0);
    CHECK(answer.algorithm == LAGOM_TREE && answer.protocol == LAGOM_LL && answer.channels == 2);
    CHECK(left(ask_v2(context, LAGOM_ALL_GATHER, MIB, 1)));       /* CollNet would take NC unchecked */
    CHECK(left(ask_v2(context, LAGOM_ALL_GATHER, MIB - 1, 0)));   /* no rule */
    CHECK(left(ask_v2(context, LAGOM_REDUCE_SCATTER, MIB, 0)));   /* LL128 is not everywhere */
    CHECK(left(ask_v2(context, LAGOM_ALL_REDUCE, 8192, 0)));      /* an algorithm without a protocol */
    CHECK(left(ask_v2(context, LAGOM_BROADCAST, MIB, 0)));        /* TREE is AllReduce's */
    CHECK(left(ask_v2(context, 5, MIB, 0)) && left(ask_v2(context, -1, MIB, 0)));
    end(2, context);
}

static void v2_leaves_the_algorithm_to_a_user_who_chose(const char *name)
{
    setenv(name, "ring", 1);
    use(2, "replay", plain_rules);
    void *context = init(2, 2, 1);
    CHECK(left(ask_v2(context, LAGOM_ALL_REDUCE, 4096, 0)));
    CHECK_EQUAL(ask_v2(context, LAGOM_ALL_GATHER, MIB, 0).channels, 3);
    unsetenv(name);
}

static void v2_nccl_algo_wins(void)
{
    v2_leaves_the_algorithm_to_a_user_who_chose("NCCL_ALGO");
}

static void v2_nccl_proto_wins(void)
{
    v2_leaves_the_algorithm_to_a_user_who_chose("NCCL_PROTO");
}

static void v2_without_a_context(void)
{
    use(2, "off", plain_rules);
    void *context = init(2, 2, 1);
    CHECK(context == NULL && left(ask_v2(NULL, LAGOM_ALL_GATHER, MIB, 0)));
    end(2, NULL);
}

/* ---- Who may ---------------------------------------------------------------------------------------------------- */

static void nothing_but_replay_opts_in(void)
{
    static const char *const modes[] = {NULL, "auto", "tune", "off"};
    const char *mode = modes[atoi(getenv("TEST_MODE"))];
    use(4, mode, "any:any:nc=2");
    CHECK(init(4, 2, 1) == NULL);
    if (mode == NULL || strcmp(mode, "off") != 0) {
        CHECK(strstr(map_region()->processes[0].remark, "LAGOM_MODE=replay") != NULL);
    }
}

static void several_nodes_are_left_alone(void)
{
    use(4, "replay", "any:any:nc=2");
    CHECK(init(4, 16, 2) == NULL);
    CHECK(init(4, 8, 1) != NULL);
    CHECK(init(4, 1, 1) == NULL);
}

/* 2.27 has an id, for those who name the profiler plugin; its ranks could differ in that. */
static void another_release_is_left_alone(void)
{
    use(4, "replay", "any:any:nc=2");
    version = 22707;
    CHECK(init(4, 2, 1) == NULL);
}

static void an_unknown_release_is_left_alone(void)
{
    use(4, "replay", "any:any:nc=2");
    version = 0;
    CHECK(init(4, 2, 1) == NULL);
}

static void a_job_without_a_name_is_left_alone(void)
{
    use(4, "replay", "any:any:nc=2");
    static const char *const names[] = {"LAGOM_JOB_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "PMIX_NAMESPACE",
                                        "PMI_JOBID",    "MASTER_ADDR"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsetenv(names[i]);
    }
    CHECK(init(4, 2, 1) == NULL);
}

static void wrong_rules_are_none(void)
{
    use(4, "replay", "allgather:any:nc=2; allgather:any:speed=9");
    CHECK(init(4, 2, 1) == NULL);
    CHECK(strstr(map_region()->processes[0].remark, "speed=9") != NULL);
}

static void what_the_user_withholds_is_remarked(void)
{
    use(2, "replay", "allreduce:any:algo=tree,proto=simple,nc=4,chunk=512K");
    setenv("NCCL_ALGO", "ring", 1);
    init(2, 2, 1);
    const char *remark = map_region()->processes[0].remark;
    CHECK(strstr(remark, "all rules with an algorithm, because NCCL_ALGO or NCCL_PROTO is set.") != NULL);
    CHECK(strstr(remark, "chunk and threads") != NULL && strstr(remark, "plain ring and tree") == NULL);
    unsetenv("NCCL_ALGO");
}

/* A rank that finds no room still does what the others do. */
static void without_a_region_the_own_reading_holds(void)
{
    use(4, "replay", "any:any:nc=2");
    setenv("LAGOM_SHM_DIR", "/nonexistent/lagom", 1);
    void *context = init(4, 2, 1);
    CHECK(context != NULL);
    CHECK_EQUAL(ask_table(4, context, LAGOM_ALL_GATHER, MIB).channels, 2);
}

/* ---- One reading a node ----------------------------------------------------------------------------------------- */

/* The first process reads `first`, and stays; the second reads `second`, in another mode perhaps. */
static void second_process_gets(const char *first_mode, const char *first, const char *second_mode, const char *second,
                                int channels)
{
    int ready[2];
    char byte;
    CHECK(pipe(ready) == 0);
    pid_t earlier = fork();
    if (earlier == 0) {
        use(4, first_mode, first);
        init(4, 2, 1);
        CHECK(write(ready[1], "r", 1) == 1);
        pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    use(4, second_mode, second);
    void *context = init(4, 2, 1);
    CHECK((context != NULL) == (channels != 0));
    if (context != NULL) {
        CHECK_EQUAL(ask_table(4, context, LAGOM_ALL_GATHER, MIB).channels, channels);
    }
    CHECK(kill(earlier, SIGKILL) == 0 && waitpid(earlier, NULL, 0) == earlier);
}

static void the_first_reading_is_everybodys(void)
{
    second_process_gets("replay", "any:any:nc=3", "replay", "any:any:nc=5", 3);
    CHECK(strstr(map_region()->processes[1].remark, "other size rules") != NULL);
}

static void also_when_it_is_none(void)
{
    second_process_gets("auto", "any:any:nc=3", "replay", "any:any:nc=3", 0);
}

static void also_for_one_that_did_not_ask(void)
{
    second_process_gets("replay", "any:any:nc=3", "auto", "", 3);
}

static void an_equal_reading_is_no_news(void)
{
    second_process_gets("replay", "any:any:nc=3", "replay", "any:any:nc=3 # the same", 3);
    CHECK_EQUAL(map_region()->processes[1].remark[0], 0);
}

static void garbage_in_the_region_is_not_followed(void)
{
    use(4, "replay", "any:any:nc=2");
    CHECK(init(4, 2, 1) != NULL);
    struct lagom_node_rules garbage = map_region()->node_rules;
    CHECK(lagom_node_rules_are_sound(&garbage));
    garbage.rules[0].incumbent.channels = 65;
    CHECK(!lagom_node_rules_are_sound(&garbage));
    garbage = map_region()->node_rules;
    garbage.rule_count = LAGOM_MAX_RULES + 1;
    CHECK(!lagom_node_rules_are_sound(&garbage));
    garbage = map_region()->node_rules;
    garbage.rules[0].function = LAGOM_FUNCTIONS; /* between the last function and any */
    CHECK(!lagom_node_rules_are_sound(&garbage));
    garbage = map_region()->node_rules;
    garbage.rules[0].bytes_min = garbage.rules[0].bytes_max;
    CHECK(lagom_node_rules_are_sound(&garbage));
    garbage.rules[0].bytes_max = 7;
    garbage.rules[0].bytes_min = 8;
    CHECK(!lagom_node_rules_are_sound(&garbage));
}

/* ---- Saved configs --------------------------------------------------------------------------------------------------- */

static bool of_config(const char *text, struct lagom_node_rules *out, char *reason, size_t room)
{
    struct lagom_config_file config;
    CHECK(lagom_config_file_parse(text, strlen(text), &config, reason, room) == 0);
    bool good = lagom_static_rules_from_config(&config, out, reason, room);
    lagom_config_file_free(&config);
    return good;
}

static void rules_of_a_config_go_by_communicator_size(void)
{
    struct lagom_node_rules rules;
    char reason[256];
    CHECK(of_config("lagom-config 1\n"
                     "communicator ranks=8 nodes=1 ordinal=0\nrule allgather 1M - nc=4\nend\n"
                     "communicator ranks=8 nodes=1 ordinal=1\nrule allgather 1M - nc=4\nend\n"
                     "communicator ranks=2 nodes=1 ordinal=0\nrule allgather 0 - nc=2\nend\n"
                     "communicator ranks=16 nodes=2 ordinal=0\nrule allgather 0 - nc=1\nend\n",
                     &rules, reason, sizeof(reason)));
    CHECK_EQUAL(rules.rule_count, 2);
    CHECK_EQUAL(lagom_node_rules_find(&rules, 8, LAGOM_ALL_GATHER, 2 * MIB).channels, 4);
    CHECK_EQUAL(lagom_node_rules_find(&rules, 2, LAGOM_ALL_GATHER, 2 * MIB).channels, 2);
    CHECK_EQUAL(lagom_node_rules_find(&rules, 16, LAGOM_ALL_GATHER, 2 * MIB).channels, 0);
}

static void what_cannot_be_told_apart_is_refused(void)
{
    struct lagom_node_rules rules;
    char reason[256];
    CHECK(!of_config("lagom-config 1\n"
                      "communicator ranks=8 nodes=1 ordinal=0\nrule allgather 1M - nc=4\nend\n"
                      "communicator ranks=8 nodes=1 ordinal=1\nrule allgather 1M - nc=2\nend\n",
                      &rules, reason, sizeof(reason)));
    CHECK(rules.rule_count == 0 && strstr(reason, "one size") != NULL);
    CHECK(!of_config("lagom-config 1\ncommunicator ranks=8 nodes=1 ordinal=0\n"
                      "site 0 allgather 4194304 nc=3\nprogram 0\nend\n",
                      &rules, reason, sizeof(reason)));
    CHECK(strstr(reason, "no size rules") != NULL);
}

static void chunk_and_threads_are_left_out(void)
{
    struct lagom_node_rules rules;
    char reason[256];
    CHECK(lagom_static_rules_from_text("any:any:nc=2,chunk=512K,nt=256", &rules, reason, sizeof(reason)));
    CHECK_EQUAL(lagom_static_rules_restrict(&rules, 4, false), LAGOM_WITHHELD_KNOBS);
    CHECK_EQUAL(lagom_static_rules_restrict(&rules, 4, false), 0);
    struct lagom_config left_over = lagom_node_rules_find(&rules, 8, LAGOM_REDUCE, 5);
    CHECK(left_over.channels == 2 && left_over.chunk_bytes == 0 && left_over.threads == 0);
}

/* Whether the algorithm is one of those always there, or the user has the choice, is told apart. */
static void who_withholds_an_algorithm_is_told(void)
{
    static const char *const plain = "allreduce:any:algo=tree,proto=simple,nc=4";
    static const char *const rare = "any:any:algo=nvls,proto=simple";
    struct lagom_node_rules rules;
    char reason[256];
    CHECK(lagom_static_rules_from_text(plain, &rules, reason, sizeof(reason)));
    CHECK_EQUAL(lagom_static_rules_restrict(&rules, 3, true), 0);
    CHECK_EQUAL(lagom_static_rules_restrict(&rules, 2, false), 0);
    CHECK_EQUAL(lagom_static_rules_restrict(&rules, 2, true), LAGOM_WITHHELD_BY_USER);
    CHECK_EQUAL(lagom_node_rules_find(&rules, 8, LAGOM_ALL_REDUCE, 5).channels, 0);
    CHECK(lagom_static_rules_from_text(rare, &rules, reason, sizeof(reason)));
    CHECK_EQUAL(lagom_static_rules_restrict(&rules, 2, false), LAGOM_WITHHELD_BY_NCCL);
}

static void long_texts_are_refused(void)
{
    static char text[1 << 14];
    struct lagom_node_rules rules;
    char reason[256];
    for (int i = 0; i < 33; i++) {
        strcat(text, "any:any:nc=2;");
    }
    CHECK(!lagom_static_rules_from_text(text, &rules, reason, sizeof(reason)) && rules.rule_count == 0);
    memset(text, 'x', 300);
    text[300] = '\0';
    CHECK(!lagom_static_rules_from_text(text, &rules, reason, sizeof(reason)));
    CHECK(!lagom_static_rules_from_text(" ; # nothing\n ;", &rules, reason, sizeof(reason)));
    CHECK(!lagom_static_rules_from_text("", &rules, reason, sizeof(reason)));
}

/* Bits of rules in any order, of any length: refused with a reason, or rules that could be in a plan. */
static void any_text_is_survived(void)
{
    static const char *const bits[] = {"allgather", "any", ":", ":any:", ">=1M", "<=64K", "1M-16M", "nc=", "nc=4", "chunk=16K",
                                       ",", ";", "#", "\n", " ", "\t", "=", "99999999999999999999", "proto=ll", "\xff"};
    uint64_t state = 88172645463325252ULL;
    int good = 0;
    for (int i = 0; i < 50000; i++) {
        char text[512] = "", reason[128];
        for (int part = 0; part < 1 + i % 24; part++) {
            state ^= state << 13, state ^= state >> 7, state ^= state << 17;
            strcat(text, bits[state % (sizeof(bits) / sizeof(bits[0]))]);
        }
        struct lagom_node_rules rules;
        bool read = lagom_static_rules_from_text(text, &rules, reason, sizeof(reason));
        CHECK(read == (rules.rule_count > 0) && lagom_node_rules_are_sound(&rules));
        CHECK(read || reason[0] != '\0');
        good += read;
    }
    CHECK(good > 0);
}

int main(void)
{
    int failures = RUN(with_a_table_v3) + RUN(with_a_table_v4) + RUN(misses_v3) + RUN(misses_v4);
    failures += RUN(v2_answers_what_every_communicator_has) + RUN(v2_nccl_algo_wins) + RUN(v2_nccl_proto_wins);
    failures += RUN(v2_without_a_context);
    for (int mode = 0; mode < 4; mode++) {
        char number[16];
        snprintf(number, sizeof(number), "%d", mode);
        setenv("TEST_MODE", number, 1);
        failures += RUN(nothing_but_replay_opts_in);
    }
    failures += RUN(several_nodes_are_left_alone) + RUN(another_release_is_left_alone);
    failures += RUN(an_unknown_release_is_left_alone) + RUN(a_job_without_a_name_is_left_alone);
    failures += RUN(wrong_rules_are_none) + RUN(without_a_region_the_own_reading_holds);
    failures += RUN(the_first_reading_is_everybodys) + RUN(also_when_it_is_none) + RUN(also_for_one_that_did_not_ask);
    failures += RUN(an_equal_reading_is_no_news) + RUN(garbage_in_the_region_is_not_followed);
    failures += RUN(rules_of_a_config_go_by_communicator_size) + RUN(what_cannot_be_told_apart_is_refused);
    failures += RUN(chunk_and_threads_are_left_out) + RUN(who_withholds_an_algorithm_is_told) +
                RUN(what_the_user_withholds_is_remarked) + RUN(long_texts_are_refused) + RUN(any_text_is_survived);
    return failures != 0;
}
