/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/job_key.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BOOT_ID_BYTES 64u
#define VALUE_BYTES 512u /* of a variable; a key has five of them at most */

uint64_t lagom_hash_text(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325ULL;
    for (; *text != '\0'; text++) {
        hash = (hash ^ (uint8_t)*text) * 0x100000001b3ULL;
    }
    return hash;
}

/* The kernel's boot id without its newline; empty where /proc is not there (then every boot looks alike). */
static void read_boot_id(char out[BOOT_ID_BYTES])
{
    out[0] = '\0';
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    ssize_t length = read(fd, out, BOOT_ID_BYTES - 1);
    close(fd);
    out[length > 0 ? length : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

uint64_t lagom_boot_hash(void)
{
    char boot_id[BOOT_ID_BYTES];
    read_boot_id(boot_id);
    return lagom_hash_text(boot_id);
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* `room` - 1 characters at most. The end of a longer text is replaced by the hash of the whole: two long names that share a
 * beginning must not become one. */
static void fit(char *out, size_t room, const char *text)
{
    if (strlen(text) < room) {
        snprintf(out, room, "%s", text);
    } else {
        snprintf(out, room, "%.*s~%016llx", (int)room - 18, text, (unsigned long long)lagom_hash_text(text));
    }
}

/* Joins the values of the variables with '.'; 0 if the first `needed` of them are not all there. */
static int join(char *out, size_t room, const char *prefix, int needed, ...)
{
    va_list names;
    va_start(names, needed);
    size_t used = (size_t)snprintf(out, room, "%s", prefix);
    const char *name;
    for (int i = 0; (name = va_arg(names, const char *)) != NULL; i++) {
        const char *value = variable(name);
        if (value == NULL && i < needed) {
            va_end(names);
            return 0;
        }
        if (value != NULL && used < room) {
            char fitted[VALUE_BYTES];
            fit(fitted, sizeof(fitted), value);
            used += (size_t)snprintf(out + used, room - used, ".%s", fitted);
        }
    }
    va_end(names);
    return 1;
}

#define END ((const char *)NULL)

/* torchelastic's run id is "none" unless somebody chose one, hence never alone. */
static int job_words(char *out, size_t room, uint64_t first_comm_id)
{
    if (join(out, room, "lagom", 1, "LAGOM_JOB_ID", END) ||
        join(out, room, "elastic", 3, "TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
             END) ||
        join(out, room, "slurm", 2, "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_HET_GROUP_ID", "SLURM_RESTART_COUNT",
             END) ||
        join(out, room, "pmix", 1, "PMIX_NAMESPACE", END) || join(out, room, "pmi", 1, "PMI_JOBID", END) ||
        join(out, room, "master", 2, "MASTER_ADDR", "MASTER_PORT", END)) {
        return 1;
    }
    if (first_comm_id == 0) {
        return 0;
    }
    snprintf(out, room, "comm.%016llx", (unsigned long long)first_comm_id);
    return 1;
}

int lagom_job_key(char out[LAGOM_PATH_BYTES], uint64_t first_comm_id)
{
    char words[8 * VALUE_BYTES], name[121], host_id[49];
    if (!job_words(words, sizeof(words), first_comm_id)) {
        out[0] = '\0';
        return 0;
    }
    fit(name, sizeof(name), words);
    const char *host = variable("NCCL_HOSTID");
    fit(host_id, sizeof(host_id), host != NULL ? host : "-");
    snprintf(out, LAGOM_PATH_BYTES, "%s uid=%u boot=%016llx host=%s", name, (unsigned)getuid(),
             (unsigned long long)lagom_boot_hash(), host_id);
    return 1;
}
