/* SPDX-License-Identifier: Apache-2.0 */
#include "timeline/profiler_conflict.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/lagom_atomic.h"
#include "timeline/clock.h"

/* torch::autograd::profiler::isProfilerEnabledInMainThread() */
#define TORCH_IS_PROFILING "_ZN5torch8autograd8profiler29isProfilerEnabledInMainThreadEv"

/* torch::profiler::impl::profilerEnabled(), of the calling thread */
#define TORCH_PROFILES_THIS_THREAD "_ZN5torch8profiler4impl15profilerEnabledEv"

typedef bool (*query)(void);

static query thread_query;       /* atomic; looked up by our thread, asked by the launching ones */
static uint64_t last_seen_ns;    /* atomic */

static query ask_torch(const char *name)
{
    query found = NULL;
    void *torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    void *address = torch == NULL ? NULL : dlsym(torch, name);
    memcpy(&found, &address, sizeof(address));
    return found;
}

/* What is said of a thread holds until its next launch; torch starts and stops between steps. */
#define THREAD_HOLDS_NS 500000000u

static bool a_thread_is_profiled(void)
{
    uint64_t seen = lagom_load_relaxed(&last_seen_ns);
    return seen != 0 && lagom_elapsed_ns(lagom_now_ns(), seen) < THREAD_HOLDS_NS;
}

static bool torch_is_profiling(void)
{
    static query main_query;
    if (main_query == NULL) {
        main_query = ask_torch(TORCH_IS_PROFILING);
        lagom_store_release(&thread_query, ask_torch(TORCH_PROFILES_THIS_THREAD));
    }
    return (main_query != NULL && main_query()) || a_thread_is_profiled();
}

void lagom_profiler_conflict_note_thread(void)
{
    query profiled = lagom_load_acquire(&thread_query);
    if (profiled != NULL && profiled()) {
        lagom_store_relaxed(&last_seen_ns, lagom_now_ns());
    }
}

uint64_t lagom_profiler_conflict_last_seen_ns(void)
{
    return lagom_load_relaxed(&last_seen_ns);
}

/* A tool that CUDA loads into the process (nsys, compute-sanitizer, ...) keeps CUPTI for the process's whole life. */
static const char *injected_tool(void)
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (path != NULL && path[0] != '\0' && strstr(path, "liblagom_timeline") == NULL) {
        return "the tool named by CUDA_INJECTION64_PATH";
    }
    void *nsys = dlopen("libToolsInjection64.so", RTLD_LAZY | RTLD_NOLOAD);
    if (nsys != NULL) {
        dlclose(nsys);
        return "nsys";
    }
    return getenv("NSYS_PROFILING_SESSION_ID") != NULL ? "nsys" : NULL;
}

const char *lagom_profiler_conflict(void)
{
    return torch_is_profiling() ? "torch.profiler" : injected_tool();
}
