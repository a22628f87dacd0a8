/* SPDX-License-Identifier: Apache-2.0 */
/* region_table.h - the tables of a region: processes, communicators, slots. Internal to csrc/shm; the attachments' lock
 * is held, and lagom_table_begin/end around whatever changes them. */
#ifndef LAGOM_REGION_TABLE_H
#define LAGOM_REGION_TABLE_H

#include "shm/attachment.h"
#include "shm/region.h"

/* false: somebody was stopped in there, and this process has waited for it as long as it may (wait_budget.h). */
bool lagom_table_begin(struct lagom_attachment *attachment);
void lagom_table_end(struct lagom_attachment *attachment);

enum lagom_region_fault lagom_table_take_process(struct lagom_attachment *attachment);
void lagom_table_give_process_back(struct lagom_attachment *attachment);
enum lagom_region_fault lagom_table_take_control(struct lagom_attachment *attachment);
void lagom_table_give_control_back(struct lagom_attachment *attachment);

/* Between begin and end: frees what dead processes and finalized communicators left; force gives up undrained rings. */
uint32_t lagom_table_sweep(struct lagom_attachment *attachment, bool force);
void lagom_table_clear_communicator(struct lagom_communicator *entry);

#endif
