/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - lines NAME=value are an environment, anything else is a saved config, and its first line a rule. */
#include "text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > 0 && data[0] >= 'A' && data[0] <= 'Z') {
        fuzz_environment(data, size);
    } else {
        fuzz_config(data, size);
    }
    return 0;
}
