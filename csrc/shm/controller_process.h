/* SPDX-License-Identifier: Apache-2.0 */
/* controller_process.h - what a controller is started with: the program text for Python and the environment. One source
 * for both ways of starting: by a rank (tuner_plugin/spawn.c) and by `lagom run` (lagom/wire/library.py).
 */
#ifndef LAGOM_CONTROLLER_PROCESS_H
#define LAGOM_CONTROLLER_PROCESS_H

/* For `python -c`; its first argument is a folder to search last for the package, or empty. As `-m lagom.controller`, but
 * the job's working folder, where other users may be allowed to write, is not searched. That needs the environment
 * below too: from 3.13 on Python itself imports modules before the first word of this text runs. */
const char *lagom_controller_program(void);

/* Of the variables "NAME=value" (NULL-terminated) those that the controller gets, and the ones set for it. The kept ones
 * are not copied. NULL = no memory. The free is the library's own: a caller's may belong to another allocator. */
char **lagom_controller_environment(char *const environment[]);
void lagom_controller_environment_free(char **environment);

#endif
