/* SPDX-License-Identifier: Apache-2.0 */
/* fake_torch.c - the functions of libtorch_cpu.so that we ask, under their mangled names. */
#include <stdbool.h>

static int profiling;

bool _ZN5torch8autograd8profiler29isProfilerEnabledInMainThreadEv(void);
bool _ZN5torch8autograd8profiler29isProfilerEnabledInMainThreadEv(void)
{
    return __atomic_load_n(&profiling, __ATOMIC_ACQUIRE) != 0;
}

/* CUDA activities alone: only the profiled thread knows. */
static int thread_profiled;

bool _ZN5torch8profiler4impl15profilerEnabledEv(void);
bool _ZN5torch8profiler4impl15profilerEnabledEv(void)
{
    return __atomic_load_n(&thread_profiled, __ATOMIC_ACQUIRE) != 0;
}

void fake_torch_profiling_thread(int on);
void fake_torch_profiling_thread(int on)
{
    __atomic_store_n(&thread_profiled, on, __ATOMIC_RELEASE);
}

void fake_torch_profiling(int on);
void fake_torch_profiling(int on)
{
    __atomic_store_n(&profiling, on, __ATOMIC_RELEASE);
}
