/* SPDX-License-Identifier: Apache-2.0 */
/* job.h - this process's part in the job: which region, which NCCL, replay or tune, who starts the controller. Decided
 * once, at the first communicator, under the plugin's lock. */
#ifndef LAGOM_JOB_H
#define LAGOM_JOB_H

#include <limits.h>
#include <stdbool.h>

#include "config/config_text.h"
#include "shm/region.h"
#include "tuner_plugin/caller.h"
#include "tuner_plugin/nccl_abi.h"
#include "tuner_plugin/settings.h"

enum lagom_standing {
    LAGOM_NOT_YET = 0,  /* no communicator yet */
    LAGOM_FALLBACK = 1, /* NCCL runs stock from now on; the reason was logged */
    LAGOM_JOINED = 2,
    LAGOM_STATIC_RULES = 3, /* an NCCL that gives no ids: job.static_rules decide (static_rules.h) */
};

struct lagom_job {
    struct lagom_settings settings;
    struct lagom_mapping mapping; /* region NULL = not joined */
    struct lagom_caller caller;
    struct lagom_config_file config;
    struct lagom_node_rules static_rules; /* LAGOM_STATIC_RULES: the node's, restricted to what can be done here */
    bool replaying;          /* the saved config fits: it decides, not a controller */
    bool started_controller; /* by this process */
    char folder[PATH_MAX];   /* of the log */
};

/* settings are read. Never LAGOM_NOT_YET. */
enum lagom_standing lagom_job_join(struct lagom_job *job, const struct lagom_init_info *info, nccl_log_function log,
                                   const void *return_address);

/* Says why something is not possible: in NCCL's log, for doctor and the controller, and once a node on stderr. */
__attribute__((format(printf, 2, 3))) void lagom_job_remark(struct lagom_job *job, const char *format, ...);

/* The same for a smaller loss: it replaces no other remark, and goes to NCCL's log only. */
void lagom_job_remark_also(struct lagom_job *job, const char *text);

#endif
