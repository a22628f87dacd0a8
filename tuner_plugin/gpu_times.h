/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_times.h - whether the times that NCCL reports for a communicator's kernels can belong to those kernels.
 *
 * A KERNEL_CH event takes its time from the slot that NCCL's count of works on the host points to, while the GPU fills
 * slots by a count of its own. If the two differ, every later kernel gets the times of another kernel, permanently, and
 * nothing in the event shows it. This happens: what a rank sends to itself in an AlltoAll is counted on the GPU alone (2.28.9,
 * addP2pToPlan: nProxyOps = selfSend ? 0 : 2), and so is a Broadcast in newer ones (NVIDIA/nccl#2369).
 *
 * But no kernel begins before its call. The events give the offset of the GPU's clock from the host's: no event
 * arrives before the time it reports, and some arrive at once, so the smallest recent delay is the offset, or
 * a little more; another kernel's time, which is older, does not make it smaller. A kernel that by its times began before
 * its call has the times of another kernel. It is left out; after a few of them, so is the whole communicator. The
 * fault is visible when the host sometimes waits for the GPU, or is not ahead of it yet, as in the first steps of every
 * job, which are measured.
 */
#ifndef LAGOM_GPU_TIMES_H
#define LAGOM_GPU_TIMES_H

#include <stdbool.h>
#include <stdint.h>

/* A communicator takes this slot: nothing is known of its times. */
void lagom_gpu_times_forget(uint32_t slot);

/* An event that reports `gpu_ns` has arrived at `now_ns`, CLOCK_MONOTONIC. */
void lagom_gpu_times_arrived(uint32_t slot, uint64_t gpu_ns, uint64_t now_ns);

/* A kernel called for at `called_ns` (CLOCK_MONOTONIC, 0 = not known) began at `start_ns` by the GPU's clock, as NCCL reports.
 * false = impossible, or this communicator had too many impossible times to be trusted. */
bool lagom_gpu_times_hold(uint32_t slot, uint64_t start_ns, uint64_t called_ns);

/* Whether they are no longer trusted. */
bool lagom_gpu_times_refuted(uint32_t slot);

#endif
