/* SPDX-License-Identifier: Apache-2.0 */
/* standalone.c - the driver where there is no libFuzzer: replays a corpus, then mutates it for some seconds.
 *
 *   <target> [-seconds=N] FILE_OR_FOLDER...
 *
 * No coverage guides it: this is the regression test of every machine with a C compiler, not the hunt (make fuzz). The
 * input that is running lies in the file named by LAGOM_FUZZ_INPUT, so that a crash can be repeated.
 */
#include "fuzz.h"

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_INPUTS 4096u
#define LARGEST 16384u

struct input {
    uint8_t *data;
    size_t size;
};

static struct input inputs[MOST_INPUTS];
static uint32_t count;
static const char *kept; /* where the running input lies */

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

static void read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL || count == MOST_INPUTS) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(2);
    }
    struct input *input = &inputs[count++];
    input->data = malloc(LARGEST);
    input->size = fread(input->data, 1, LARGEST, file);
    fclose(file);
}

static void read_path(const char *path)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    char inside[4096];
    if (folder == NULL) {
        read_file(path);
        return;
    }
    while ((entry = readdir(folder)) != NULL) {
        snprintf(inside, sizeof(inside), "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') {
            read_file(inside);
        }
    }
    closedir(folder);
}

/* ---- Running ---------------------------------------------------------------------------------------------------- */

static void keep(const uint8_t *data, size_t size)
{
    FILE *file = kept == NULL ? NULL : fopen(kept, "wb");
    if (file != NULL) {
        fwrite(data, 1, size, file);
        fclose(file);
    }
}

/* In memory of exactly its size: what is read beyond it is seen. */
static void run(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size > 0 ? size : 1);
    memcpy(copy, data, size);
    keep(data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

static uint64_t next_random(void)
{
    static uint64_t state = 0x6c61676f6dULL;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 0x2545f4914f6cdd1dULL;
}

/* One of: change a byte, insert some, take some out, put a piece of another input in. */
static size_t mutate(uint8_t *data, size_t size)
{
    size_t at = size > 0 ? next_random() % size : 0, length = next_random() % 16;
    const struct input *other = &inputs[next_random() % count];
    switch (next_random() % 4) {
    case 0:
        if (size > 0) {
            data[at] = (uint8_t)next_random();
        }
        return size;
    case 1:
        length = size + length <= LARGEST ? length : 0;
        memmove(data + at + length, data + at, size - at);
        memset(data + at, (int)next_random(), length);
        return size + length;
    case 2:
        length = length <= size - at ? length : size - at;
        memmove(data + at, data + at + length, size - at - length);
        return size - length;
    default:
        length = other->size <= LARGEST - at ? other->size : LARGEST - at;
        length = length > 0 ? next_random() % length + 1 : 0;
        memcpy(data + at, other->data, length);
        return at + length > size ? at + length : size;
    }
}

static void run_mutant(void)
{
    static uint8_t data[LARGEST];
    const struct input *from = &inputs[next_random() % count];
    size_t size = from->size;
    memcpy(data, from->data, size);
    for (uint64_t times = 1 + next_random() % 6; times > 0; times--) {
        size = mutate(data, size);
    }
    run(data, size);
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argument_count, char **arguments)
{
    double seconds = 0;
    uint64_t mutants = 0;
    kept = getenv("LAGOM_FUZZ_INPUT");
    for (int i = 1; i < argument_count; i++) {
        if (sscanf(arguments[i], "-seconds=%lf", &seconds) != 1) {
            read_path(arguments[i]);
        }
    }
    run((const uint8_t *)"", 0);
    for (uint32_t i = 0; i < count; i++) {
        run(inputs[i].data, inputs[i].size);
    }
    for (double end = seconds_now() + seconds; count > 0 && seconds_now() < end; mutants++) {
        run_mutant();
    }
    printf("%u inputs, %llu mutants\n", count, (unsigned long long)mutants);
    for (uint32_t i = 0; i < count; i++) {
        free(inputs[i].data);
    }
    return 0;
}
