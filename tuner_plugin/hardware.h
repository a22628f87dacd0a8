/* SPDX-License-Identifier: Apache-2.0 */
/* hardware.h - where we run: what a saved config's fingerprint is compared with, found without CUDA. */
#ifndef LAGOM_HARDWARE_H
#define LAGOM_HARDWARE_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/lagom_protocol.h"

/* Product name of this machine's first GPU from the driver's /proc entry, e.g. "NVIDIA H200"; empty where there is
 * none. */
void lagom_gpu_name(char out[LAGOM_NAME_BYTES]);

/* false where NCCL_P2P_DISABLE switches peer access off: another machine, as far as a tuned config is concerned. */
bool lagom_peer_access(void);

/* Ranks and nodes of the whole job, from WORLD_SIZE and LOCAL_WORLD_SIZE, else as given (the first communicator's). */
void lagom_job_size(uint32_t *ranks, uint32_t *nodes);

/* The CUDA device that this thread uses, as its process counts them: NCCL sets it before it asks a tuner to init. Asked of
 * the driver that the process has loaded; LAGOM_UNKNOWN_DEVICE where there is none. */
uint32_t lagom_cuda_device(void);

/* Which rank of this node, as torchrun, Slurm or Open MPI say; 0 where nobody does. */
int lagom_local_rank(void);

#endif
