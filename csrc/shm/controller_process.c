/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/controller_process.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* sys is built in: its import searches no folder. Whatever else is imported, is imported after the path is clean. */
const char *lagom_controller_program(void)
{
    return "import sys; sys.path[:] = [path for path in sys.path + sys.argv[1:2] if path]; del sys.argv[1]; "
           "import runpy; runpy.run_module('lagom.controller', run_name='__main__', alter_sys=True)";
}

/* What a Python process needs to find its files and to write text. A rank's environment is about its GPU, its threads
 * and whoever instruments it; a list of what must not be inherited would never be complete. */
static const char *const kept[] = {
    "HOME",
    "LANG",
    "LANGUAGE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONHOME",
    "PYTHONNOUSERSITE",
    "PYTHONPATH",
    "PYTHONPYCACHEPREFIX",
    "PYTHONUSERBASE",
    "PYTHONUTF8",
    "TMPDIR",
    "TZ",
    "USER",
};
static const char *const kept_prefixes[] = {"LAGOM_", "LC_"};

/* One thread: the controller's matrices are small, and more threads would spin on the job's processors. PYTHONSAFEPATH
 * (from 3.11 on): the working folder is not searched, not even for what Python imports by itself. */
static char *const set[] = {"CUDA_VISIBLE_DEVICES=", "MKL_NUM_THREADS=1",    "OMP_NUM_THREADS=1",
                            "OPENBLAS_NUM_THREADS=1", "PYTHONSAFEPATH=1"};
#define SET_COUNT (sizeof(set) / sizeof(set[0]))

static bool is_kept(const char *variable)
{
    size_t name = strcspn(variable, "=");
    for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++) {
        if (strlen(kept[i]) == name && strncmp(variable, kept[i], name) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof(kept_prefixes) / sizeof(kept_prefixes[0]); i++) {
        if (strncmp(variable, kept_prefixes[i], strlen(kept_prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_search_path(const char *variable)
{
    static const char *const names[] = {"LD_LIBRARY_PATH=", "PATH=", "PYTHONPATH="};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strncmp(variable, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* An empty entry of a search path means the working folder, and of PYTHONPATH's PYTHONSAFEPATH does not change that. It is
 * hardly ever meant: `PYTHONPATH=$PYTHONPATH:/more` makes one. `out` has room for the whole variable; false = nothing is
 * left of it. */
static bool without_empty_entries(const char *variable, char *out)
{
    const char *from = strchr(variable, '=') + 1;
    char *start = out + (from - variable), *to = start;
    memcpy(out, variable, (size_t)(from - variable));
    while (*from != '\0') {
        size_t length = strcspn(from, ":");
        if (length > 0 && to > start) {
            *to++ = ':';
        }
        memcpy(to, from, length);
        to += length;
        from += length + (from[length] == ':');
    }
    *to = '\0';
    return to > start;
}

/* The pointers, read once: another thread may call setenv meanwhile. *count is what there is room for, then what is there. */
static char **snapshot(char *const environment[], size_t *count)
{
    char **variables = malloc((*count + 1) * sizeof(char *));
    size_t taken = 0;
    while (variables != NULL && taken < *count && (variables[taken] = environment[taken]) != NULL) {
        taken++;
    }
    *count = taken;
    return variables;
}

/* `out` has room for all `count` variables, those set, NULL and behind that the text of rewritten search paths. */
static void fill(char **out, char *const variables[], size_t count)
{
    char *rewritten = (char *)(out + count + SET_COUNT + 1);
    size_t used = 0;
    for (size_t i = 0; i < count; i++) {
        if (is_search_path(variables[i])) {
            out[used] = rewritten;
            used += without_empty_entries(variables[i], rewritten);
            rewritten += strlen(variables[i]) + 1;
        } else if (is_kept(variables[i])) {
            out[used++] = variables[i];
        }
    }
    memcpy(out + used, set, sizeof(set));
    out[used + SET_COUNT] = NULL;
}

char **lagom_controller_environment(char *const environment[])
{
    size_t count = 0, text = 0;
    while (environment[count] != NULL) {
        count++;
    }
    char **variables = snapshot(environment, &count);
    if (variables == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        text += is_search_path(variables[i]) ? strlen(variables[i]) + 1 : 0;
    }
    char **out = malloc((count + SET_COUNT + 1) * sizeof(char *) + text);
    if (out != NULL) {
        fill(out, variables, count);
    }
    free(variables);
    return out;
}

void lagom_controller_environment_free(char **environment)
{
    free(environment);
}
