/* spawn.h - the controller, started by a rank in environment-only use.
 *
 * Tuner init is a bad place to start a process from: it runs in a thread whose CPU affinity NCCL has narrowed, among
 * sockets that are not close-on-exec, in a process whose environment is about one GPU. So: no fork of this process
 * (posix_spawn), every descriptor from 3 on closed, a session of its own, stdio to a file, affinity wide again, the
 * environment scrubbed, and nobody's child: a shell starts it and is gone, so the job sees neither a zombie nor a
 * process that it has to wait for (S1-21).
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
