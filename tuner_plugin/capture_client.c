/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/capture_client.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "protocol/lagom_atomic.h"
#include "shm/ownership.h"
#include "tuner_plugin/spans.h"

#define FILE_NAME "liblagom_timeline.so"

typedef void (*push_function)(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span);

struct library {
    int (*attach)(struct lagom_region *region, uint32_t process, push_function push);
    void (*detach)(void);
    void (*launch_begins)(uint32_t slot);
    void (*launch_ends)(void);
    void (*launched)(const struct lagom_kernel_span *collective);
    void (*asked)(const struct lagom_kernel_span *call);
    void (*unreported)(const struct lagom_kernel_span *call);
    void (*ran)(const struct lagom_kernel_span *collective);
};

static struct library library;
static bool tried;
static bool attached;
static struct library *usable; /* atomic; &library once it is loaded */

/* ---- Loading ---------------------------------------------------------------------------------------------------- */

/* POSIX makes this conversion work; ISO C has no cast for it. */
static bool symbol(void *handle, const char *name, void *function)
{
    void *address = dlsym(handle, name);
    memcpy(function, &address, sizeof(address));
    return address != NULL;
}

static bool find_functions(void *handle)
{
    return symbol(handle, "lagom_timeline_attach", &library.attach) &&
           symbol(handle, "lagom_timeline_detach", &library.detach) &&
           symbol(handle, "lagom_timeline_launch_begins", &library.launch_begins) &&
           symbol(handle, "lagom_timeline_launch_ends", &library.launch_ends) &&
           symbol(handle, "lagom_timeline_launched", &library.launched) &&
           symbol(handle, "lagom_timeline_asked", &library.asked) &&
           symbol(handle, "lagom_timeline_unreported", &library.unreported) &&
           symbol(handle, "lagom_timeline_ran", &library.ran);
}

static bool load(char *reason, size_t room)
{
    char path[PATH_MAX], why[LAGOM_PATH_BYTES];
    bool guarded = lagom_guarded_beside(FILE_NAME, path, why, sizeof(why));
    void *handle = guarded ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    const char *failed = guarded && handle == NULL ? dlerror() : NULL;
    if (handle != NULL && find_functions(handle)) {
        return true;
    }
    snprintf(reason, room, "no kernel timeline: %s in the plugin's folder was not loaded: %.150s.", FILE_NAME,
             handle != NULL   ? "it is of another version"
             : failed != NULL ? failed
                              : why);
    return false;
}

const char *lagom_capture_client_open(struct lagom_region *region, uint32_t process)
{
    static char not_loaded[LAGOM_PATH_BYTES];
    if (!tried) {
        tried = true;
        bool found = load(not_loaded, sizeof(not_loaded));
        lagom_store_release(&usable, found ? &library : NULL); /* pairs with the launching threads' acquire */
    }
    if (usable == NULL) {
        return not_loaded;
    }
    attached = attached || library.attach(region, process, lagom_span_push_patiently) == 0;
    return attached ? NULL : "no kernel timeline: its thread could not be started.";
}

void lagom_capture_client_close(void)
{
    if (attached) {
        library.detach();
        attached = false;
    }
}

/* ---- Notes ------------------------------------------------------------------------------------------------------ */

static const struct library *loaded(void)
{
    return lagom_load_acquire(&usable);
}

void lagom_capture_client_launch_begins(uint32_t slot)
{
    if (loaded() != NULL) {
        library.launch_begins(slot);
    }
}

void lagom_capture_client_launch_ends(void)
{
    if (loaded() != NULL) {
        library.launch_ends();
    }
}

void lagom_capture_client_launched(const struct lagom_kernel_span *collective)
{
    if (loaded() != NULL) {
        library.launched(collective);
    }
}

void lagom_capture_client_asked(const struct lagom_kernel_span *call)
{
    if (loaded() != NULL) {
        library.asked(call);
    }
}

void lagom_capture_client_unreported(const struct lagom_kernel_span *call)
{
    if (loaded() != NULL) {
        library.unreported(call);
    }
}

void lagom_capture_client_ran(const struct lagom_kernel_span *collective)
{
    if (loaded() != NULL) {
        library.ran(collective);
    }
}
