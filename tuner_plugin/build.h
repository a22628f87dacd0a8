/* SPDX-License-Identifier: Apache-2.0 */
/* build.h - which build of NCCL calls, and whether the pointer it passed is really inside one of its communicators.
 *
 * NCCL gives every tuner `&comm->tunerContext` at init. On a build that is known (nccl_builds.h, by the build id of the
 * very library that called) the members around it are at known distances. Nothing is read before all of this holds: the
 * build id and the version are those of one row; the memory is mapped (checked with the kernel, not by access); NCCL's
 * magic is at the end of the struct; rank count and hash are those that init got.
 */
#ifndef LAGOM_BUILD_H
#define LAGOM_BUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "tuner_plugin/caller.h"
#include "tuner_plugin/nccl_builds.h"

/* NULL = unknown: another vendor's, built from source, or newer than this version of lagom. */
const struct lagom_nccl_build *lagom_build_of(const struct lagom_caller *caller);

enum lagom_build_fault {
    LAGOM_BUILD_HOLDS = 0,
    LAGOM_BUILD_UNKNOWN,
    LAGOM_BUILD_NO_ID,     /* this NCCL does not pass the communicator's id, so the hash proves nothing */
    LAGOM_BUILD_NO_MEMORY, /* the pointer is not inside a struct of that size */
    LAGOM_BUILD_OTHER,     /* magic, ranks or hash are not what they should be */
};
const char *lagom_build_fault_text(enum lagom_build_fault fault); /* the end of a sentence */

/* `context_place`: the void ** that init got; comm_id 0 = unknown. */
enum lagom_build_fault lagom_build_check(const struct lagom_nccl_build *build, const void *context_place,
                                         uint64_t comm_id, uint32_t ranks);

/* comm->nChannels, once lagom_build_check held and the communicator is set up; 0 = not a believable number. */
uint32_t lagom_build_channels(const struct lagom_nccl_build *build, const void *context_place);

#endif
