/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/lagom_atomic.h"
#include "tuner_plugin/headroom.h"
#include "tuner_plugin/nccl_abi.h"

static const char *const mode_names[] = {[LAGOM_MODE_TUNE] = "tune",
                                         [LAGOM_MODE_REPLAY] = "replay",
                                         [LAGOM_MODE_REPLAY_OR_TUNE] = "replay-or-tune",
                                         [LAGOM_MODE_OFF] = "off"};

const char *lagom_mode_name(enum lagom_mode mode)
{
    return mode_names[mode];
}

static bool is(const char *value, const char *word)
{
    return value != NULL && strcmp(value, word) == 0;
}

static void copy(char *out, size_t room, const char *value)
{
    snprintf(out, room, "%s", value == NULL ? "" : value);
}

static void read_mode(struct lagom_settings *settings, const char *value)
{
    settings->mode_understood = true;
    if (value == NULL || value[0] == '\0' || is(value, "auto")) {
        settings->mode = settings->config[0] != '\0' ? LAGOM_MODE_REPLAY : LAGOM_MODE_TUNE;
        return;
    }
    for (int mode = LAGOM_MODE_TUNE; mode <= LAGOM_MODE_OFF; mode++) {
        if (is(value, mode_names[mode])) {
            settings->mode = (enum lagom_mode)mode;
            return;
        }
    }
    settings->mode = LAGOM_MODE_OFF;
    settings->mode_understood = false;
}

bool lagom_settings_nothing_wanted(void)
{
    enum { UNKNOWN, NOTHING, SOMETHING };
    static uint32_t found = UNKNOWN;
    uint32_t answer = lagom_load_relaxed(&found);
    if (answer == UNKNOWN) {
        const char *headroom = getenv("LAGOM_HEADROOM");
        bool off = is(getenv("LAGOM_MODE"), mode_names[LAGOM_MODE_OFF]);
        answer = off && (headroom == NULL || headroom[0] == '\0') ? NOTHING : SOMETHING;
        lagom_store_relaxed(&found, answer);
    }
    return answer == NOTHING;
}

void lagom_settings_read(struct lagom_settings *settings)
{
    copy(settings->config, sizeof(settings->config), getenv("LAGOM_CONFIG"));
    read_mode(settings, getenv("LAGOM_MODE")); /* which asks for the config */
    settings->threads = is(getenv("LAGOM_NT"), "1");
    settings->spawn = !is(getenv("LAGOM_CONTROLLER"), "none");
    settings->simulated_clock = is(getenv("LAGOM_CLOCK"), "simulated");
    settings->launcher_tells = is(getenv("LAGOM_LAUNCHER"), "1");
    settings->timeline = is(getenv("LAGOM_TIMELINE"), "1");
    settings->headroom_understood = lagom_headroom_read(getenv("LAGOM_HEADROOM"), &lagom_headroom);
    settings->log_level = is(getenv("LAGOM_LOG_LEVEL"), "warn") ? NCCL_LOG_WARN : NCCL_LOG_INFO;
    copy(settings->python, sizeof(settings->python), getenv("LAGOM_PYTHON"));
    copy(settings->folder, sizeof(settings->folder), getenv("LAGOM_DIR"));
    copy(settings->job, sizeof(settings->job), getenv("LAGOM_JOB_ID"));
}
