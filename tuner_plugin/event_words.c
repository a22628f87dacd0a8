/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/event_words.h"

#include <stddef.h>
#include <string.h>

#include "protocol/lagom_protocol.h"

static const char *const functions[LAGOM_FUNCTIONS] = {"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                                       "AllReduce"};
static const char *const algorithms[LAGOM_ALGORITHMS] = {"TREE",      "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS",
                                                         "NVLS_TREE", "PAT"};
static const char *const protocols[LAGOM_PROTOCOLS] = {"LL", "LL128", "SIMPLE"};

static int number(const char *word, const char *const *words, int count)
{
    for (int i = 0; word != NULL && i < count; i++) {
        if (strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

int lagom_function_number(const char *word)
{
    return number(word, functions, LAGOM_FUNCTIONS);
}

int lagom_algorithm_number(const char *word)
{
    return number(word, algorithms, LAGOM_ALGORITHMS);
}

int lagom_protocol_number(const char *word)
{
    return number(word, protocols, LAGOM_PROTOCOLS);
}

/* The width is in the name: ncclInt8, ncclFloat8e4m3, ncclBfloat16, ncclUint32, ncclFloat64. */
uint64_t lagom_type_bytes(const char *word)
{
    if (word == NULL) {
        return 0;
    }
    const char *digits = strpbrk(word, "0123456789");
    if (digits == NULL) {
        return 0;
    }
    switch (digits[0]) {
    case '6': return 8; /* 64 */
    case '3': return 4; /* 32 */
    case '1': return 2; /* 16 */
    case '8': return 1;
    default: return 0;
    }
}
