"""A wheel holds what a job needs, and a machine without a compiler is told so in one sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("liblagom.so", "libnccl-tuner-lagom.so", "liblagom_timeline.so")
PARTS = ("lagom", "csrc", "tuner_plugin", "setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The parts of the repository that a build needs, without anything built."""
    unbuilt = shutil.ignore_patterns("_lib", "__pycache__", "*.so", "*.o")
    for part in PARTS:
        origin, target = ROOT / part, tmp_path / "source" / part
        target.parent.mkdir(exist_ok=True)
        if origin.is_dir():
            shutil.copytree(origin, target, ignore=unbuilt)
        else:
            shutil.copy(origin, target)
    return tmp_path / "source"


def test_a_wheel_holds_every_library_and_every_file_of_the_package(source: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(tmp_path)], cwd=source, check=True
    )
    (packed,) = tmp_path.glob("*.tar.gz")  # by way of the source distribution: that has to be complete as well
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(packed)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert "-py3-none-linux_" in wheel.name, "one wheel for every Python 3"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {*(f"lagom/_lib/{library}" for library in LIBRARIES), "lagom/py.typed"} <= names
    assert "lagom/_lib/python_path" not in names, "a wheel may be installed beside another Python"
    files = {str(file.relative_to(source)) for file in (source / "lagom").rglob("*") if file.is_file()}
    left_out = {file for file in files - names if not file.endswith(".md")}
    assert not left_out, "add them to package-data in pyproject.toml"


def test_without_a_compiler_one_sentence_says_what_to_install(source: Path) -> None:
    environ = os.environ | {"CC": "no-such-compiler"}
    command = [sys.executable, "setup.py", "--quiet", "native"]
    done = subprocess.run(command, cwd=source, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if "lagom" in line]
    assert said[-1].startswith("lagom: no C compiler: 'no-such-compiler' is not on PATH; install gcc")


def test_a_compiler_that_cannot_optimise_at_link_time_will_do(source: Path, tmp_path: Path) -> None:
    """Link-time optimisation drops what nobody calls, and so hides a symbol that is missing."""
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\ncase " $* " in *" -flto "*) exit 1 ;; esac\nexec gcc "$@"\n')
    compiler.chmod(0o755)
    command = [sys.executable, "setup.py", "--quiet", "native"]
    done = subprocess.run(
        command, cwd=source, env=os.environ | {"CC": str(compiler)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {name for name in LIBRARIES if (source / "lagom" / "_lib" / name).exists()} == set(LIBRARIES)


def test_the_libraries_need_nothing_but_libc() -> None:
    for name in LIBRARIES:
        done = subprocess.run(["ldd", str(ROOT / "lagom" / "_lib" / name)], capture_output=True, text=True, check=True)
        needed = {line.split()[0].split("/")[-1] for line in done.stdout.splitlines()}
        assert not {
            need for need in needed if not need.startswith(("linux-vdso", "libc.", "libdl", "libpthread", "ld-"))
        }


def test_the_core_needs_no_torch() -> None:
    script = "import sys; sys.modules['torch'] = None; import lagom.controller, lagom.search, lagom.sim, lagom.cli.main"
    subprocess.run([sys.executable, "-c", script], check=True)
