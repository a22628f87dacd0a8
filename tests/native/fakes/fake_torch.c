/* fake_torch.c - the one function of libtorch_cpu.so that we ask, under its mangled name. */
#include <stdbool.h>

static int profiling;

bool _ZN5torch8autograd8profiler29isProfilerEnabledInMainThreadEv(void);
bool _ZN5torch8autograd8profiler29isProfilerEnabledInMainThreadEv(void)
{
    return __atomic_load_n(&profiling, __ATOMIC_ACQUIRE) != 0;
}

void fake_torch_profiling(int on);
void fake_torch_profiling(int on)
{
    __atomic_store_n(&profiling, on, __ATOMIC_RELEASE);
}
