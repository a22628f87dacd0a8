/* SPDX-License-Identifier: Apache-2.0 */
/* region.h - create, attach, register, judge liveness, remove.
 *
 * File: <dir>/lagom-<uid>-<16 hex of the job key's hash>, 0600, posix_fallocate'd (ftruncate on a full tmpfs succeeds
 * and the first touch kills by SIGBUS). dir = LAGOM_SHM_DIR or /dev/shm. Created under a temporary name with the
 * creator's lock already held, then link(2)ed into place: nobody ever sees half a region, and a region nobody holds a
 * lock on is stale. Opened with O_NOFOLLOW; refused unless a regular file, ours, 0600, of the right size, magic,
 * version, boot.
 */
#ifndef LAGOM_REGION_H
#define LAGOM_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/lagom_protocol.h"

enum lagom_region_fault {
    LAGOM_REGION_OK = 0,
    LAGOM_REGION_MISSING = 1,
    LAGOM_REGION_FOREIGN = 2, /* owner, mode or file type */
    LAGOM_REGION_DAMAGED = 3, /* size or magic or header_bytes */
    LAGOM_REGION_VERSION = 4,
    LAGOM_REGION_STALE = 5,    /* of another boot, or nobody holds a lock */
    LAGOM_REGION_NO_SPACE = 6, /* it would take more than a quarter of what is free, or ENOSPC */
    LAGOM_REGION_SYSTEM = 7,   /* errno says */
    LAGOM_REGION_HELD = 8,     /* another controller is attached, or a process was stopped in one of the short locks */
    LAGOM_REGION_FULL = 9,     /* no free process, communicator or slot entry */
    LAGOM_REGION_TWICE = 10,   /* another copy of this library in this process is attached to it */
    LAGOM_REGION_LIMIT = 11,   /* this process may not make so large a file (RLIMIT_FSIZE) */
};
const char *lagom_region_fault_text(enum lagom_region_fault fault); /* one sentence with what to do about it */

/* A mapping and the one fd that lives as long as it. */
struct lagom_mapping {
    struct lagom_region *region; /* NULL = not attached */
    int fd;
    int error;        /* errno of LAGOM_REGION_SYSTEM */
    uint32_t process; /* own entry, or UINT32_MAX */
    bool controller;
    char path[LAGOM_PATH_BYTES];
};

/* Ranks: create or attach, and take a process entry with its lock. A stale region in the way is removed first. The
 * entry is READY at once; the caller describes itself in it before it enters a communicator. One process has one fd and
 * one entry a region however often it joins: leave as often. A forked child has none: its copy of the mapping is
 * replaced by private zero pages, and it may join on its own. */
enum lagom_region_fault lagom_region_join(struct lagom_mapping *mapping, const char *job_key, enum lagom_clock clock);

/* Controller: attach by job key (create = make it if missing; `lagom run` does) or by path, and take the controller
 * lock. */
enum lagom_region_fault lagom_region_control(struct lagom_mapping *mapping, const char *job_key, bool create,
                                             enum lagom_clock clock);
enum lagom_region_fault lagom_region_control_path(struct lagom_mapping *mapping, const char *path);

/* Read-only look for doctor and watch: no lock is taken. */
enum lagom_region_fault lagom_region_inspect(struct lagom_mapping *mapping, const char *path);

/* Gives back what this mapping took. unlink_file: and removes the file if nobody else holds a lock. */
void lagom_region_leave(struct lagom_mapping *mapping, bool unlink_file);

/* At the process's end: gives back, and removes the file as above, but the mapping stays, for threads that still read it.
 * Does nothing where another thread is joining or leaving, or this one was when a signal handler called exit(). */
void lagom_region_exit(const struct lagom_mapping *mapping);

/* Controller: removes the file if no rank holds a lock, so that nobody can join any more. false = one does, perhaps
 * since this very moment (an elastic restart): the controller stays what it is. */
bool lagom_region_retire(struct lagom_mapping *mapping);

/* Removes the file of a region of ours that nobody holds a lock on; OK, or why not. For doctor. */
enum lagom_region_fault lagom_region_remove_stale(const char *path);

/* Path of a job key's region (needs LAGOM_PATH_BYTES). false, and empty, where LAGOM_SHM_DIR leaves no room for it. */
bool lagom_region_path(const char *job_key, char *out);

/* Whether somebody else holds that lock byte (F_GETLK). */
bool lagom_region_is_locked(const struct lagom_mapping *mapping, uint32_t lock_byte);
bool lagom_region_controller_alive(const struct lagom_mapping *mapping);
bool lagom_region_process_alive(const struct lagom_mapping *mapping, uint32_t process);
uint32_t lagom_region_processes_alive(const struct lagom_mapping *mapping);

/* Who takes a slot: the rank and CUDA device as far as they are known (LAGOM_UNKNOWN_*). */
struct lagom_identity {
    uint32_t rank;
    uint32_t device;
};

/* Rank: find or make the communicator entry, and take a slot. UINT32_MAX when the table is full; counted then in
 * header.places_refused, and also where a communicator of one node gets an entry without a plan or a slot without a call
 * ring. Every enter must be followed by one slot_take, whatever comes of it: an entry is kept as long as somebody has
 * entered and not taken. */
uint32_t lagom_communicator_enter(struct lagom_region *region, uint64_t comm_id, uint32_t rank_count,
                                  uint32_t node_count, uint32_t ordinal, const char *name);
uint32_t lagom_slot_take(struct lagom_mapping *mapping, uint32_t communicator, struct lagom_identity identity);
void lagom_slot_release(struct lagom_mapping *mapping, uint32_t slot); /* finalize: the slot becomes GONE */

/* Whether this process has waited for another one's lock as long as it may: two seconds over join and everything it enters
 * together (wait_budget.h). Every enter and take fails at once from then on. */
bool lagom_region_gave_up(void);

/* Whether the host has closed our descriptor of the region, so that this process's locks are gone and others take it for
 * dead. Every enter and take fails from then on. */
bool lagom_region_is_lost(const struct lagom_mapping *mapping);

/* Controller: frees entries of dead processes, and GONE slots whose rings are drained, and communicators without slots.
 */
uint32_t lagom_region_sweep(struct lagom_mapping *mapping);

#endif
