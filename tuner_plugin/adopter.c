/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/adopter.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "protocol/lagom_atomic.h"

#define MOST_ANCESTORS 64

/* Not where /proc shows the processes of another PID namespace: the numbers there mean others. */
static bool proc_is_ours(void)
{
    char number[16] = "";
    ssize_t length = readlink("/proc/self", number, sizeof(number) - 1);
    return length > 0 && atoi(number) == (int)getpid();
}

/* 0 = unknown. The name in front of it may contain anything. */
static pid_t parent_of(pid_t process)
{
    char path[64], text[512] = "";
    int parent = 0;
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        size_t length = fread(text, 1, sizeof(text) - 1, file);
        text[length] = '\0';
        fclose(file);
    }
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && sscanf(name_end + 1, " %*c %d", &parent) == 1 ? (pid_t)parent : 0;
}

static bool is_rank(const struct lagom_region *region, pid_t process)
{
    for (uint32_t i = 0; i < LAGOM_MAX_PROCESSES; i++) {
        const struct lagom_process *entry = &region->processes[i];
        if (lagom_load_acquire(&entry->state) == LAGOM_READY && entry->pid == (uint32_t)process) {
            return true;
        }
    }
    return false;
}

static bool has_a_rank_above(const struct lagom_region *region)
{
    bool known = proc_is_ours();
    pid_t process = getppid();
    for (int i = 0; i < MOST_ANCESTORS && process > 0; i++) {
        if (is_rank(region, process)) {
            return true;
        }
        process = known ? parent_of(process) : process > 1 ? 1 : 0;
    }
    return false;
}

const char *lagom_controller_adopter(const struct lagom_region *region)
{
    int subreaper = 0;
    if (getpid() == 1) {
        return "this rank is process 1 of its container";
    }
    if (prctl(PR_GET_CHILD_SUBREAPER, &subreaper, 0, 0, 0) == 0 && subreaper != 0) {
        return "this rank is a child subreaper";
    }
    return has_a_rank_above(region) ? "another rank is an ancestor of this one" : NULL;
}
