/* gpu_times.h - whether the times that NCCL tells of a communicator's kernels can be those kernels' at all.
 *
 * A KERNEL_CH event takes its time from the slot that NCCL's count of works on the host points to, while the GPU fills
 * slots by a count of its own. Where the two come apart every later kernel is given another one's times, for good, and
 * nothing in the event tells. It happens: what a rank sends to itself in an AlltoAll is counted on the GPU alone (2.28.9,
 * addP2pToPlan: nProxyOps = selfSend ? 0 : 2), and so is a Broadcast in newer ones (NVIDIA/nccl#2369).
 *
 * But no kernel begins before it is called for. The GPU's clock is placed on the host's by the events themselves: none
 * arrives before the time it tells, and some arrive at once, so the least delay of late is the two clocks' distance, or
 * a little more; another kernel's time, which is older, makes it no smaller. A kernel that would still have begun before
 * its call has been given another one's times. Such a kernel is left out, and after a few the whole communicator. It
 * shows where the host waits for the GPU now and then, or has not got ahead of it yet, as in every job's first steps,
 * which are measured.
 */
#ifndef LAGOM_GPU_TIMES_H
#define LAGOM_GPU_TIMES_H

#include <stdbool.h>
#include <stdint.h>

/* A communicator takes this slot: nothing is known of its times. */
void lagom_gpu_times_forget(uint32_t slot);

/* An event that tells `gpu_ns` has arrived at `now_ns`, CLOCK_MONOTONIC. */
void lagom_gpu_times_arrived(uint32_t slot, uint64_t gpu_ns, uint64_t now_ns);

/* A kernel called for at `called_ns` (CLOCK_MONOTONIC, 0 = not known) began at `start_ns` by the GPU's clock, NCCL says.
 * false = it cannot have; or this communicator's kernels could not too often to be believed. */
bool lagom_gpu_times_hold(uint32_t slot, uint64_t start_ns, uint64_t called_ns);

/* Whether they are believed no more. */
bool lagom_gpu_times_refuted(uint32_t slot);

#endif
