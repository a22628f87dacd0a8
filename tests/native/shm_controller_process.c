/* SPDX-License-Identifier: Apache-2.0 */
/* shm_controller_process.c - a controller's environment, while another thread of the job changes the job's own. */
#include "shm/controller_process.h"
#include "tests/native/check.h"

#define LONG_BYTES (4u << 20)

static char *environment[4];
static char *changed_first; /* what environment[0] becomes when the last variable is compared for the first time */
static bool changes;

/* In the C library's place. Called for every variable: the moment at which the other thread's setenv comes. */
int strncmp(const char *left, const char *right, size_t bytes)
{
    if (changes && (left == environment[2] || right == environment[2])) {
        changes = false;
        environment[0] = changed_first;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (left[i] != right[i] || left[i] == '\0') {
            return (unsigned char)left[i] - (unsigned char)right[i];
        }
    }
    return 0;
}

static char path[] = "PATH=/a:/b", home[] = "HOME=/root", other[] = "ZZZ=1";

/* The first variable is counted by then, so there is room for what it was. */
static void check_with_first_changed(char *to)
{
    environment[0] = path;
    environment[1] = home;
    environment[2] = other;
    changed_first = to;
    changes = true;
    char **kept = lagom_controller_environment(environment);
    CHECK(!changes && kept != NULL);
    CHECK(strcmp(kept[0], "PATH=/a:/b") == 0 && strcmp(kept[1], "HOME=/root") == 0);
    lagom_controller_environment_free(kept);
}

static void a_variable_that_grows_meanwhile(void)
{
    char *text = malloc(LONG_BYTES);
    CHECK(text != NULL);
    memset(text, 'x', LONG_BYTES);
    memcpy(text, "PATH=/", 6);
    text[LONG_BYTES - 1] = '\0';
    check_with_first_changed(text);
    free(text);
}

static void one_that_goes_meanwhile(void)
{
    check_with_first_changed(NULL);
}

int main(void)
{
    RUN(a_variable_that_grows_meanwhile);
    RUN(one_that_goes_meanwhile);
    return 0;
}
