/* SPDX-License-Identifier: Apache-2.0 */
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "benchmarks/latency/latency.h"
#include "shm/job_key.h"
#include "shm/region.h"
#include "shm/ring.h"
#include "tuner_plugin/nccl_abi.h"

float table[LAGOM_ALGORITHMS][LAGOM_PROTOCOLS];
int channels;
size_t chunk_bytes;
struct lagom_region *region;
uint32_t communicator;

void offer(void)
{
    static const float times[LAGOM_ALGORITHMS][LAGOM_PROTOCOLS] = {
        {300, 250, 200}, {180, 140, 100}, {-1, -1, -1}, {-1, -1, -1}, {-1, -1, 120}, {-1, -1, 130}, {-1, -1, -1}};
    memcpy(table, times, sizeof(table));
    channels = 0;
    chunk_bytes = 2u << 20;
}

struct lagom_site site_at(uint32_t index)
{
    struct lagom_config config = {.algorithm = LAGOM_RING,
                                  .protocol = LAGOM_SIMPLE,
                                  .channels = (uint16_t)(1 + index % 16),
                                  .chunk_bytes = 1u << 18};
    return (struct lagom_site){.bytes = (1u << 20) + (index % 32) * 4096u,
                               .function = index % 3 == 2 ? LAGOM_REDUCE_SCATTER : LAGOM_ALL_GATHER,
                               .incumbent = config,
                               .candidate = config};
}

uint32_t site_of_position(uint32_t position)
{
    return position % SITES;
}

void fill_program(struct lagom_plan *plan, uint32_t positions)
{
    plan->position_count = positions;
    plan->site_count = SITES;
    for (uint32_t i = 0; i < SITES; i++) {
        plan->sites[i] = site_at(i);
    }
    for (uint32_t i = 0; i < positions; i++) {
        plan->positions[i] = (uint16_t)site_of_position(i);
    }
}

void fill_rules(struct lagom_plan *plan, uint32_t count)
{
    plan->rule_count = count;
    for (uint32_t i = 0; i < count; i++) {
        plan->rules[i] = (struct lagom_rule){.bytes_min = i + 1 == count ? 0 : 1u << 30,
                                             .bytes_max = UINT64_MAX,
                                             .function = LAGOM_ANY_FUNCTION,
                                             .incumbent = site_at(3).incumbent,
                                             .candidate = site_at(3).incumbent};
    }
}

/* The driver, for the plugin: each rank of this program has a GPU of its own, or they would be taken for one. */
int cuCtxGetDevice(int *device);
int cuCtxGetDevice(int *device)
{
    static int next;
    *device = next++;
    return 0;
}

struct rank open_rank(const char *library_path, int api)
{
    struct rank rank = {.step = 0};
    void *library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fail(dlerror());
    }
    if (api == 5) {
        const struct nccl_tuner_v5 *tuner = dlsym(library, "ncclTunerPlugin_v5");
        tuner->init(&rank.context, COMM, 2, 1, NULL, NULL, NULL);
        rank.ask = tuner->get_coll_info;
    } else {
        const struct nccl_tuner_v6 *tuner = dlsym(library, "ncclTunerPlugin_v6");
        tuner->init(&rank.context, COMM, 2, 1, NULL, NULL, NULL);
        rank.ask = tuner->get_coll_info;
        rank.chunk = tuner->get_chunk_size;
    }
    return rank;
}

void map_region(void)
{
    char key[LAGOM_PATH_BYTES], path[LAGOM_PATH_BYTES];
    lagom_job_key(key, 0);
    lagom_region_path(key, path);
    int fd = open(path, O_RDWR | O_CLOEXEC); /* kept open: closing it would drop the plugin's locks */
    region = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*region), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (region == MAP_FAILED) {
        fail("the plugin made no region; is there room in the shared memory folder?");
    }
    for (communicator = 0; region->communicators[communicator].comm_id != COMM; communicator++) {
    }
}

void drain(uint32_t slot)
{
    static struct lagom_call_record records[LAGOM_CALL_RING_CAPACITY];
    lagom_call_ring_drain(region, slot, records, LAGOM_CALL_RING_CAPACITY);
}
