/* SPDX-License-Identifier: Apache-2.0 */
/* scenario.h - one small concurrent use of the shipped functions, checked by a C11 memory model instead of by luck.
 *
 * A scenario is three functions and a thread count. relacy_runtime.cpp calls setup, then every
 * thread, then check, in many executions that the model allows.
 */
#ifndef LAGOM_SCENARIO_H
#define LAGOM_SCENARIO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const unsigned scenario_threads; /* 2 or 3 */
void scenario_setup(void);
void scenario_thread(unsigned thread);
void scenario_check(void);

/* Shared memory of the scenario: zeroed at setup, tracked while the threads run. */
void model_share(void *memory, size_t bytes);

/* Part of it that is read and written without atomics: an access that races with another is an error. */
void model_plain(void *memory, size_t bytes);

/* Part of it with 4-byte fields that is also cleared by 8-byte stores: taken as two accesses. */
void model_narrow(void *memory, size_t bytes);

/* Memory of one thread: zeroed at setup, not tracked. */
void model_private(void *memory, size_t bytes);

/* Ends the execution and reports it where `holds` is false. */
void model_require(int holds, const char *what);

#ifdef __cplusplus
}
#endif

#endif
