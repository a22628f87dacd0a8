#include "tuner_plugin/by_size.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shm/job_key.h"
#include "shm/node_rules.h"
#include "tuner_plugin/log.h"
#include "tuner_plugin/static_rules.h"

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool refuse(char *reason, size_t room, const char *text)
{
    snprintf(reason, room, "%s", text);
    return false;
}

/* What this process has read; false = no rules, and why. */
static bool read_rules(struct lagom_job *job, const struct lagom_init_info *info, char *reason, size_t room)
{
    const char *pins = variable("LAGOM_SET");
    job->static_rules = (struct lagom_node_rules){0};
    if (job->settings.mode != LAGOM_MODE_REPLAY) {
        return refuse(reason, room,
                      "NCCL before 2.27 does not tell communicators apart, so nothing can be tuned here; size rules can "
                      "be replayed: LAGOM_MODE=replay with LAGOM_PROFILE or LAGOM_SET.");
    }
    if (job->settings.profile[0] != '\0') {
        return lagom_job_load_profile(job, info, reason, room) == NULL &&
               lagom_static_rules_from_profile(&job->profile, &job->static_rules, reason, room);
    }
    return pins != NULL ? lagom_static_rules_from_text(pins, &job->static_rules, reason, room)
                        : refuse(reason, room, "LAGOM_MODE=replay, but neither LAGOM_PROFILE nor LAGOM_SET is set.");
}

static const char *withheld_rules(uint32_t withheld)
{
    if (withheld & LAGOM_WITHHELD_BY_USER) {
        return " rules with an algorithm, whole, for NCCL_ALGO or NCCL_PROTO is set;";
    }
    return withheld & LAGOM_WITHHELD_BY_NCCL
               ? " rules with an algorithm but plain ring and tree, whole, for this NCCL does not say what it offers;"
               : "";
}

static void restrict_rules(struct lagom_job *job, const struct lagom_init_info *info)
{
    bool user_chooses = variable("NCCL_ALGO") != NULL || variable("NCCL_PROTO") != NULL;
    uint32_t withheld = lagom_static_rules_restrict(&job->static_rules, info->tuner_api, user_chooses);
    if (withheld == 0) {
        return;
    }
    char text[LAGOM_PATH_BYTES];
    snprintf(text, sizeof(text), "of the size rules, not in force here:%s%s",
             withheld & LAGOM_WITHHELD_KNOBS ? " chunk and threads, which this NCCL takes from no tuner;" : "",
             withheld_rules(withheld));
    text[strlen(text) - 1] = '.';
    lagom_job_remark(job, "%s", text);
}

static void say_what_holds(struct lagom_job *job, enum lagom_node_rules_result result)
{
    switch (result) {
    case LAGOM_NODE_RULES_REPLACED:
        lagom_job_remark(job, "another process of this node had read %u other size rules before; those hold here too.",
                         job->static_rules.rule_count);
        break;
    case LAGOM_NODE_RULES_ALONE:
        lagom_job_remark(job, "the size rules could not be compared with those of the other ranks of this node.");
        break;
    case LAGOM_NODE_RULES_MADE:
        lagom_say("replaying %u size rules from the first call on", job->static_rules.rule_count);
        break;
    case LAGOM_NODE_RULES_SAME: break;
    }
}

static enum lagom_standing fall_back(struct lagom_job *job, const char *reason)
{
    lagom_job_remark(job, "no size rules here, NCCL runs stock: %s", reason);
    return LAGOM_FALLBACK;
}

/* A rank that cannot use the region still follows what it has read: the others do, and read the same. Only a job without
 * a name is left alone as a whole: every rank of it sees that it has none. */
enum lagom_standing lagom_by_size_join(struct lagom_job *job, const struct lagom_init_info *info)
{
    char key[LAGOM_PATH_BYTES], reason[LAGOM_PATH_BYTES], unused[LAGOM_PATH_BYTES];
    if (!lagom_job_key(key, 0)) {
        return fall_back(job, "the job has no name by which its ranks find each other; set LAGOM_JOB_ID.");
    }
    lagom_job_join_region(job, info, unused, sizeof(unused));
    bool has_rules = read_rules(job, info, reason, sizeof(reason));
    restrict_rules(job, info);
    enum lagom_node_rules_result result = lagom_node_rules_settle(&job->mapping, &job->static_rules);
    if (job->static_rules.rule_count == 0) {
        return fall_back(job, has_rules ? "another process of this node had read none before." : reason);
    }
    say_what_holds(job, result);
    return LAGOM_STATIC_RULES;
}
