/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/controller_python.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shm/ownership.h"

/* <prefix>/bin/lagom, seen from <prefix>/lib/pythonX.Y/site-packages/lagom/_lib: so in virtual environments, in the user's
 * ~/.local, and in a distribution's dist-packages. */
#define SCRIPT_OF_INSTALLATION "../../../../../bin/lagom"
#define LINE_BYTES (PATH_MAX + 64)

static bool refuse(char *reason, size_t room, const char *why, const char *path)
{
    snprintf(reason, room, "%s%.120s", why, path);
    return false;
}

static bool is_file(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* ---- The script ------------------------------------------------------------------------------------------------- */

/* A relative folder is skipped: what it means, the job's working folder decides. */
static bool find_in_path(char script[PATH_MAX])
{
    const char *entry = getenv("PATH");
    while (entry != NULL && *entry != '\0') {
        size_t length = strcspn(entry, ":");
        int written = snprintf(script, PATH_MAX, "%.*s/lagom", (int)length, entry);
        if (entry[0] == '/' && written < PATH_MAX && is_file(script) && access(script, X_OK) == 0) {
            return true;
        }
        entry += length + (entry[length] == ':');
    }
    return false;
}

/* The first one that is there, or none: where that one cannot be trusted, another one is not looked for. */
static bool find_script(char script[PATH_MAX], char *reason, size_t room)
{
    bool guarded = lagom_guarded_beside(SCRIPT_OF_INSTALLATION, script, reason, room);
    if (guarded || is_file(script)) {
        return guarded;
    }
    return find_in_path(script) ? lagom_path_is_guarded(script, NULL, reason, room)
                                : refuse(reason, room, "no `lagom` script is in the installation of the plugin or on PATH", "");
}

/* ---- Its Python ------------------------------------------------------------------------------------------------- */

/* The first word, which may be in quotes. */
static void copy_word(const char *line, char out[PATH_MAX])
{
    const char *word = line + strspn(line, " \t");
    const char *end = word[0] == '\'' ? "'" : word[0] == '"' ? "\"" : " \t";
    word += end[0] == word[0];
    snprintf(out, PATH_MAX, "%.*s", (int)strcspn(word, end), word);
}

/* Neither /usr/bin/env, which PATH decides about, nor a shell: the controller's program is Python's. */
static bool names_python(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    return path[0] == '/' && (strncmp(name, "python", 6) == 0 || strncmp(name, "pypy", 4) == 0);
}

static bool read_script(const char *script, char python[PATH_MAX], char *reason, size_t room)
{
    static const char exec[] = "'''exec' ";
    char lines[2][LINE_BYTES] = {"", ""}, resolved[PATH_MAX];
    FILE *file = fopen(script, "re");
    for (int i = 0; i < 2 && file != NULL && fgets(lines[i], LINE_BYTES, file) != NULL; i++) {
        lines[i][strcspn(lines[i], "\r\n")] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    copy_word(strncmp(lines[0], "#!", 2) == 0 ? lines[0] + 2 : "", python);
    /* A path that is too long for a first line, or has blanks: pip and uv then write a shell script that Python can read. */
    if (strcmp(python, "/bin/sh") == 0 && strncmp(lines[1], exec, strlen(exec)) == 0) {
        copy_word(lines[1] + strlen(exec), python);
    }
    return names_python(python) || refuse(reason, room, "no Python's absolute path is in the first line of ",
                                          realpath(script, resolved) != NULL ? resolved : script);
}

bool lagom_controller_python(const char *wanted, char *python, char *reason, size_t reason_bytes)
{
    char script[PATH_MAX];
    snprintf(python, PATH_MAX, "%s", wanted);
    if (wanted[0] == '\0' &&
        (!find_script(script, reason, reason_bytes) || !read_script(script, python, reason, reason_bytes))) {
        return false;
    }
    if (python[0] != '/') {
        return refuse(reason, reason_bytes, "an absolute path is needed, not ", python);
    }
    if (access(python, X_OK) != 0) {
        return refuse(reason, reason_bytes, "it cannot be run: ", python);
    }
    return lagom_path_is_guarded(python, NULL, reason, reason_bytes);
}
