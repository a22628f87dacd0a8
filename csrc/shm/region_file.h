/* SPDX-License-Identifier: Apache-2.0 */
/* region_file.h - the region's file: found and judged, removed when nobody holds it, made. Internal to csrc/shm; the
 * attachments' lock is held. */
#ifndef LAGOM_REGION_FILE_H
#define LAGOM_REGION_FILE_H

#include "shm/attachment.h"
#include "shm/region.h"

/* Maps what lies at `path`, or hands out what this process has mapped already. Nothing is locked yet. */
enum lagom_region_fault lagom_file_find(const char *path, bool writable, struct lagom_attachment **out);

/* HELD if somebody is alive in it, or somebody else is judging it for longer than `milliseconds`. */
enum lagom_region_fault lagom_file_unlink_if_dead(const int *fd, const char *path, uint32_t milliseconds);
enum lagom_region_fault lagom_file_remove_stale(const char *path); /* HELD also if anybody holds any byte; no waiting */

/* The same for a file that no copy of this code has mapped. *fd, if not -1, is the caller's, who must not close it if
 * another copy has it mapped by then: its locks would be dropped. */
enum lagom_region_fault lagom_file_remove_unmapped(const char *path, int *fd);

/* A new file under a temporary name, whole and mapped, without a header, its register byte locked: whoever takes a role
 * in it drops that. Nothing is left behind if it fails; MISSING = somebody took it for stale: try again. */
enum lagom_region_fault lagom_file_make(const char *temporary, struct lagom_attachment **out);
void lagom_file_unlink_temporary(const char *temporary);
void lagom_file_write_header(struct lagom_header *header, const char *job_key, enum lagom_clock clock);

#endif
