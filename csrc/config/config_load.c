/* SPDX-License-Identifier: Apache-2.0 */
/* config_load.c - the saved config's file into memory, whole or not at all. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config_text.h"

#define MAX_FILE_BYTES (4u << 20)

/* NULL with `error` filled if it cannot be read whole. */
static char *read_whole(int fd, size_t length, const char *path, char *error, size_t error_bytes)
{
    char *text = malloc(length + 1);
    size_t have = 0;
    while (text != NULL && have < length) {
        ssize_t got = read(fd, text + have, length - have);
        if (got <= 0) {
            free(text);
            text = NULL;
        } else {
            have += (size_t)got;
        }
    }
    if (text == NULL) {
        snprintf(error, error_bytes, "the saved config %s could not be read whole.", path);
    }
    return text;
}

int lagom_config_file_load(const char *path, struct lagom_config_file *out, char *error, size_t error_bytes)
{
    struct stat file;
    *out = (struct lagom_config_file){.fingerprint = {.p2p = -1}};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode) || file.st_size > (off_t)MAX_FILE_BYTES) {
        snprintf(error, error_bytes, "the saved config %s is not a readable file of at most %u MiB.", path,
                 MAX_FILE_BYTES >> 20);
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    char *text = read_whole(fd, (size_t)file.st_size, path, error, error_bytes);
    close(fd);
    int result = text == NULL ? -1 : lagom_config_file_parse(text, (size_t)file.st_size, out, error, error_bytes);
    free(text);
    return result;
}
