/* SPDX-License-Identifier: Apache-2.0 */
/* config_parse.c - the saved config and the rules of --set: what is read, what is refused and in which line, and noise. */
#include <stdlib.h>

#include "config/config_text.h"
#include "tests/native/check.h"

static const char *const whole = "# made by hand\n"
                                 "lagom-config 1\n"
                                 "fingerprint nccl 23007\n"
                                 "fingerprint ranks 8   # a remark\n"
                                 "fingerprint nodes 1\n"
                                 "fingerprint p2p 0\n"
                                 "fingerprint simulated 1\n"
                                 "fingerprint gpu \"NVIDIA H200\"\n"
                                 "fingerprint torch 2.13.0\n"
                                 "\n"
                                 "communicator ranks=8 nodes=1 ordinal=0 name=\"default pg\"\r\n"
                                 "  site 0 allgather 436207616 algo=ring proto=simple nc=3 chunk=256K nt=128\n"
                                 "\tsite 1 reducescatter 1M nt=0\n"
                                 "site 2 allgather 2G\n"
                                 "program 0 3x1\n"
                                 "program 2\n"
                                 "rule allgather 1048576 - nc=4\n"
                                 "rule any - 64K proto=ll\n"
                                 "end\n"
                                 "communicator nodes=1 ranks=2 ordinal=5\n"
                                 "rule any - - nc=2\n"
                                 "end";

static struct lagom_config_file config;
static char error[256];

static int parse(const char *text)
{
    error[0] = '\0';
    return lagom_config_file_parse(text, strlen(text), &config, error, sizeof(error));
}

static void the_whole_format_is_read(void)
{
    CHECK_EQUAL(parse(whole), 0);
    const struct lagom_fingerprint *print = &config.fingerprint;
    CHECK(print->nccl_version == 23007 && print->ranks == 8 && print->nodes == 1 && print->p2p == 0);
    CHECK_EQUAL(print->simulated, 1);
    CHECK(strcmp(print->gpu, "NVIDIA H200") == 0);
    CHECK_EQUAL(config.section_count, 2);
    const struct lagom_config_section *section = &config.sections[0];
    CHECK(section->rank_count == 8 && section->node_count == 1 && strcmp(section->name, "default pg") == 0);
    const struct lagom_plan *plan = &section->content;
    CHECK(plan->site_count == 3 && plan->position_count == 5 && plan->rule_count == 2);
    const struct lagom_config wanted = {LAGOM_RING, LAGOM_SIMPLE, 3, 128, 0, 262144};
    CHECK(same_config(plan->sites[0].incumbent, wanted) && same_config(plan->sites[0].candidate, wanted));
    CHECK(plan->sites[0].function == LAGOM_ALL_GATHER && plan->sites[0].bytes == 436207616);
    CHECK(plan->sites[1].bytes == MIB && same_config(plan->sites[1].incumbent, STOCK));
    CHECK_EQUAL(plan->sites[2].bytes, 2ull << 30);
    const uint16_t positions[] = {0, 1, 1, 1, 2};
    CHECK(memcmp(plan->positions, positions, sizeof(positions)) == 0);
    CHECK(plan->rules[0].bytes_min == MIB && plan->rules[0].bytes_max == UINT64_MAX &&
          plan->rules[0].incumbent.channels == 4);
    CHECK(plan->rules[1].function == LAGOM_ANY_FUNCTION && plan->rules[1].bytes_min == 0 &&
          plan->rules[1].bytes_max == 65536);
    CHECK(config.sections[1].ordinal == 5 && config.sections[1].name[0] == '\0');
    lagom_config_file_free(&config);
    CHECK(config.section_count == 0 && config.sections == NULL);
}

static void check_refused(uint32_t line, const char *text, const char *because)
{
    char beginning[32];
    snprintf(beginning, sizeof(beginning), "line %u: ", line);
    CHECK_EQUAL(parse(text), -1);
    if (strncmp(error, beginning, strlen(beginning)) != 0 || strstr(error, because) == NULL) {
        fprintf(stderr, "\"%s\" is not \"%s... %s ...\"\n", error, beginning, because);
        exit(1);
    }
    CHECK(error[strlen(error) - 1] == '.' && config.sections == NULL && config.section_count == 0);
}

#define TITLE "lagom-config 1\n"
#define COMM TITLE "communicator ranks=2 nodes=1 ordinal=0\n"

static void the_title(void)
{
    check_refused(0, "", "empty");
    check_refused(2, "\n# nothing else", "empty");
    check_refused(1, "fingerprint ranks 8\n", "no saved config");
    check_refused(1, "lagom-config one\n", "no saved config");
    check_refused(1, "lagom-config 2\n", "format 2");
    check_refused(1, "lagom-config 0\n", "format 0");
    check_refused(1, "lagom-config 1 2\n", "too many");
    check_refused(1, "lagom-profile 1\n", "no saved config");
    CHECK(parse(TITLE) == 0);
}

/* What a process tells of its variables. */
static void the_digest(void)
{
    uint8_t before[LAGOM_START_SETTINGS], after[LAGOM_START_SETTINGS];
    CHECK(lagom_environment_value_digest(NULL) == 0 && lagom_environment_value_digest("") == 0);
    CHECK(lagom_environment_value_digest("4") != 0);
    CHECK(lagom_environment_value_digest("4") != lagom_environment_value_digest("8"));
    unsetenv("NCCL_SOCKET_NTHREADS");
    lagom_environment_digest(before);
    setenv("NCCL_SOCKET_NTHREADS", "4", 1);
    lagom_environment_digest(after);
    unsetenv("NCCL_SOCKET_NTHREADS");
    uint32_t changed = 0;
    for (uint32_t i = 0; i < LAGOM_START_SETTINGS; i++) {
        changed += before[i] != after[i];
        CHECK(before[i] == after[i] || (before[i] == 0 && after[i] == lagom_environment_value_digest("4")));
    }
    CHECK_EQUAL(changed, 1);
}

static void the_fingerprint(void)
{
    check_refused(2, TITLE "fingerprint ranks\n", "a key and a value");
    check_refused(2, TITLE "fingerprint ranks eight\n", "no value");
    check_refused(2, TITLE "fingerprint p2p 2\n", "no value");
    check_refused(2, TITLE "fingerprint simulated 2\n", "no value");
    check_refused(2, TITLE "fingerprint simulated yes\n", "no value");
    check_refused(2, TITLE "fingerprint nccl 99999999999\n", "no value");
    check_refused(2, TITLE "fingerprint ranks 8 9\n", "too many");
    check_refused(2, TITLE "fingerprint gpu \"a\"b\"\n", "no value");
    check_refused(3, COMM "fingerprint ranks 8\n", "before the first");
    check_refused(2, TITLE "colour blue\n", "no word of a saved config");
    check_refused(2, TITLE "site 0 allgather 1M\n", "no word of a saved config");
}

static void the_environment(void)
{
    CHECK_EQUAL(parse(TITLE "environment NCCL_MIN_NCHANNELS 32\nenvironment NCCL_ALGO \"^NVLS, TREE\" # why\n"), 0);
    CHECK_EQUAL(config.environment_count, 2);
    CHECK(strcmp(config.environment[0].name, "NCCL_MIN_NCHANNELS") == 0);
    CHECK(strcmp(config.environment[0].value, "32") == 0 && strcmp(config.environment[1].value, "^NVLS, TREE") == 0);
    lagom_config_file_free(&config);
    check_refused(2, TITLE "environment LD_PRELOAD /tmp/evil.so\n", "no variable that a saved config may ask for");
    check_refused(2, TITLE "environment NCCL_TUNER_PLUGIN /tmp/evil.so\n", "no variable");
    check_refused(2, TITLE "environment NCCL_MIN_NCHANNELS\n", "a variable and its value");
    check_refused(2, TITLE "environment NCCL_MIN_NCHANNELS \"\"\n", "no value");
    check_refused(2, TITLE "environment NCCL_MIN_NCHANNELS \x1b[2J\n", "no value");
    check_refused(2, TITLE "environment NCCL_MIN_NCHANNELS 1 2\n", "too many");
    check_refused(3, TITLE "environment NCCL_PROTO LL\nenvironment NCCL_PROTO LL\n", "twice");
    check_refused(3, TITLE "communicator ranks=2 nodes=1 ordinal=0\nenvironment NCCL_PROTO LL\n", "before the first");
}

static const char *words(enum lagom_saved_config cause, const struct lagom_refusal *refusal)
{
    static char text[256];
    lagom_refusal_text(cause, refusal, text, sizeof(text));
    return text;
}

static void the_environment_is_compared(void)
{
    static const struct lagom_environment wanted[] = {{"NCCL_MIN_NCHANNELS", "32"}, {"NCCL_BUFFSIZE", "1048576"}};
    struct lagom_refusal refusal;
    unsetenv("NCCL_BUFFSIZE");
    setenv("NCCL_MIN_NCHANNELS", "32", 1);
    CHECK_EQUAL(lagom_environment_compare(wanted, 1, &refusal), LAGOM_SAVED_CONFIG_FITS);
    CHECK_EQUAL(lagom_environment_compare(wanted, 0, &refusal), LAGOM_SAVED_CONFIG_FITS);
    CHECK_EQUAL(lagom_environment_compare(wanted, 2, &refusal), LAGOM_SAVED_CONFIG_OTHER_SETTING);
    CHECK_TEXT(refusal.setting, "NCCL_BUFFSIZE");
    CHECK_TEXT(refusal.here, "");
    CHECK_TEXT(words(LAGOM_SAVED_CONFIG_OTHER_SETTING, &refusal), "made with NCCL_BUFFSIZE=1048576, which is not set here");
    setenv("NCCL_MIN_NCHANNELS", "24", 1);
    CHECK_EQUAL(lagom_environment_compare(wanted, 2, &refusal), LAGOM_SAVED_CONFIG_OTHER_SETTING);
    CHECK_TEXT(words(LAGOM_SAVED_CONFIG_OTHER_SETTING, &refusal), "made with NCCL_MIN_NCHANNELS=32, here it is 24");
    unsetenv("NCCL_MIN_NCHANNELS");
}

static void the_sections(void)
{
    check_refused(2, TITLE "communicator ranks=2 nodes=1\n", "needs");
    check_refused(2, TITLE "communicator ranks=2 nodes=1 ordinal=0 ranks=3\n", "each once");
    check_refused(2, TITLE "communicator ranks=two nodes=1 ordinal=0\n", "not one of");
    check_refused(2, TITLE "communicator ranks=2 nodes=1 ordinal=0 size=4\n", "not one of");
    check_refused(2, COMM, "no end");
    check_refused(3, COMM "communicator ranks=2 nodes=1 ordinal=1\n", "no end");
    check_refused(3, COMM "colour blue\nend\n", "no word of a communicator");
    check_refused(3, COMM "end of it\n", "too many");
    char text[4096] = TITLE;
    for (int i = 0; i < 17; i++) {
        strcat(text, "communicator ranks=2 nodes=1 ordinal=0\nend\n");
    }
    check_refused(34, text, "more than 16");
}

static void the_sites(void)
{
    check_refused(3, COMM "site 1 allgather 1M\n", "would be 0");
    check_refused(3, COMM "site 0 gather 1M\n", "function");
    check_refused(3, COMM "site 0 any 1M\n", "function");
    check_refused(3, COMM "site 0 allgather\n", "size");
    check_refused(3, COMM "site 0 allgather -1\n", "size");
    check_refused(3, COMM "site 0 allgather 1T\n", "size");
    check_refused(3, COMM "site 0 allgather 17179869184G\n", "size");
    check_refused(3, COMM "site 0 allgather 99999999999999999999\n", "size");
    check_refused(3, COMM "site 0 allgather 1M nc\n", "name=value");
    check_refused(3, COMM "site 0 allgather 1M nc=65\n", "1 to 64");
    check_refused(3, COMM "site 0 allgather 1M nc=4 nc=5\n", "twice");
    check_refused(3, COMM "site 0 allgather 1M nt=100\n", "multiple of 32");
    check_refused(3, COMM "site 0 allgather 1M chunk=1\n", "16K");
    check_refused(3, COMM "site 0 allgather 1M chunk=4G\n", "16K");
    check_refused(3, COMM "site 0 allgather 1M algo=star\n", "algo is");
    check_refused(3, COMM "site 0 allgather 1M proto=tcp\n", "proto is");
    check_refused(3, COMM "site 0 allgather 1M speed=9\n", "the knobs are");
    check_refused(5, COMM "site 0 allgather 1M\nprogram 0\nsite 1 allgather 2M\n", "before the program");
}

static void the_program(void)
{
    check_refused(4, COMM "site 0 allgather 1M\nprogram 1\n", "none of the 1");
    check_refused(4, COMM "site 0 allgather 1M\nprogram x0\n", "none of");
    check_refused(4, COMM "site 0 allgather 1M\nprogram 0x0\n", "none of");
    check_refused(4, COMM "site 0 allgather 1M\nprogram 4097x0\n", "none of");
    check_refused(5, COMM "site 0 allgather 1M\nprogram 4096x0\nprogram 0\n", "more than 4096");
    check_refused(5, COMM "site 0 allgather 1K\nprogram 0\nend\n", "do not advance");
    CHECK_EQUAL(parse(COMM "site 0 allgather 1M\nprogram 4096x0\nend\n"), 0);
    lagom_config_file_free(&config);
}

static void the_rules(void)
{
    check_refused(3, COMM "rule all - - nc=1\n", "function");
    check_refused(3, COMM "rule any -\n", "sizes");
    check_refused(3, COMM "rule any 2M 1M\n", "sizes");
    check_refused(3, COMM "rule any - - nc=1,nt=64\n", "1 to 64");
}

static void a_zero_byte_is_refused(void)
{
    char text[] = TITLE "fingerprint ranks 8?\n";
    text[strlen(text) - 2] = '\0';
    CHECK_EQUAL(lagom_config_file_parse(text, sizeof(text) - 1, &config, error, sizeof(error)), -1);
    CHECK(strstr(error, "line 2: ") == error && strstr(error, "zero byte") != NULL);
}

/* Every beginning of a good saved config, and every good saved config with bytes changed: never a crash, never half a result. */
static void noise_is_survived(void)
{
    size_t length = strlen(whole);
    uint64_t seed = 77;
    for (size_t cut = 0; cut < length; cut++) {
        char *copy = malloc(cut + 1); /* exactly as long, so that the sanitizer sees one byte too far */
        memcpy(copy, whole, cut);
        int parsed = lagom_config_file_parse(copy, cut, &config, error, sizeof(error));
        CHECK((parsed == 0) || config.sections == NULL);
        lagom_config_file_free(&config);
        free(copy);
    }
    for (int round = 0; round < 20000; round++) {
        char *copy = malloc(length);
        memcpy(copy, whole, length);
        for (uint64_t changes = 1 + next_random(&seed) % 6; changes > 0; changes--) {
            copy[next_random(&seed) % length] = (char)next_random(&seed);
        }
        if (lagom_config_file_parse(copy, length, &config, error, 8) == 0) {
            for (uint32_t i = 0; i < config.section_count; i++) {
                CHECK_EQUAL(lagom_plan_check_content(&config.sections[i].content), LAGOM_PLAN_SOUND);
            }
        } else {
            CHECK(config.sections == NULL && memchr(error, '\0', 8) != NULL);
        }
        lagom_config_file_free(&config);
        free(copy);
    }
}

static void files(void)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/config.%d", getenv("LAGOM_SHM_DIR") != NULL ? getenv("LAGOM_SHM_DIR") : "/tmp",
             getpid());
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(whole, file) >= 0 && fclose(file) == 0);
    CHECK_EQUAL(lagom_config_file_load(path, &config, error, sizeof(error)), 0);
    CHECK_EQUAL(config.section_count, 2);
    lagom_config_file_free(&config);
    CHECK(truncate(path, (4 << 20) + 1) == 0);
    CHECK_EQUAL(lagom_config_file_load(path, &config, error, sizeof(error)), -1);
    CHECK(strstr(error, "at most 4 MiB") != NULL);
    CHECK(truncate(path, 0) == 0);
    CHECK_EQUAL(lagom_config_file_load(path, &config, error, sizeof(error)), -1);
    unlink(path);
    CHECK_EQUAL(lagom_config_file_load(path, &config, error, sizeof(error)), -1);
    CHECK_EQUAL(lagom_config_file_load("/", &config, error, sizeof(error)), -1);
    CHECK(strstr(error, "not a readable file") != NULL);
}

static void expect_refused(const struct lagom_fingerprint *here, enum lagom_saved_config cause, const char *clause)
{
    struct lagom_refusal refusal;
    CHECK_EQUAL(lagom_fingerprint_compare(&config.fingerprint, here, &refusal), cause);
    if (cause != LAGOM_SAVED_CONFIG_FITS) {
        CHECK_TEXT(words(cause, &refusal), clause);
    }
}

static void what_does_not_fit_is_said(void)
{
    struct lagom_fingerprint here = {.nccl_version = 23007, .ranks = 8, .nodes = 1, .p2p = 0, .gpu = "NVIDIA H200"};
    CHECK_EQUAL(parse(whole), 0);
    expect_refused(&here, LAGOM_SAVED_CONFIG_SIMULATED, "made in a simulated job, this job is real");
    here.simulated = 1;
    expect_refused(&here, LAGOM_SAVED_CONFIG_FITS, "");
    here.simulated = config.fingerprint.simulated = 0;
    expect_refused(&here, LAGOM_SAVED_CONFIG_FITS, "");
    here.simulated = 1; /* which may try a real one's */
    expect_refused(&here, LAGOM_SAVED_CONFIG_FITS, "");
    here.p2p = -1; /* not known here: not compared */
    expect_refused(&here, LAGOM_SAVED_CONFIG_FITS, "");
    here.p2p = 1;
    expect_refused(&here, LAGOM_SAVED_CONFIG_OTHER_PEER_ACCESS, "made without GPU peer access, this job runs with it");
    here.p2p = 0;
    here.ranks = 4;
    expect_refused(&here, LAGOM_SAVED_CONFIG_OTHER_RANKS, "made for 8 ranks, this job has 4");
    config.fingerprint.ranks = 0;
    expect_refused(&here, LAGOM_SAVED_CONFIG_FITS, "");
    here.nodes = 2;
    expect_refused(&here, LAGOM_SAVED_CONFIG_OTHER_NODES, "made for 1 node, this job has 2");
    here.nodes = 1;
    here.nccl_version = 22809;
    expect_refused(&here, LAGOM_SAVED_CONFIG_OTHER_NCCL, "made for NCCL 2.30.7, this job runs NCCL 2.28.9");
    here.nccl_version = 23007;
    strcpy(here.gpu, "NVIDIA A40");
    expect_refused(&here, LAGOM_SAVED_CONFIG_OTHER_GPU, "made on NVIDIA H200, this GPU is NVIDIA A40");
    here.gpu[0] = '\0';
    expect_refused(&here, LAGOM_SAVED_CONFIG_OTHER_GPU, "made on NVIDIA H200, this GPU is not known");
    lagom_config_file_free(&config);
}

static void the_section_of_a_communicator(void)
{
    CHECK_EQUAL(parse(whole), 0);
    const struct lagom_config_section *first = &config.sections[0];
    CHECK(lagom_config_file_section_for(&config, 8, 1, 0, "default pg") == first);
    CHECK(lagom_config_file_section_for(&config, 8, 1, 0, "") == first &&
          lagom_config_file_section_for(&config, 8, 1, 0, NULL) == first);
    CHECK(lagom_config_file_section_for(&config, 8, 1, 0, "other") == NULL);
    CHECK(lagom_config_file_section_for(&config, 8, 1, 1, "default pg") == NULL);
    CHECK(lagom_config_file_section_for(&config, 2, 1, 5, "whatever") == &config.sections[1]);
    CHECK(lagom_config_file_section_for(&config, 2, 2, 5, NULL) == NULL);
    lagom_config_file_free(&config);
}

static struct lagom_rule rule(const char *text)
{
    struct lagom_rule out;
    if (lagom_rule_parse(text, &out, error, sizeof(error)) != 0) {
        fprintf(stderr, "%s: %s\n", text, error);
        exit(1);
    }
    return out;
}

static void rules_of_the_command_line(void)
{
    struct lagom_rule out = rule("allgather:>=1M:nc=4,chunk=512K,nt=256");
    const struct lagom_config wanted = {LAGOM_LEAVE, LAGOM_LEAVE, 4, 256, 0, 524288};
    CHECK(out.function == LAGOM_ALL_GATHER && out.bytes_min == MIB && out.bytes_max == UINT64_MAX);
    CHECK(same_config(out.incumbent, wanted) && same_config(out.candidate, wanted));
    out = rule("any:1M-16M:algo=nvls_tree,proto=simple");
    CHECK(out.function == LAGOM_ANY_FUNCTION && out.bytes_min == MIB && out.bytes_max == 16 * MIB);
    CHECK(out.incumbent.algorithm == LAGOM_NVLS_TREE && out.incumbent.protocol == LAGOM_SIMPLE);
    out = rule("reduce:<=64K:nc=1");
    CHECK(out.bytes_min == 0 && out.bytes_max == 65536);
    out = rule("allreduce:=436207616:nc=1");
    CHECK(out.bytes_min == 436207616 && out.bytes_max == 436207616);
    out = rule("broadcast:any:nc=1");
    CHECK(out.bytes_min == 0 && out.bytes_max == UINT64_MAX);
}

static void bad_rules_are_refused(void)
{
    static const char *const bad[] = {"",
                                      ":",
                                      "::",
                                      "allgather",
                                      "allgather:nc=4",
                                      "allgather:>=1M:",
                                      "gather:any:nc=4",
                                      "any:>1M:nc=4",
                                      "any:16M-1M:nc=4",
                                      "any:1M-:nc=4",
                                      "any:>=:nc=4",
                                      "any:any:nc=4,",
                                      "any:any:nc=4,,nt=64",
                                      "any:any:nc=4;nt=64",
                                      "any:any:nc=-1",
                                      "any:any:nc= 4",
                                      "any:any:nc=4:nt=64",
                                      "any:any:nc=99",
                                      "any:=1M2:nc=4",
                                      "ANY:any:nc=4"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct lagom_rule out = {.bytes_min = 7};
        CHECK_EQUAL(lagom_rule_parse(bad[i], &out, error, sizeof(error)), -1);
        CHECK(out.bytes_min == 7 && strstr(error, "as in") != NULL);
    }
}

int main(void)
{
    RUN(the_whole_format_is_read);
    RUN(the_title);
    RUN(the_digest);
    RUN(the_fingerprint);
    RUN(the_environment);
    RUN(the_environment_is_compared);
    RUN(the_sections);
    RUN(the_sites);
    RUN(the_program);
    RUN(the_rules);
    RUN(a_zero_byte_is_refused);
    RUN(noise_is_survived);
    RUN(files);
    RUN(what_does_not_fit_is_said);
    RUN(the_section_of_a_communicator);
    RUN(rules_of_the_command_line);
    RUN(bad_rules_are_refused);
    return 0;
}
