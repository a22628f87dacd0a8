/* SPDX-License-Identifier: Apache-2.0 */
/* build_id.h - the program plays a libnccl of a known build: the build id in its own memory is written over. */
#ifndef LAGOM_TEST_BUILD_ID_H
#define LAGOM_TEST_BUILD_ID_H

#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "expect.h"

#define BUILD_ID_BYTES 20u

/* The program comes first; its notes are where the linker put them (-Wl,--build-id=sha1). */
static inline int find_own_build_id(struct dl_phdr_info *object, size_t size, void *argument)
{
    unsigned char **found = argument;
    (void)size;
    for (int i = 0; i < object->dlpi_phnum && *found == NULL; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        char *notes = (char *)object->dlpi_addr + part->p_vaddr;
        for (size_t at = 0; part->p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) <= part->p_memsz;) {
            const ElfW(Nhdr) *head = (const void *)(notes + at);
            size_t description = at + sizeof(*head) + ((head->n_namesz + 3u) & ~3u);
            if (head->n_type == NT_GNU_BUILD_ID && head->n_descsz == BUILD_ID_BYTES) {
                *found = (unsigned char *)notes + description;
            }
            at = description + ((head->n_descsz + 3u) & ~3u);
        }
    }
    return 1;
}

static inline void wear_build_id(const char *hex)
{
    unsigned char *place = NULL;
    dl_iterate_phdr(find_own_build_id, &place);
    CHECK(place != NULL);
    uintptr_t page = (uintptr_t)place & ~(uintptr_t)4095;
    CHECK(mprotect((void *)page, 8192, PROT_READ | PROT_WRITE) == 0 ||
          mprotect((void *)page, 4096, PROT_READ | PROT_WRITE) == 0);
    for (size_t i = 0; i < BUILD_ID_BYTES; i++) {
        unsigned value = 0;
        CHECK(sscanf(hex + 2 * i, "%2x", &value) == 1);
        place[i] = (unsigned char)value;
    }
}

#endif
