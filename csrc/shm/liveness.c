/* SPDX-License-Identifier: Apache-2.0 */
/* liveness.c - which processes are alive, decided by their locks alone; and the texts of errors. */
#include "shm/attachment.h"
#include "shm/file_lock.h"
#include "shm/region.h"

bool lagom_region_is_locked(const struct lagom_mapping *mapping, uint32_t lock_byte)
{
    lagom_attachments_lock();
    const struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    bool locked = attachment != NULL && lagom_lock_elsewhere(attachment->fd, lock_byte, 1);
    lagom_attachments_unlock();
    return locked;
}

/* F_GETLK never reports our own locks, so what this very process holds is asked of its attachment. */
static bool is_our_process(const struct lagom_mapping *mapping, uint32_t process)
{
    lagom_attachments_lock();
    const struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    bool ours = attachment != NULL && attachment->process == process;
    lagom_attachments_unlock();
    return ours;
}

static bool we_control(const struct lagom_mapping *mapping)
{
    lagom_attachments_lock();
    const struct lagom_attachment *attachment = lagom_attachment_of(mapping->region);
    bool ours = attachment != NULL && attachment->controller;
    lagom_attachments_unlock();
    return ours;
}

bool lagom_region_controller_alive(const struct lagom_mapping *mapping)
{
    return we_control(mapping) || lagom_region_is_locked(mapping, LAGOM_LOCK_CONTROLLER);
}

bool lagom_region_process_alive(const struct lagom_mapping *mapping, uint32_t process)
{
    return process < LAGOM_MAX_PROCESSES &&
           (is_our_process(mapping, process) || lagom_region_is_locked(mapping, LAGOM_LOCK_PROCESS + process));
}

uint32_t lagom_region_processes_alive(const struct lagom_mapping *mapping)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < LAGOM_MAX_PROCESSES; i++) {
        count += lagom_region_process_alive(mapping, i);
    }
    return count;
}

const char *lagom_region_fault_text(enum lagom_region_fault fault)
{
    switch (fault) {
    case LAGOM_REGION_OK: return "the region is sound.";
    case LAGOM_REGION_MISSING:
        return "there is no such region; start a rank or a controller with the same job key first.";
    case LAGOM_REGION_FOREIGN:
        return "the file there is not this job's own region (a regular file of this user, mode 0600); remove it or "
               "set LAGOM_SHM_DIR.";
    case LAGOM_REGION_DAMAGED:
        return "the file is not a whole Lagom region (size or magic); remove it and start again.";
    case LAGOM_REGION_VERSION: return "the region was made by another version of Lagom; use one version on all ranks.";
    case LAGOM_REGION_STALE: return "the region is stale: its job has ended; remove its file.";
    case LAGOM_REGION_NO_SPACE:
        return "the region needs more than a quarter of the free space there; enlarge /dev/shm or set LAGOM_SHM_DIR.";
    case LAGOM_REGION_SYSTEM:
        return "the file could not be made or opened; check that this user may write to LAGOM_SHM_DIR or /dev/shm.";
    case LAGOM_REGION_HELD:
        return "another controller is attached to it, or a stopped process holds one of its locks; end that one first.";
    case LAGOM_REGION_FULL:
        return "its table is full (16 processes, 192 communicators, 320 slots); start fewer ranks on this node.";
    case LAGOM_REGION_TWICE:
        return "another copy of this library is attached to it in the same process; set NCCL_TUNER_PLUGIN and "
               "NCCL_PROFILER_PLUGIN to one file.";
    case LAGOM_REGION_LIMIT:
        return "this process's limit on the size of a file is below the 8 MB of the region; raise it (ulimit -f).";
    }
    return "the region was refused for a reason this version does not know.";
}
