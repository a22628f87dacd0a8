/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of the kernel timeline ends when it is told to: by then it reads what the one who told it had noted before. */
#include <pthread.h>
#include <time.h>

#include "tests/memory_model/scenario.h"

#define TURNS 4

static int turns;

/* The thread is the scenario's. A turn does not wait, and there are not more of them than are worth looking at. */
#define pthread_join(thread, result) ((void)(thread))
#define nanosleep(turn, left) \
    if ((void)(turn), ++turns == TURNS) return NULL

#include "timeline/launches.c"
#include "timeline/capture_thread.c"

#undef pthread_join
#undef nanosleep

const unsigned scenario_threads = 2;

static uint32_t ended, missed;

int lagom_kernel_ring_push(struct lagom_region *region, uint32_t process, const struct lagom_kernel_span *span)
{
    (void)region;
    (void)process;
    (void)span;
    return 0;
}
void lagom_cupti_control_init(struct lagom_cupti_control *control, struct lagom_region *region, uint32_t process,
                              lagom_timeline_push push)
{
    (void)control;
    (void)region;
    (void)process;
    (void)push;
}
void lagom_cupti_control_step(struct lagom_cupti_control *control)
{
    (void)control;
}
void lagom_cupti_control_end(struct lagom_cupti_control *control) /* as far as it reads notes */
{
    struct lagom_note note;
    (void)control;
    ended = 1;
    missed = !lagom_note_take(&note) || note.serial != 7;
}

void scenario_setup(void)
{
    model_share(&places[0], sizeof(places[0]));
    model_plain(&places[0].note, sizeof(places[0].note));
    model_share(&written, sizeof(written));
    model_share(&timeline.ending, sizeof(timeline.ending));
    model_private(&taken, sizeof(taken));
    model_private(&threads, sizeof(threads));
    model_private(&turns, sizeof(turns));
    model_private(&ended, sizeof(ended));
    model_private(&missed, sizeof(missed));
    timeline.owner = getpid();
    timeline.running = true;
}

void scenario_thread(unsigned thread)
{
    if (thread == 1) {
        run_thread(NULL);
        return;
    }
    const struct lagom_note note = {.serial = 7};
    lagom_note_add(&note);
    lagom_timeline_detach();
}

void scenario_check(void)
{
    model_require(!ended || !missed, "a note from before the end was not read");
}
