/* log.h - the few things the plugin says: through NCCL's log (NCCL_DEBUG shows it), and once to stderr.
 *
 * Never on stdout, never on the path of a collective. */
#ifndef LAGOM_LOG_H
#define LAGOM_LOG_H

#include "tuner_plugin/nccl_abi.h"

/* The first communicator's log function; NULL = silent. Level: enum nccl_log_level, the most that is said. */
void lagom_log_open(nccl_log_function function, int level);

__attribute__((format(printf, 2, 3))) void lagom_log(int level, const char *format, ...);

/* One line on stderr, where people look who have NCCL_DEBUG off. For the one process a node that speaks. */
__attribute__((format(printf, 1, 2))) void lagom_say(const char *format, ...);

#endif
