/* SPDX-License-Identifier: Apache-2.0 */
/* shm_controller_python.c - which Python a rank would start: LAGOM_PYTHON, or the first line of the installed script. */
#include <limits.h>
#include <sys/stat.h>

#include "shm/controller_python.h"
#include "tests/native/check.h"

#define OTHER 65534

static char folder[PATH_MAX] = "/tmp/lagom-python-XXXXXX";
static char python[PATH_MAX], reason[256];

static const char *in_folder(const char *name)
{
    static char paths[4][2 * PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void make_program(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0 && chmod(path, 0755) == 0);
}

static bool found(const char *wanted)
{
    reason[0] = '\0';
    return lagom_controller_python(wanted, python, reason, sizeof(reason));
}

static bool finds(const char *expected)
{
    return found("") && strcmp(python, expected) == 0;
}

static bool refused(const char *why)
{
    return !found("") && strstr(reason, why) != NULL;
}

/* The script's text is `format`, with the path of a Python in it. */
static void make_script(const char *format, const char *interpreter)
{
    char text[3 * PATH_MAX];
    snprintf(text, sizeof(text), format, interpreter);
    make_program(in_folder("bin/lagom"), text);
}

static void what_is_wanted_goes_first(void)
{
    make_script("#!%s\n", in_folder("bin/python3"));
    CHECK(found(in_folder("bin/python3.11")) && strcmp(python, in_folder("bin/python3.11")) == 0);
    CHECK(!found("python3") && strstr(reason, "an absolute path is needed, not python3") != NULL);
    CHECK(!found("/nonexistent/python") && strstr(reason, "it cannot be run: /nonexistent/python") != NULL);
}

static void every_form_that_installers_write(void)
{
    char expected[PATH_MAX + 32];
    snprintf(expected, sizeof(expected), "%s/bin/python3.11", folder);
    static const char *const forms[] = {
        "#!%s\n# -*- coding: utf-8 -*-\n", "#! %s -s\n", "#!%s\r\n", "#!%s", /* without a line's end */
        "#!/bin/sh\n'''exec' %s \"$0\" \"$@\"\n' '''\nimport re\n", "#!/bin/sh\n'''exec' \"%s\" \"$0\" \"$@\"\n' '''\n",
        "#!/bin/sh\n'''exec' '%s' \"$0\" \"$@\"\n' '''\n",
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        make_script(forms[i], expected);
        CHECK(finds(expected));
    }
}

static void a_path_with_a_blank(void)
{
    CHECK(mkdir(in_folder("a b"), 0755) == 0);
    make_program(in_folder("a b/python3"), "");
    make_script("#!/bin/sh\n'''exec' \"%s\" \"$0\" \"$@\"\n' '''\n", in_folder("a b/python3"));
    CHECK(finds(in_folder("a b/python3")));
    make_script("#!%s\n", in_folder("a b/python3")); /* as the kernel reads it: cut at the blank, so another program */
    CHECK(refused("no Python's absolute path is in the first line of"));
}

static void what_names_no_python_is_refused(void)
{
    static const char *const forms[] = {
        "", "\n", "#!", "#!/usr/bin/env python3\n", "#!python3\n", "#!/bin/sh\nexec lagom-real\n", "\177ELF\2\1\1",
        "#!/bin/sh\n'''exec' \"$(dirname -- \"$0\")/python3\" \"$0\" \"$@\"\n", "#!/bin/bash\n'''exec' /usr/bin/python3\n",
        "#!/bin/sh\n'''exec' ",
    };
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        make_script("%s", forms[i]);
        CHECK(refused("no Python's absolute path is in the first line of /") && strstr(reason, "bin/lagom") != NULL);
    }
    make_script("#!%s\n", "/nonexistent/bin/python3");
    CHECK(refused("it cannot be run: /nonexistent/bin/python3"));
}

static void a_line_of_any_length_is_survived(void)
{
    static char text[4 * PATH_MAX];
    memset(text, 'p', sizeof(text) - 1);
    memcpy(text, "#!/", 3);
    make_program(in_folder("bin/lagom"), text);
    CHECK(!found("") && reason[0] != '\0');
}

/* The search goes by PATH's order, through absolute folders only, and a folder of that name is no script. */
static void path_is_searched_as_far_as_it_is_absolute(void)
{
    char path[4 * PATH_MAX], before[PATH_MAX];
    make_script("#!%s\n", in_folder("bin/python3.11"));
    CHECK(mkdir(in_folder("checkout"), 0755) == 0 && mkdir(in_folder("checkout/lagom"), 0755) == 0);
    CHECK(mkdir(in_folder("later"), 0755) == 0);
    make_program(in_folder("later/lagom"), "#!/nonexistent/python\n");
    snprintf(path, sizeof(path), "::/nonexistent:%s:%s:%s", in_folder("checkout"), in_folder("bin"), in_folder("later"));
    setenv("PATH", path, 1);
    CHECK(finds(in_folder("bin/python3.11")));
    CHECK(getcwd(before, sizeof(before)) != NULL && chdir(folder) == 0);
    setenv("PATH", "bin:.:", 1);
    CHECK(refused("no `lagom` script is in the installation of the plugin or on PATH"));
    unsetenv("PATH");
    CHECK(refused("no `lagom` script"));
    CHECK(chdir(before) == 0);
    setenv("PATH", in_folder("bin"), 1);
}

/* Although a good one comes later: who put a bad one first meant it to be found. */
static void a_script_that_others_could_change_is_refused(void)
{
    make_script("#!%s\n", in_folder("bin/python3.11"));
    CHECK(chmod(in_folder("bin/lagom"), 0777) == 0 && refused("every user may write"));
    CHECK(chmod(in_folder("bin/lagom"), 0755) == 0 && finds(in_folder("bin/python3.11")));
    CHECK(chmod(in_folder("bin/python3.11"), 0777) == 0 && refused("every user may write"));
    CHECK(chmod(in_folder("bin/python3.11"), 0755) == 0);
    if (geteuid() == 0) { /* tests/system/test_other_users.py says so where it is not */
        CHECK(chown(in_folder("bin/lagom"), OTHER, OTHER) == 0 && refused("another user (65534) owns"));
        CHECK(chown(in_folder("bin/lagom"), 0, 0) == 0);
    }
}

/* This program lies where the plugin would: it is started there and says which Python it finds. */
static void the_script_of_the_own_installation_goes_before_path(void)
{
    char program[PATH_MAX], command[5 * PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    CHECK(length > 0);
    program[length] = '\0';
    make_script("#!%s\n", in_folder("bin/python3"));
    snprintf(command, sizeof(command), "/bin/mkdir -p '%s' && /bin/cp '%s' '%s'",
             in_folder("lib/python3/site-packages/lagom/_lib"), program,
             in_folder("lib/python3/site-packages/lagom/_lib/program"));
    CHECK(system(command) == 0);
    make_program(in_folder("later/lagom"), "#!/nonexistent/python\n");
    snprintf(command, sizeof(command), "PATH='%s' '%s' '%s'", in_folder("later"),
             in_folder("lib/python3/site-packages/lagom/_lib/program"), in_folder("bin/python3"));
    CHECK(system(command) == 0);
    CHECK(chmod(in_folder("bin/lagom"), 0777) == 0);
    CHECK(system(command) != 0); /* refused: PATH is not asked instead */
}

int main(int count, char **arguments)
{
    if (count == 2) { /* as started by the_script_of_the_own_installation_goes_before_path */
        return finds(arguments[1]) ? 0 : 1;
    }
    CHECK(mkdtemp(folder) != NULL && mkdir(in_folder("bin"), 0755) == 0);
    make_program(in_folder("bin/python3"), "");
    make_program(in_folder("bin/python3.11"), "");
    setenv("PATH", in_folder("bin"), 1);
    RUN(what_is_wanted_goes_first);
    RUN(every_form_that_installers_write);
    RUN(a_path_with_a_blank);
    RUN(what_names_no_python_is_refused);
    RUN(a_line_of_any_length_is_survived);
    RUN(path_is_searched_as_far_as_it_is_absolute);
    RUN(a_script_that_others_could_change_is_refused);
    RUN(the_script_of_the_own_installation_goes_before_path);
    char command[2 * PATH_MAX];
    snprintf(command, sizeof(command), "/bin/rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : 1;
}
