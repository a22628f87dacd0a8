/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/cupti_loader.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "protocol/lagom_protocol.h"
#include "shm/ownership.h"

#define OLDEST_VERSION 18u /* CUDA 12.0 */

static const char *const file_names[] = {"libcupti.so.13", "libcupti.so.12"};
#define FILE_NAMES (sizeof(file_names) / sizeof(file_names[0]))

/* Where a copy lies, seen from the folder of a library that uses it: torch's wheels, and NVIDIA's own packages. */
static const char *const folders[] = {
    "../../nvidia/cu13/lib", "../../nvidia/cuda_cupti/lib", "../../cuda_cupti/lib", "../../cu13/lib",
    ".",                     "../extras/CUPTI/lib64",       "../../../extras/CUPTI/lib64"};

/* ---- Which file ------------------------------------------------------------------------------------------------- */

static void *loaded_already(void)
{
    void *library = NULL;
    for (size_t i = 0; i < FILE_NAMES && library == NULL; i++) {
        library = dlopen(file_names[i], RTLD_LAZY | RTLD_NOLOAD);
    }
    return library;
}

struct cupti_search {
    int major; /* of the CUDA runtime that is loaded; 0 = none */
    void *found;
};

static bool fits(const struct cupti_search *search, const char *file)
{
    char ending[8];
    snprintf(ending, sizeof(ending), ".so.%d", search->major);
    return search->major == 0 || strstr(file, ending) != NULL;
}

/* Two and three folders up may be a place where anybody can put a file. */
static void *open_guarded(const char *path, const char *neighbour)
{
    char why[LAGOM_PATH_BYTES];
    return lagom_path_is_guarded(path, neighbour, why, sizeof(why)) ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
}

static void look_beside(struct cupti_search *search, const char *neighbour)
{
    char path[PATH_MAX];
    int folder = (int)(strrchr(neighbour, '/') - neighbour);
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        for (size_t j = 0; j < FILE_NAMES && search->found == NULL; j++) {
            int length = snprintf(path, sizeof(path), "%.*s/%s/%s", folder, neighbour, folders[i], file_names[j]);
            if (length < (int)sizeof(path) && fits(search, file_names[j])) {
                search->found = open_guarded(path, neighbour);
            }
        }
    }
}

static int note_runtime(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct cupti_search *search = argument;
    const char *name = strstr(info->dlpi_name, "libcudart.so.");
    if (name != NULL && search->major == 0) {
        sscanf(name, "libcudart.so.%d", &search->major);
    }
    return 0;
}

/* Opening inside dl_iterate_phdr would take the loader's lock twice: the libraries are collected first. */
struct neighbours {
    char library[4][PATH_MAX];
    size_t count;
};

static int note_neighbour(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    struct neighbours *neighbours = argument;
    bool uses_cupti = strstr(info->dlpi_name, "/libtorch_c") != NULL || strstr(info->dlpi_name, "/libcudart") != NULL;
    if (uses_cupti && neighbours->count < 4 && strlen(info->dlpi_name) < PATH_MAX) {
        snprintf(neighbours->library[neighbours->count++], PATH_MAX, "%s", info->dlpi_name);
    }
    return 0;
}

static void *find(void)
{
    static struct neighbours neighbours; /* 16 KiB: not on a stack of unknown size */
    struct cupti_search search = {.found = loaded_already()};
    if (search.found != NULL) {
        return search.found;
    }
    dl_iterate_phdr(note_runtime, &search);
    neighbours.count = 0;
    dl_iterate_phdr(note_neighbour, &neighbours);
    for (size_t i = 0; i < neighbours.count; i++) {
        look_beside(&search, neighbours.library[i]);
    }
    for (size_t i = 0; i < FILE_NAMES && search.found == NULL; i++) {
        search.found = fits(&search, file_names[i]) ? dlopen(file_names[i], RTLD_LAZY | RTLD_LOCAL) : NULL;
    }
    return search.found;
}

/* ---- Its functions ---------------------------------------------------------------------------------------------- */

/* POSIX makes this conversion work; ISO C has no cast for it. */
static bool symbol(void *library, const char *name, void *function, const char **missing)
{
    void *address = dlsym(library, name);
    memcpy(function, &address, sizeof(address));
    if (address == NULL && *missing == NULL) {
        *missing = name;
    }
    return address != NULL;
}

static const char *find_functions(struct lagom_cupti *cupti)
{
    const char *missing = NULL;
    void *library = cupti->library;
    symbol(library, "cuptiGetVersion", &cupti->get_version, &missing);
    symbol(library, "cuptiActivityEnable", &cupti->enable, &missing);
    symbol(library, "cuptiActivityDisable", &cupti->disable, &missing);
    symbol(library, "cuptiActivityRegisterCallbacks", &cupti->register_callbacks, &missing);
    symbol(library, "cuptiActivityRegisterTimestampCallback", &cupti->register_timestamp, &missing);
    symbol(library, "cuptiGetTimestamp", &cupti->get_timestamp, &missing);
    symbol(library, "cuptiActivityFlushAll", &cupti->flush_all, &missing);
    symbol(library, "cuptiActivityGetNextRecord", &cupti->next_record, &missing);
    symbol(library, "cuptiActivityGetNumDroppedRecords", &cupti->dropped, &missing);
    symbol(library, "cuptiActivityPushExternalCorrelationId", &cupti->push_external, &missing);
    symbol(library, "cuptiActivityPopExternalCorrelationId", &cupti->pop_external, &missing);
    return missing;
}

static void name_file(struct lagom_cupti *cupti)
{
    Dl_info info;
    void *address;
    memcpy(&address, &cupti->get_version, sizeof(address));
    bool named = dladdr(address, &info) != 0 && info.dli_fname != NULL;
    snprintf(cupti->path, sizeof(cupti->path), "%s", named ? info.dli_fname : "libcupti");
}

static bool refuse(struct lagom_cupti *cupti)
{
    memset(cupti, 0, sizeof(*cupti));
    return false;
}

bool lagom_cupti_open(struct lagom_cupti *cupti, char *reason, size_t room)
{
    *cupti = (struct lagom_cupti){.library = find()};
    if (cupti->library == NULL) {
        snprintf(reason, room, "no kernel timeline: libcupti.so.13 and .12 are not found; install nvidia-cuda-cupti.");
        return false;
    }
    const char *missing = find_functions(cupti);
    if (missing != NULL) {
        snprintf(reason, room, "no kernel timeline: this CUPTI has no %s.", missing);
        return refuse(cupti);
    }
    name_file(cupti);
    if (cupti->get_version(&cupti->version) != CUPTI_RESULT_SUCCESS || cupti->version < OLDEST_VERSION) {
        snprintf(reason, room, "no kernel timeline: CUPTI API version %u is older than CUDA 12.", cupti->version);
        return refuse(cupti);
    }
    return true;
}
