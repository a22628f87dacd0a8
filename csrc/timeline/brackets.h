/* SPDX-License-Identifier: Apache-2.0 */
/* brackets.h - the notes of the launching threads, as liblagom_timeline.h offers them. */
#ifndef LAGOM_BRACKETS_H
#define LAGOM_BRACKETS_H

#include "timeline/cupti_loader.h"

/* While CUPTI records: a bracket also pushes its serial as CUPTI's external correlation id. NULL = no longer. */
void lagom_brackets_use(const struct lagom_cupti *cupti);

#endif
