/* unit.c - one scenario and the shipped sources as one translation unit, for both checkers.
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
#ifdef LAGOM_MODEL_GENMC
#include "tests/memory_model/plan_words.c"
#else
#include "plan/plan.c"
#include "plan/plan_check.c"
#endif

#include SCENARIO
