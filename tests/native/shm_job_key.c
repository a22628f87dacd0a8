/* SPDX-License-Identifier: Apache-2.0 */
/* shm_job_key.c - the name of a job: the same words, the same name; the order of preference; nothing two jobs share. */
#include <errno.h>

#include "shm/job_key.h"
#include "tests/native/check.h"

static const char *const names[] = {
    "LAGOM_JOB_ID", "TORCHELASTIC_RUN_ID", "MASTER_ADDR",        "MASTER_PORT",         "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID", "SLURM_STEP_ID",       "SLURM_HET_GROUP_ID", "SLURM_RESTART_COUNT", "PMIX_NAMESPACE",
    "PMI_JOBID",    "NCCL_HOSTID",
};

static void clear(void)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsetenv(names[i]);
    }
}

static void check_begins(const char *beginning)
{
    char key[LAGOM_PATH_BYTES];
    CHECK(lagom_job_key(key, 0x1234));
    if (strncmp(key, beginning, strlen(beginning)) != 0) {
        fprintf(stderr, "\"%s\" does not begin with \"%s\"\n", key, beginning);
        exit(1);
    }
}

static void nothing_known_is_no_name(void)
{
    char key[LAGOM_PATH_BYTES];
    clear();
    CHECK_EQUAL(lagom_job_key(key, 0), 0);
    CHECK(key[0] == '\0');
    check_begins("comm.0000000000001234 ");
}

/* From the weakest to the strongest: each one set later takes over. */
static void the_order_of_preference(void)
{
    clear();
    setenv("MASTER_ADDR", "host", 1);
    setenv("MASTER_PORT", "29500", 1);
    check_begins("master.host.29500 ");
    setenv("PMI_JOBID", "p1", 1);
    check_begins("pmi.p1 ");
    setenv("PMIX_NAMESPACE", "ns", 1);
    check_begins("pmix.ns ");
    setenv("SLURM_JOB_ID", "77", 1);
    check_begins("pmix.ns "); /* a job without a step is not enough */
    setenv("SLURM_STEP_ID", "0", 1);
    check_begins("slurm.77.0 ");
    setenv("SLURM_HET_GROUP_ID", "1", 1);
    check_begins("slurm.77.0.1 ");
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    check_begins("elastic.none.host.29500 ");
    setenv("TORCHELASTIC_RESTART_COUNT", "2", 1);
    check_begins("elastic.none.host.29500.2 ");
    setenv("LAGOM_JOB_ID", "mine", 1);
    check_begins("lagom.mine ");
    setenv("LAGOM_JOB_ID", "", 1);
    check_begins("elastic.");
}

static void nodes_on_one_host_differ(void)
{
    char first[LAGOM_PATH_BYTES], second[LAGOM_PATH_BYTES];
    clear();
    setenv("LAGOM_JOB_ID", "j", 1);
    setenv("NCCL_HOSTID", "node0", 1);
    CHECK(lagom_job_key(first, 0) && strstr(first, "host=node0") != NULL);
    setenv("NCCL_HOSTID", "node1", 1);
    CHECK(lagom_job_key(second, 0) && strcmp(first, second) != 0);
}

/* Long words are cut with a hash in the place of the rest, and the key stays within its room. */
static void long_words_stay_apart(void)
{
    char word[2000], first[LAGOM_PATH_BYTES], second[LAGOM_PATH_BYTES];
    clear();
    memset(word, 'w', sizeof(word));
    word[1999] = '\0';
    setenv("LAGOM_JOB_ID", word, 1);
    setenv("NCCL_HOSTID", word, 1);
    CHECK(lagom_job_key(first, 0) && strlen(first) < LAGOM_PATH_BYTES && strstr(first, " host=") != NULL);
    word[1500] = 'x';
    setenv("LAGOM_JOB_ID", word, 1);
    CHECK(lagom_job_key(second, 0) && strcmp(first, second) != 0);
}

/* A job may be started with anything in its variables. What is beyond the room for the words is written nowhere: beyond it lies
 * the address to return to, so that such a write is seen without a sanitizer too. */
static void words_beyond_their_room_are_cut(void)
{
    char word[8192], key[LAGOM_PATH_BYTES];
    clear();
    memset(word, 'w', sizeof(word));
    word[sizeof(word) - 1] = '\0';
    setenv("MASTER_PORT", word, 1);
    word[4000] = '\0';
    setenv("MASTER_ADDR", word, 1);
    CHECK(lagom_job_key(key, 0) && strlen(key) < LAGOM_PATH_BYTES && strncmp(key, "master.www", 10) == 0);
}

static void the_path_is_short_and_plain(void)
{
    char path[LAGOM_PATH_BYTES], other[LAGOM_PATH_BYTES];
    setenv("LAGOM_SHM_DIR", "/tmp/x", 1);
    lagom_region_path("a key with / and spaces", path);
    lagom_region_path("another", other);
    CHECK(strncmp(path, "/tmp/x/lagom-", 13) == 0 && strcmp(path, other) != 0);
    CHECK(strchr(path + 7, '/') == NULL && strchr(path, ' ') == NULL);
    unsetenv("LAGOM_SHM_DIR");
    lagom_region_path("another", other);
    CHECK(strncmp(other, "/dev/shm/lagom-", 15) == 0);
}

/* Cut short it would be another job's, or no region's at all. */
static void a_folder_too_long_for_a_path_is_refused(void)
{
    char folder[LAGOM_PATH_BYTES], path[LAGOM_PATH_BYTES] = "left over";
    struct lagom_mapping mapping;
    memset(folder, 'x', sizeof(folder));
    memcpy(folder, "/tmp/", 5);
    folder[LAGOM_PATH_BYTES - 1] = '\0';
    setenv("LAGOM_SHM_DIR", folder, 1);
    CHECK(!lagom_region_path("job", path) && path[0] == '\0');
    CHECK_EQUAL(lagom_region_join(&mapping, "job", LAGOM_CLOCK_MONOTONIC), LAGOM_REGION_SYSTEM);
    CHECK(mapping.region == NULL && mapping.error == ENAMETOOLONG);
    unsetenv("LAGOM_SHM_DIR");
}

static void hashes_are_fnv(void)
{
    CHECK_EQUAL(lagom_hash_text(""), 0xcbf29ce484222325ULL); /* the two published test values of FNV-1a 64 */
    CHECK_EQUAL(lagom_hash_text("a"), 0xaf63dc4c8601ec8cULL);
    CHECK(lagom_boot_hash() == lagom_boot_hash());
}

int main(void)
{
    RUN(nothing_known_is_no_name);
    RUN(the_order_of_preference);
    RUN(nodes_on_one_host_differ);
    RUN(long_words_stay_apart);
    RUN(words_beyond_their_room_are_cut);
    RUN(the_path_is_short_and_plain);
    RUN(a_folder_too_long_for_a_path_is_refused);
    RUN(hashes_are_fnv);
    return 0;
}
