/* SPDX-License-Identifier: Apache-2.0 */
/* spans.h - kernel spans to the controller, from any thread of this process. */
#ifndef LAGOM_SPANS_H
#define LAGOM_SPANS_H

#include "protocol/lagom_protocol.h"

/* The ring has one producer, the process: threads take turns by a flag that is tried, not waited for. A span that finds
 * neither room nor its turn is counted in process.kernel_drops. */
void lagom_span_push(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span);

/* The same from a thread of ours that pushes thousands in a row and may wait: it lets the others go first. */
void lagom_span_push_patiently(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span);

#endif
