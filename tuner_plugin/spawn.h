/* SPDX-License-Identifier: Apache-2.0 */
/* spawn.h - a rank starts the controller, where only environment variables are set (no `lagom run`).
 *
 * Tuner init is a bad place to start a process from: it runs in a thread whose CPU affinity NCCL has narrowed, among
 * sockets that are not close-on-exec, in a process whose environment is about one GPU and whose memory must not be
 * copied (registered with network cards, 100 GB large). So: no fork of this process, every descriptor from 3 on closed,
 * a session of its own, stdio to a file, affinity wide again, and an environment of what Python needs
 * (csrc/shm/controller_process.h). The controller is no rank's child, and a rank sees neither a zombie, nor a process
 * that a waitpid(-1) of its own could collect, nor a SIGCHLD. Whose child it becomes, and where none is started for that
 * reason: adopter.h.
 */
#ifndef LAGOM_SPAWN_H
#define LAGOM_SPAWN_H

#include <stdbool.h>
#include <stddef.h>

struct lagom_spawn {
    const char *python; /* empty = the one baked in beside this library */
    const char *region; /* file */
    const char *folder; /* log folder, absolute; exists */
    bool simulated_clock;
};

/* true = started. What becomes of it stands in <folder>/controller.log. Else one sentence in `reason`. */
bool lagom_spawn_controller(const struct lagom_spawn *spawn, char *reason, size_t reason_bytes);

#endif
