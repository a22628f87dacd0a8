/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_device.c - which GPU a rank uses, asked of the driver as torch and NCCL load it: by its soname, not for everybody,
 * and never loaded by the plugin. */
#include <dlfcn.h>
#include <stddef.h>

#include "tests/native/expect.h"
#include "tuner_plugin/hardware.h"

#define DRIVER "int answer = 5, failure;\\nint cuCtxGetDevice(int *device) { *device = answer; return failure; }\\n"

int main(void)
{
    char command[1024], path[512];
    const char *folder = getenv("LAGOM_SHM_DIR");
    if (folder == NULL) {
        printf("LAGOM_SHM_DIR must name a folder for this test\n");
        return 77;
    }
    CHECK_EQUAL(lagom_cuda_device(), LAGOM_UNKNOWN_DEVICE);
    snprintf(path, sizeof(path), "%s/another_name.so", folder);
    snprintf(command, sizeof(command), "printf '" DRIVER "' | ${CC:-gcc} -x c -shared -fPIC -Wl,-soname,libcuda.so.1 -o '%s' -", path);
    CHECK_EQUAL(system(command), 0);
    void *driver = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    CHECK(driver != NULL);
    int *answer = dlsym(driver, "answer"), *failure = dlsym(driver, "failure");
    CHECK(answer != NULL && failure != NULL);
    CHECK_EQUAL(lagom_cuda_device(), 5);
    *answer = 0;
    CHECK_EQUAL(lagom_cuda_device(), 0);
    *failure = 201; /* no context is current */
    CHECK_EQUAL(lagom_cuda_device(), LAGOM_UNKNOWN_DEVICE);
    return 0;
}
