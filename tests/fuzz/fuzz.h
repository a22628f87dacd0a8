/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz.h - what the fuzz targets share: bytes taken from the input one after another, and an expectation whose failure is a crash.
 *
 * A target is one function, LLVMFuzzerTestOneInput: libFuzzer calls it where clang is there, standalone.c where it is not.
 * Structured targets read their input as a little program: an operation, its operands, the next operation. A used-up
 * input yields zeros, so every input is a valid one.
 */
#ifndef LAGOM_FUZZ_H
#define LAGOM_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Both engines and the sanitizers take an abort for a crash and keep the input. */
#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, __func__, #condition);                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

struct feed {
    const uint8_t *at;
    size_t left;
};

/* Up to `bytes` of the input, zeros behind them. */
static inline void feed_bytes(struct feed *feed, void *out, size_t bytes)
{
    size_t taken = bytes < feed->left ? bytes : feed->left;
    memset(out, 0, bytes);
    if (taken > 0) {
        memcpy(out, feed->at, taken);
    }
    feed->at += taken;
    feed->left -= taken;
}

static inline uint8_t feed_u8(struct feed *feed)
{
    uint8_t value;
    feed_bytes(feed, &value, sizeof(value));
    return value;
}

static inline uint16_t feed_u16(struct feed *feed)
{
    uint16_t value;
    feed_bytes(feed, &value, sizeof(value));
    return value;
}

static inline uint32_t feed_u32(struct feed *feed)
{
    uint32_t value;
    feed_bytes(feed, &value, sizeof(value));
    return value;
}

static inline uint64_t feed_u64(struct feed *feed)
{
    uint64_t value;
    feed_bytes(feed, &value, sizeof(value));
    return value;
}

#endif
