"""What a controller inherits: by one list, whichever way it is started."""

from __future__ import annotations

import sys

import pytest

from lagom.wire.controller_process import controller_environment, controller_program

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
