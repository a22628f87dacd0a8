/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/folder.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What does not belong in a file name becomes '-', as lagom.settings.log_folder does it. */
static void append_job(char *out, size_t room, const char *job)
{
    size_t used = strlen(out);
    for (; *job != '\0' && used + 1 < room; job++) {
        unsigned char c = (unsigned char)*job;
        out[used++] = (char)(isalnum(c) || strchr("._-", c) != NULL ? c : '-');
    }
    out[used] = '\0';
}

static void append_time(char *out, size_t room, uint64_t created_ns)
{
    time_t seconds = (time_t)(created_ns / 1000000000u);
    struct tm local;
    size_t used = strlen(out);
    if (localtime_r(&seconds, &local) == NULL || strftime(out + used, room - used, "%Y%m%d-%H%M%S", &local) == 0) {
        out[used] = '\0';
    }
}

static void make_absolute(const char *path, char out[PATH_MAX])
{
    char here[PATH_MAX];
    if (path[0] == '/' || getcwd(here, sizeof(here)) == NULL || strlen(here) + strlen(path) + 2 > PATH_MAX) {
        memmove(out, path, strlen(path) + 1);
        return;
    }
    strcat(here, "/");
    strcat(here, path);
    memcpy(out, here, strlen(here) + 1);
}

static unsigned long number_in(const char *variable)
{
    const char *value = getenv(variable);
    return value == NULL || !isdigit((unsigned char)value[0]) ? 0 : strtoul(value, NULL, 10);
}

/* As lagom.environment.count_nodes_told: the first communicator may be one within a node. */
static bool launched_on_several_nodes(void)
{
    static const char *const counts[][2] = {
        {"WORLD_SIZE", "LOCAL_WORLD_SIZE"},
        {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
        {"PMI_SIZE", "MPI_LOCALNRANKS"},
    };
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        unsigned long ranks = number_in(counts[i][0]), of_node = number_in(counts[i][1]);
        if (ranks != 0 && of_node != 0) {
            return ranks > of_node;
        }
    }
    return number_in("SLURM_STEP_NUM_NODES") > 1;
}

static const char node_folder[] = "/node-"; /* lagom.settings.node_folder */

/* What NCCL tells machines apart by. */
static void append_node(char path[PATH_MAX])
{
    char host[HOST_NAME_MAX + 1] = "";
    const char *node = getenv("NCCL_HOSTID");
    if (node == NULL || node[0] == '\0') {
        node = gethostname(host, sizeof(host) - 1) == 0 ? host : "";
    }
    if (node[0] != '\0' && strlen(path) + strlen(node) + sizeof(node_folder) < PATH_MAX) {
        strcat(path, node_folder);
        append_job(path, PATH_MAX, node);
    }
}

void lagom_folder_name(const struct lagom_settings *settings, uint64_t region_created_ns, bool several_nodes,
                       char out[PATH_MAX])
{
    char path[PATH_MAX] = "lagom-";
    if (settings->folder[0] != '\0') {
        snprintf(path, sizeof(path), "%s", settings->folder);
    } else if (settings->job[0] != '\0') {
        append_job(path, sizeof(path), settings->job);
    } else {
        append_time(path, sizeof(path), region_created_ns);
    }
    bool is_named_by_launcher = settings->launcher_tells && settings->folder[0] != '\0'; /* with the node in it */
    if (!is_named_by_launcher && (several_nodes || launched_on_several_nodes())) {
        append_node(path);
    }
    make_absolute(path, out);
}

#define NOT_OPEN_TO_ALL 0775 /* whatever the umask: what lies in there is trusted (shm/ownership.h) */

int lagom_folder_make(const char *folder)
{
    char path[PATH_MAX];
    if (strlen(folder) >= sizeof(path)) {
        return ENAMETOOLONG;
    }
    memcpy(path, folder, strlen(folder) + 1);
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, NOT_OPEN_TO_ALL); /* errors are seen at the last one */
        *slash = '/';
    }
    bool is_there = mkdir(path, NOT_OPEN_TO_ALL) == 0 || errno == EEXIST;
    return is_there && access(path, W_OK | X_OK) == 0 ? 0 : errno;
}
