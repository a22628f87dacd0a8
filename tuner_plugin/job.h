/* job.h - this process's part in the job: which region, which NCCL, replay or tune, who starts the controller. Decided
 * once, at the first communicator, under the plugin's lock. */
#ifndef LAGOM_JOB_H
#define LAGOM_JOB_H

#include <limits.h>
#include <stdbool.h>

#include "profile/profile_text.h"
#include "shm/region.h"
#include "tuner_plugin/caller.h"
#include "tuner_plugin/member.h"
#include "tuner_plugin/nccl_abi.h"
#include "tuner_plugin/settings.h"

struct lagom_job {
    struct lagom_settings settings;
    struct lagom_mapping mapping; /* region NULL = not joined */
    struct lagom_caller caller;
    struct lagom_profile profile;
    bool replaying;          /* the profile fits: it decides, not a controller */
    bool started_controller; /* by this process */
    char folder[PATH_MAX];   /* of the log */
};

/* settings are read. false = NCCL goes on stock, for good; why was said. */
bool lagom_job_join(struct lagom_job *job, const struct lagom_hello *hello, nccl_log_function log,
                    const void *return_address);

/* Why something is not possible here: kept for doctor and the controller, in NCCL's log, and once a node on stderr. */
void lagom_job_remark(struct lagom_job *job, const char *text);

#endif
