/* SPDX-License-Identifier: Apache-2.0 */
/* ring.h - the two rings: calls (one producer: NCCL's thread of that communicator) and kernels (one producer: the
 * process serialises its own). One consumer: the controller. Never blocks; what does not fit is counted in *drops.
 *
 * head and tail count records for ever; the slot is index & (capacity - 1). The producer's release of head pairs with
 * the consumer's acquire; the consumer's release of tail pairs with the producer's acquire. A head further from
 * tail than the capacity is garbage: the consumer drops everything and starts again at head. A slot without a call
 * ring takes no records and counts none.
 */
#ifndef LAGOM_RING_H
#define LAGOM_RING_H

#include "protocol/lagom_protocol.h"

int lagom_call_ring_push(struct lagom_region *region, uint32_t slot, const struct lagom_call_record *record);
int lagom_kernel_ring_push(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span);

/* Copy out up to `room` records; returns how many. For the controller. */
uint32_t lagom_call_ring_drain(struct lagom_region *region, uint32_t slot, struct lagom_call_record *out,
                               uint32_t room);
uint32_t lagom_kernel_ring_drain(struct lagom_region *region, uint32_t process, struct lagom_kernel_span *out,
                                 uint32_t room);

#endif
