/* SPDX-License-Identifier: Apache-2.0 */
/* environment.c - any environment: the job's name, the region's path, the plugin's settings, the log folder's name.
 *
 * Input: lines NAME=value, NAME being one of those Lagom reads. Everything that comes out is a string that fits.
 */
#include "text.h"

#include <unistd.h>

#include "shm/job_key.h"
#include "shm/region.h"
#include "tuner_plugin/folder.h"
#include "tuner_plugin/hardware.h"
#include "tuner_plugin/settings.h"

static const char *const variables[] = {
    "LAGOM_JOB_ID",       "LAGOM_SHM_DIR",      "LAGOM_DIR",
    "LAGOM_MODE",         "LAGOM_NT",           "LAGOM_CONTROLLER",
    "LAGOM_CLOCK",        "LAGOM_TIMELINE",     "LAGOM_LOG_LEVEL",
    "LAGOM_CONFIG",       "LAGOM_PYTHON",       "TORCHELASTIC_RUN_ID",
    "MASTER_ADDR",        "MASTER_PORT",        "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_ID",       "SLURM_STEP_ID",      "SLURM_HET_GROUP_ID",
    "SLURM_RESTART_COUNT", "PMIX_NAMESPACE",    "PMI_JOBID",
    "NCCL_HOSTID",        "WORLD_SIZE",         "LOCAL_WORLD_SIZE",
    "LOCAL_RANK",         "SLURM_LOCALID",      "OMPI_COMM_WORLD_LOCAL_RANK",
    "NCCL_P2P_DISABLE",   "SLURM_NTASKS",       "SLURM_NNODES",
};
#define VARIABLES (sizeof(variables) / sizeof(variables[0]))

static void set_line(char *line)
{
    char *value = strchr(line, '=');
    for (size_t i = 0; value != NULL && i < VARIABLES; i++) {
        if (strncmp(line, variables[i], (size_t)(value - line)) == 0 && variables[i][value - line] == '\0') {
            setenv(variables[i], value + 1, 1);
        }
    }
}

static void set_environment(const uint8_t *data, size_t size)
{
    char *text = calloc(size + 1, 1);
    memcpy(text, size > 0 ? (const void *)data : "", size);
    for (size_t i = 0; i < VARIABLES; i++) {
        unsetenv(variables[i]);
    }
    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        set_line(line);
    }
    free(text);
}

static void name_job(void)
{
    char *key = malloc(LAGOM_PATH_BYTES), *again = malloc(LAGOM_PATH_BYTES), *path = malloc(LAGOM_PATH_BYTES);
    int named = lagom_job_key(key, 0);
    EXPECT(strnlen(key, LAGOM_PATH_BYTES) < LAGOM_PATH_BYTES && (named != 0) == (key[0] != '\0'));
    EXPECT(lagom_job_key(key, 0xabcdef) == 1 && lagom_job_key(again, 0xabcdef) == 1 && strcmp(key, again) == 0);
    EXPECT(strstr(key, "uid=") != NULL && strstr(key, "host=") != NULL); /* never cut off by a long name */
    bool whole = lagom_region_path(key, path);
    EXPECT(strnlen(path, LAGOM_PATH_BYTES) < LAGOM_PATH_BYTES && whole == (strstr(path, "/lagom-") != NULL));
    free(key);
    free(again);
    free(path);
}

static void name_folder(void)
{
    struct lagom_settings *settings = malloc(sizeof(*settings));
    char *folder = malloc(PATH_MAX);
    lagom_settings_read(settings);
    EXPECT(strlen(lagom_mode_name(settings->mode)) > 2);
    EXPECT(settings->mode_understood || settings->mode == LAGOM_MODE_OFF);
    for (int several = 0; several < 2; several++) {
        lagom_folder_name(settings, 1763600000000000000u, several != 0, folder);
        EXPECT(strnlen(folder, PATH_MAX) < PATH_MAX && folder[0] != '\0');
    }
    free(folder);
    free(settings);
}

static void read_sizes(void)
{
    char gpu[LAGOM_NAME_BYTES];
    uint32_t ranks = 8, nodes = 1;
    lagom_job_size(&ranks, &nodes);
    lagom_local_rank();
    lagom_peer_access();
    lagom_gpu_name(gpu);
    EXPECT(ranks > 0 && nodes > 0 && strnlen(gpu, sizeof(gpu)) < sizeof(gpu));
}

void fuzz_environment(const uint8_t *data, size_t size)
{
    set_environment(data, size);
    name_job();
    name_folder();
    read_sizes();
}
