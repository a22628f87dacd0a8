/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h - the settings of the user for the plugin: environment variables. Read once, at the first communicator's init. */
#ifndef LAGOM_PLUGIN_SETTINGS_H
#define LAGOM_PLUGIN_SETTINGS_H

#include <limits.h>
#include <stdbool.h>

/* LAGOM_MODE. `auto` is not among them: it stands for replay where LAGOM_CONFIG names a file, else for tune. */
enum lagom_mode { LAGOM_MODE_TUNE, LAGOM_MODE_REPLAY, LAGOM_MODE_REPLAY_OR_TUNE, LAGOM_MODE_OFF };

struct lagom_settings {
    enum lagom_mode mode; /* LAGOM_MODE; a word we do not know is off */
    bool mode_understood;
    bool threads;           /* LAGOM_NT=1 */
    bool spawn;             /* LAGOM_CONTROLLER is not none */
    bool simulated_clock;   /* LAGOM_CLOCK=simulated */
    bool launcher_tells;    /* LAGOM_LAUNCHER=1: `lagom run` prints what it reads from the region */
    bool timeline;          /* LAGOM_TIMELINE is 1 */
    bool headroom_understood; /* LAGOM_HEADROOM: what it says is in lagom_headroom */
    int log_level;          /* LAGOM_LOG_LEVEL: enum nccl_log_level; debug counts as info */
    char config[PATH_MAX];  /* the saved config: LAGOM_CONFIG; empty = none */
    char python[PATH_MAX];  /* LAGOM_PYTHON; empty = that of the installed `lagom` script */
    char folder[PATH_MAX];  /* LAGOM_DIR; empty = derived from the job */
    char job[NAME_MAX];     /* LAGOM_JOB_ID; empty = none */
};

void lagom_settings_read(struct lagom_settings *settings);

/* LAGOM_MODE=off, and no channels beyond NCCL's own that calls must be kept from. Takes no lock. */
bool lagom_settings_nothing_wanted(void);
const char *lagom_mode_name(enum lagom_mode mode);

#endif
