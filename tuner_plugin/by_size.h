/* by_size.h - a process's part in a job whose NCCL tells no communicator's id: reads the size rules, settles with the
 * node's other processes what they all use, and says it. Once, under the plugin's lock. */
#ifndef LAGOM_BY_SIZE_H
#define LAGOM_BY_SIZE_H

#include "tuner_plugin/job.h"

/* LAGOM_STATIC_RULES with job->size_rules, or LAGOM_FALLBACK. */
enum lagom_standing lagom_by_size_join(struct lagom_job *job, const struct lagom_init_info *info);

#endif
