/* SPDX-License-Identifier: Apache-2.0 */
/* config_text.h - the saved config file, read without Python: replay needs no controller.
 *
 * Line based, '#' comments, every line checked; an unknown word refuses the whole file with its line number.
 *
 *   lagom-config 1
 *   fingerprint nccl 23007
 *   fingerprint ranks 8                      (world size; other keys: nodes, gpu "NVIDIA H200", p2p 0|1, torch …)
 *   fingerprint simulated 1                  (found in a job without GPUs, such as a demo: for no real job)
 *   environment NCCL_MIN_NCHANNELS 32        (what the job must be started with: environment.h)
 *   communicator ranks=8 nodes=1 ordinal=0 name="default_pg"     (starts a section; name optional)
 *   site 0 allgather 436207616 algo=ring proto=simple nc=3 chunk=262144 nt=0
 *   program 0 0 1 0 1                        (site indices, may be repeated: lines are joined; `3x0` = 0 0 0)
 *   rule allgather 1048576 - nc=4            (min max; '-' = none; function may be `any`)
 *   end
 *
 * Omitted knobs are left to NCCL; so is nc=0, nt=0 and chunk=0. Sizes are bytes and take K, M, G suffixes (powers of
 * 1024). Sites come in order, before the program that names them. A section needs `end`.
 */
#ifndef LAGOM_CONFIG_TEXT_H
#define LAGOM_CONFIG_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "config/environment.h"
#include "protocol/lagom_protocol.h"

#define LAGOM_CONFIG_MAX_SECTIONS 16u

struct lagom_config_section {
    uint32_t rank_count;
    uint32_t node_count;
    uint32_t ordinal;
    char name[LAGOM_NAME_BYTES]; /* empty = any */
    struct lagom_plan content;   /* sites, positions, rules; nothing else is set */
};

struct lagom_fingerprint {
    uint32_t nccl_version; /* 0 = not said, then not compared */
    uint32_t ranks;
    uint32_t nodes;
    int32_t p2p; /* -1 = not said */
    char gpu[LAGOM_NAME_BYTES];
    uint32_t simulated; /* 1 = of a job whose GPUs are simulated */
};

struct lagom_config_file {
    struct lagom_fingerprint fingerprint;
    uint32_t section_count;
    struct lagom_config_section *sections; /* malloc'ed */
    uint32_t environment_count;
    struct lagom_environment environment[LAGOM_CONFIG_MAX_ENVIRONMENT];
};

/* 0 on success; else `error` holds one sentence with the line number, and nothing was kept. */
int lagom_config_file_parse(const char *text, size_t length, struct lagom_config_file *out, char *error,
                            size_t error_bytes);
int lagom_config_file_load(const char *path, struct lagom_config_file *out, char *error, size_t error_bytes);
void lagom_config_file_free(struct lagom_config_file *config);

/* LAGOM_SAVED_CONFIG_FITS, or the first difference, which is in `out` then. */
enum lagom_saved_config lagom_fingerprint_compare(const struct lagom_fingerprint *wanted,
                                                  const struct lagom_fingerprint *here, struct lagom_refusal *out);

/* A refusal in words, one clause: "made for 16 ranks, this job has 8". Empty where nothing was refused. */
void lagom_refusal_text(enum lagom_saved_config cause, const struct lagom_refusal *refusal, char *out, size_t room);

const struct lagom_config_section *lagom_config_file_section_for(const struct lagom_config_file *config,
                                                                 uint32_t rank_count, uint32_t node_count,
                                                                 uint32_t ordinal, const char *name);

/* One rule of `--set "allgather:>=1M:nc=4,chunk=512K,nt=256"`; function `any` and ranges `1M-16M`, `<=64K`,
 * `=436207616` too. 0 on success. Shared by LAGOM_SET and the command line. */
int lagom_rule_parse(const char *text, struct lagom_rule *out, char *error, size_t error_bytes);

#endif
