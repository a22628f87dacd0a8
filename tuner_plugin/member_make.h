/* member_make.h - a member's beginning and end. */
#ifndef LAGOM_MEMBER_MAKE_H
#define LAGOM_MEMBER_MAKE_H

#include "profile/profile_text.h"
#include "shm/region.h"
#include "tuner_plugin/member.h"
#include "tuner_plugin/profiler.h"

struct lagom_membership {
    struct lagom_mapping *mapping;
    const struct lagom_profile *profile; /* replay; NULL = a controller decides */
    uint32_t ordinal;                    /* among this process's communicators of that size */
    bool threads_wanted;                 /* LAGOM_NT=1 */
    int nccl_version;
    const struct lagom_nccl_build *build; /* NULL = not one we know */
};

/* NULL, with one sentence in `reason`, if there is no place in the region, no memory, or no section of the profile. */
struct lagom_member *lagom_member_make(const struct lagom_membership *membership, const struct lagom_hello *hello,
                                       struct lagom_profiled *profiled, char *reason, size_t reason_bytes);
void lagom_member_end(struct lagom_member *member, struct lagom_mapping *mapping);

#endif
