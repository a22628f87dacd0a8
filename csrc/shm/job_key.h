/* SPDX-License-Identifier: Apache-2.0 */
/* job_key.h - which region belongs to this job: ranks and controller derive the same name from the environment.
 *
 * First of LAGOM_JOB_ID; TORCHELASTIC_RUN_ID + MASTER_ADDR + MASTER_PORT + TORCHELASTIC_RESTART_COUNT; SLURM_JOB_ID +
 * SLURM_STEP_ID (+ SLURM_HET_GROUP_ID... ); PMIX_NAMESPACE or PMI_JOBID; MASTER_ADDR + MASTER_PORT; else the first
 * commId. Always joined with uid, boot id and NCCL_HOSTID. With a wrong name nothing is tuned, but ranks never disagree.
 */
#ifndef LAGOM_JOB_KEY_H
#define LAGOM_JOB_KEY_H

#include <stdint.h>

#include "protocol/lagom_protocol.h"

/* Writes the key (readable, < LAGOM_PATH_BYTES). first_comm_id 0 = none known; then returns 0 if no variable names a
 * job. */
int lagom_job_key(char out[LAGOM_PATH_BYTES], uint64_t first_comm_id);
uint64_t lagom_hash_text(const char *text); /* FNV-1a 64 */
uint64_t lagom_boot_hash(void);

#endif
