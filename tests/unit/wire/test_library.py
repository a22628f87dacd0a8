# SPDX-License-Identifier: Apache-2.0
"""What a controller inherits: by one list, whichever way it is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lagom.wire.library import controller_environment, controller_program

#: An allocator whose memory the C library's free would not know. It gives none back.
ALLOCATOR = """
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
static _Alignas(4096) char arena[1u << 30];
static atomic_size_t used;
static void *take(size_t alignment, size_t bytes)
{
    size_t start = atomic_fetch_add(&used, bytes + alignment + 16) + 16;
    char *out = arena + (start + alignment - 1) / alignment * alignment;
    memcpy(out - sizeof(size_t), &bytes, sizeof(size_t));
    return out;
}
void *malloc(size_t bytes) { return take(16, bytes); }
void *calloc(size_t count, size_t bytes) { return take(16, count * bytes); }
void *memalign(size_t alignment, size_t bytes) { return take(alignment < 16 ? 16 : alignment, bytes); }
void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void **out, size_t alignment, size_t bytes) { *out = memalign(alignment, bytes); return 0; }
void *realloc(void *old, size_t bytes)
{
    size_t before = 0;
    char *out = take(16, bytes);
    if (old != NULL) {
        memcpy(&before, (char *)old - sizeof(size_t), sizeof(size_t));
        memcpy(out, old, before < bytes ? before : bytes);
    }
    return out;
}
void free(void *old) { (void)old; }
"""

SET = {
    "CUDA_VISIBLE_DEVICES": "",
    "MKL_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONSAFEPATH": "1",
}


@pytest.mark.parametrize(
    "name",
    ["HOME", "LAGOM_DIR", "LANG", "LC_CTYPE", "LD_LIBRARY_PATH", "PATH", "PYTHONHOME", "PYTHONPATH", "TMPDIR", "TZ"],
)
def test_what_python_needs_is_inherited(name: str) -> None:
    assert controller_environment({name: "/a=b\udcff"}) == {name: "/a=b\udcff", **SET}


@pytest.mark.parametrize(
    "name",
    [
        *("CUDA_INJECTION64_PATH", "CUDA_VISIBLE_DEVICES", "LD_AUDIT", "LD_PRELOAD", "NCCL_DEBUG"),
        *(
            "NVTX_INJECTION64_PATH",
            "MKL_NUM_THREADS",
            "OMP_PROC_BIND",
            "OPENBLAS_NUM_THREADS",
            "RANK",
            "SLURM_PROCID",
            "WORLD_SIZE",
        ),
        *("PYTHONBREAKPOINT", "PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONWARNINGS", "PATHS", "HOM", "LC", "lagom_dir"),
    ],
)
def test_what_is_the_jobs_is_not(name: str) -> None:
    assert controller_environment({name: "96"}) == SET


@pytest.mark.parametrize("name", ["LD_LIBRARY_PATH", "PATH", "PYTHONPATH"])
@pytest.mark.parametrize(("asked", "kept"), [("/a", "/a"), (":/a", "/a"), ("/a:", "/a"), ("::/a:::b:", "/a:b")])
def test_the_working_folder_is_no_entry_of_a_search_path(name: str, asked: str, kept: str) -> None:
    assert controller_environment({name: asked})[name] == kept


@pytest.mark.parametrize("asked", ["", ":", ":::"])
def test_a_search_path_of_nothing_is_left_out(asked: str) -> None:
    assert controller_environment({"PATH": asked, "PYTHONPATH": asked}) == SET


def test_nothing_is_imported_before_the_path_is_clean() -> None:
    interpreter, option, words, _ = controller_program()
    assert (interpreter, option) == (sys.executable, "-c")
    assert words.startswith("import sys; sys.path[:] =")


def test_under_another_allocator(tmp_path: Path) -> None:
    """A job may preload one; Python and the library use it, and what it gave goes back to it."""
    library = tmp_path / "allocator.so"
    build = ["gcc", "-shared", "-fPIC", "-fno-builtin", "-x", "c", "-", "-o", str(library)]
    subprocess.run(build, input=ALLOCATOR, text=True, check=True)
    program = "from lagom.wire.library import controller_environment as kept; print(len(kept({'HOME': '/'})))"
    environ = {**os.environ, "LD_PRELOAD": str(library)}
    ended = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, f"{len(SET) + 1}\n"), ended.stderr
