/* SPDX-License-Identifier: Apache-2.0 */
/* expect.h - what every native test checks with: where, what, and an exit that the runner counts as a failure. */
#ifndef LAGOM_EXPECT_H
#define LAGOM_EXPECT_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether this is `make test-full`: what is repeated for its power is repeated ten times as often. */
static inline bool is_full(void)
{
    const char *full = getenv("LAGOM_TEST_FULL");
    return full != NULL && strcmp(full, "1") == 0;
}

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, __func__, #condition);                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_EQUAL(left, right)                                                                                       \
    do {                                                                                                               \
        long long left_ = (long long)(left), right_ = (long long)(right);                                              \
        if (left_ != right_) {                                                                                         \
            fprintf(stderr, "%s:%d: %s: %s is %lld, not %lld\n", __FILE__, __LINE__, __func__, #left, left_, right_);  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_TEXT(left, right)                                                                                        \
    do {                                                                                                               \
        const char *left_ = (left), *right_ = (right);                                                                 \
        if (strcmp(left_, right_) != 0) {                                                                              \
            fprintf(stderr, "%s:%d: %s: %s is '%s', not '%s'\n", __FILE__, __LINE__, __func__, #left, left_, right_);  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
