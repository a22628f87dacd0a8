/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/hardware.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GPUS "/proc/driver/nvidia/gpus"

/* "Model: \t\t NVIDIA H200" -> "NVIDIA H200" */
static void read_model(const char *gpu, char out[LAGOM_NAME_BYTES])
{
    char path[sizeof(GPUS) + NAME_MAX + sizeof("/information") + 1];
    char line[256];
    snprintf(path, sizeof(path), GPUS "/%s/information", gpu);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "Model:", 6) == 0) {
            const char *model = line + 6 + strspn(line + 6, " \t");
            snprintf(out, LAGOM_NAME_BYTES, "%.*s", (int)strcspn(model, "\r\n"), model);
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

void lagom_gpu_name(char out[LAGOM_NAME_BYTES])
{
    char first[NAME_MAX + 1] = ""; /* the smallest PCI address: the same GPU in every rank */
    DIR *gpus = opendir(GPUS);
    const struct dirent *entry;
    out[0] = '\0';
    while (gpus != NULL && (entry = readdir(gpus)) != NULL) {
        if (entry->d_name[0] != '.' && (first[0] == '\0' || strcmp(entry->d_name, first) < 0)) {
            snprintf(first, sizeof(first), "%s", entry->d_name);
        }
    }
    if (gpus != NULL) {
        closedir(gpus);
    }
    if (first[0] != '\0') {
        read_model(first, out);
    }
}

bool lagom_peer_access(void)
{
    const char *disabled = getenv("NCCL_P2P_DISABLE");
    return disabled == NULL || atoi(disabled) == 0;
}

void lagom_job_size(uint32_t *ranks, uint32_t *nodes)
{
    const char *world = getenv("WORLD_SIZE");
    const char *local = getenv("LOCAL_WORLD_SIZE");
    int world_size = world == NULL ? 0 : atoi(world);
    int local_size = local == NULL ? 0 : atoi(local);
    if (world_size > 0) {
        *ranks = (uint32_t)world_size;
    }
    if (world_size > 0 && local_size > 0) {
        *nodes = ((uint32_t)world_size - 1) / (uint32_t)local_size + 1;
    }
}

/* Torch and NCCL load the driver without making its symbols global; one that is not loaded is not loaded here. */
static void *find_in_driver(const char *name)
{
    void *symbol = dlsym(RTLD_DEFAULT, name);
    void *driver = symbol == NULL ? dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) : NULL;
    if (driver != NULL) {
        symbol = dlsym(driver, name);
        dlclose(driver); /* whoever loaded it keeps it */
    }
    return symbol;
}

uint32_t lagom_cuda_device(void)
{
    int (*get_device)(int *device) = NULL;
    int device = -1;
    void *symbol = find_in_driver("cuCtxGetDevice");
    memcpy(&get_device, &symbol, sizeof(symbol));
    bool known = get_device != NULL && get_device(&device) == 0 && device >= 0;
    return known ? (uint32_t)device : LAGOM_UNKNOWN_DEVICE;
}

int lagom_local_rank(void)
{
    static const char *const names[] = {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *value = getenv(names[i]);
        if (value != NULL) {
            return atoi(value);
        }
    }
    return 0;
}
