/* SPDX-License-Identifier: Apache-2.0 */
#include "tuner_plugin/caller.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

#include "tuner_plugin/nccl_abi.h"

/* POSIX makes this conversion work; ISO C has no cast for it. */
static nccl_get_version_function as_function(void *symbol)
{
    nccl_get_version_function function;
    memcpy(&function, &symbol, sizeof(function));
    return function;
}

static int version_from(void *symbol)
{
    int version = 0;
    return symbol != NULL && as_function(symbol)(&version) == NCCL_SUCCESS ? version : 0;
}

/* ---- The build id ----------------------------------------------------------------------------------------------- */

struct library_search {
    uintptr_t address;
    char *build_id;
};

static bool holds(const struct dl_phdr_info *object, uintptr_t address)
{
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && address - (object->dlpi_addr + part->p_vaddr) < part->p_memsz) {
            return true;
        }
    }
    return false;
}

static size_t aligned(size_t bytes)
{
    return (bytes + 3) & ~(size_t)3;
}

static void write_hex(char out[LAGOM_CALLER_BUILD_ID], const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count && 2 * i + 2 < LAGOM_CALLER_BUILD_ID; i++) {
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
    }
}

/* Notes follow each other: a head, a name, a description, the last two padded to four bytes. */
static void read_notes(const char *notes, size_t bytes, char out[LAGOM_CALLER_BUILD_ID])
{
    const ElfW(Nhdr) *head;
    for (size_t at = 0; at + sizeof(*head) <= bytes;) {
        head = (const void *)(notes + at);
        size_t name = at + sizeof(*head);
        size_t description = name + aligned(head->n_namesz);
        at = description + aligned(head->n_descsz);
        if (at > bytes) {
            return;
        }
        if (head->n_type == NT_GNU_BUILD_ID && head->n_namesz == 4 && memcmp(notes + name, "GNU", 4) == 0) {
            write_hex(out, (const unsigned char *)notes + description, head->n_descsz);
            return;
        }
    }
}

static int look_into(struct dl_phdr_info *object, size_t size, void *argument)
{
    struct library_search *search = argument;
    (void)size;
    if (!holds(object, search->address)) {
        return 0;
    }
    for (int i = 0; i < object->dlpi_phnum && search->build_id[0] == '\0'; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_NOTE) {
            read_notes((const char *)object->dlpi_addr + part->p_vaddr, part->p_memsz, search->build_id);
        }
    }
    return 1;
}

static void find_build_id(void *symbol, char out[LAGOM_CALLER_BUILD_ID])
{
    struct library_search search = {.address = (uintptr_t)symbol, .build_id = out};
    out[0] = '\0';
    dl_iterate_phdr(look_into, &search);
}

/* ---- Who calls -------------------------------------------------------------------------------------------------- */

static int ask(struct lagom_caller *caller, void *symbol, const char *path)
{
    caller->version = version_from(symbol);
    if (caller->version > 0) {
        snprintf(caller->path, sizeof(caller->path), "%s", path);
        find_build_id(symbol, caller->build_id);
    }
    return caller->version > 0;
}

static int ask_library_of(struct lagom_caller *caller, const void *address)
{
    Dl_info info;
    if (address == NULL || dladdr(address, &info) == 0 || info.dli_fname == NULL) {
        return 0;
    }
    void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (library == NULL) {
        return 0;
    }
    int found = ask(caller, dlsym(library, "ncclGetVersion"), info.dli_fname);
    dlclose(library);
    return found;
}

void lagom_caller_find(struct lagom_caller *caller, const void *log_function, const void *return_address)
{
    *caller = (struct lagom_caller){.version = 0, .path = ""};
    if (ask_library_of(caller, log_function) || ask_library_of(caller, return_address)) {
        return;
    }
    Dl_info info; /* NCCL linked into the program itself */
    void *symbol = dlsym(RTLD_DEFAULT, "ncclGetVersion");
    bool placed = symbol != NULL && dladdr(symbol, &info) != 0 && info.dli_fname != NULL;
    ask(caller, symbol, placed ? info.dli_fname : "");
}
