/* genmc_main.c - a scenario as a program for GenMC, which visits every execution that its memory model allows. */
#include <assert.h>
#include <pthread.h>
#include <stddef.h>

/* Memory starts as zero here and is set up once, so nothing needs clearing. */
#define LAGOM_MODEL_GENMC
#define memset(to, value, bytes) ((void)(to), (void)(value), (void)(bytes))

#include "tests/memory_model/unit.c"

/* Records are words: GenMC copies no untyped bytes. */
void *model_memcpy(void *to, const void *from, size_t bytes)
{
    for (size_t i = 0; i < bytes / 8; i++) {
        ((uint64_t *)to)[i] = ((const uint64_t *)from)[i];
    }
    return to;
}

void model_share(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}

void model_plain(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}

void model_narrow(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}

void model_private(void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}

void model_require(int holds, const char *what)
{
    (void)what;
    assert(holds);
}

static void *run_thread(void *index)
{
    scenario_thread((unsigned)(size_t)index);
    return NULL;
}

int main(void)
{
    pthread_t threads[3];
    scenario_setup();
    for (size_t i = 0; i < scenario_threads; i++) {
        pthread_create(&threads[i], NULL, run_thread, (void *)i);
    }
    for (size_t i = 0; i < scenario_threads; i++) {
        pthread_join(threads[i], NULL);
    }
    scenario_check();
    return 0;
}
