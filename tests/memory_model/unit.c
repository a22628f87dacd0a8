/* SPDX-License-Identifier: Apache-2.0 */
/* unit.c - one scenario and the shipped sources as one translation unit.
 *
 * run.py compiles it in a copy of csrc whose tables are smaller and, for a broken variant, one ordering weaker. */
#include <stddef.h>

void *model_memcpy(void *to, const void *from, size_t bytes); /* what __builtin_memcpy is compiled as */

#include "agreement/agreement.c"
#include "agreement/publisher.c"
#include "agreement/replay.c"
#include "agreement/switch.c"
#include "plan/choose.c"
#include "plan/cursor.c"
#include "plan/plan.c"
#include "plan/plan_check.c"

#include "scenario_chosen.c" /* written by run.py: includes one of scenarios/ */
