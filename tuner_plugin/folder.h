/* SPDX-License-Identifier: Apache-2.0 */
/* folder.h - the job's log folder, chosen by the ranks when there is no `lagom run` (environment-only use). */
#ifndef LAGOM_FOLDER_H
#define LAGOM_FOLDER_H

#include <limits.h>
#include <stdint.h>

#include "tuner_plugin/settings.h"

/* LAGOM_DIR, else ./lagom-<LAGOM_JOB_ID>, else ./lagom-<when the region was made>: the same in every rank of a node.
 * Absolute. Over several nodes each has its own folder in it, named after NCCL_HOSTID or the host: there may be one file
 * system. ``several_nodes``: NCCL says so; the launcher's variables may, too. The folder of `lagom run` has that already. */
void lagom_folder_name(const struct lagom_settings *settings, uint64_t region_created_ns, bool several_nodes,
                       char out[PATH_MAX]);

/* mkdir -p. 0 = it is there and can be written to, else errno. */
int lagom_folder_make(const char *folder);

#endif
