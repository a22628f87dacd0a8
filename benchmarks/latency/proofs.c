/* SPDX-License-Identifier: Apache-2.0 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "benchmarks/latency/latency.h"

/* ---- Allocations are counted: our definitions come before libc's in every library of this process ---------------- */

uint64_t allocations;
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *old, size_t bytes);
extern void __libc_free(void *old);

void *malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    allocations++;
    return __libc_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    allocations++;
    return __libc_realloc(old, bytes);
}

void free(void *old)
{
    allocations++;
    __libc_free(old);
}

/* ---- No system call ---------------------------------------------------------------------------------------------- */

/* (Seccomp's strict mode would also take away the processor's counter.) */
bool forbid_system_calls(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {.len = sizeof(program) / sizeof(program[0]), .filter = program};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

const char *verdict_under_seccomp(void (*body)(const void *argument), const void *argument)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        body(argument);
        syscall(SYS_exit, 0);
    }
    waitpid(child, &status, 0);
    if (!WIFEXITED(status)) {
        return "made";
    }
    return WEXITSTATUS(status) == 0 ? "none" : WEXITSTATUS(status) == 77 ? "not checked: no seccomp here" : "failed";
}
