/* SPDX-License-Identifier: Apache-2.0 */
/* agreement_interleavings.c - every interleaving of ranks and whoever publishes, over the functions that ship; and
 * faults planted in it, each of which must be found. agreement_interleavings/README.md tells the design.
 *
 *     agreement_interleavings [full | PART OF A NAME] [trace]
 */
#include <stdio.h>
#include <string.h>

#include "tests/native/agreement_interleavings/model.h"

static bool is_wanted(const struct scenario *scenario, const char *word)
{
    if (word[0] == '\0') {
        return !scenario->slow;
    }
    return strcmp(word, "full") == 0 || strstr(scenario->name, word) != NULL;
}

int main(int argc, char **argv)
{
    static const struct scenario *const tables[] = {switch_scenarios, restart_scenarios, stop_scenarios,
                                                    lease_scenarios};
    const char *wanted = argc > 1 ? argv[1] : "";
    bool with_trace = argc > 2 && strcmp(argv[2], "trace") == 0;
    unsigned done = 0, bad = 0;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        for (const struct scenario *scenario = tables[i]; scenario->name != NULL; scenario++) {
            if (is_wanted(scenario, wanted)) {
                bad += !run(scenario, with_trace);
                done++;
            }
        }
    }
    printf("%u scenarios, %u not as they should be\n", done, bad);
    return done > 0 && bad == 0 ? 0 : 1;
}
