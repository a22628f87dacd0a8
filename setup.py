# SPDX-License-Identifier: Apache-2.0
"""Builds the three native libraries into the package; everything else about the project is in pyproject.toml.

    lagom/_lib/liblagom.so              csrc/ but timeline: the shared memory protocol, for Python (lagom.wire)
    lagom/_lib/libnccl-tuner-lagom.so   tuner_plugin/ + the same: what NCCL loads
    lagom/_lib/liblagom_timeline.so     csrc/timeline/: kernels seen through CUPTI; loaded by the plugin where wanted

Plain C11 with gcc; neither CUDA nor NCCL is needed. ``python setup.py native`` builds in place (``make native``), and
``pip install .`` / ``pip install -e .`` do the same on the way. The C sources are found by glob: a new file needs no
change here. Objects are kept in build/native and rebuilt when a source, a header or a flag changed.

Another compiler is named with CC; it may be one for another processor (``make wheel`` does so). Beside the libraries
lies ``commit``, the commit that they were built from, which ``lagom --version`` prints.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import ClassVar

from setuptools import Command, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.dist import Distribution

ROOT = Path(__file__).resolve().parent
IN_PLACE = ROOT / "lagom" / "_lib"
OBJECTS = ROOT / "build" / "native"
COMMIT = "COMMIT"  # of a source distribution: the commit that it was made from
PROGRAMS = {"dump_layout.c"}  # has a main(); not part of any library

WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wshadow"]
C_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-g1", "-fPIC", "-fvisibility=protected", "-pthread", "-Icsrc", "-I."]
# A decision crosses four files with small structs by value: inlined into one another they take half the time.
INLINE_FLAGS = ["-flto", "-fno-tree-slp-vectorize"]
LINK_FLAGS = ["-shared", "-pthread", "-Wl,--no-undefined", "-Wl,-z,relro", "-Wl,-z,now"]

CORE = ("csrc/agreement", "csrc/plan", "csrc/config", "csrc/protocol", "csrc/shm")
# nodelete: NCCL may dlclose a plugin while its threads still run in it.
STAYS = ("-Wl,-z,nodelete", "-ldl")

# name -> (source folders, the list of visible symbols, further link flags)
LIBRARIES = {
    "liblagom.so": (CORE, "csrc/liblagom.map", ()),
    "libnccl-tuner-lagom.so": ((*CORE, "tuner_plugin"), "tuner_plugin/plugin.map", STAYS),
    "liblagom_timeline.so": ((*CORE, "csrc/timeline"), "csrc/timeline/liblagom_timeline.map", STAYS),
}


def compiler() -> str:
    """The C compiler: $CC, else gcc. Ends with one sentence where there is none."""
    name = os.environ.get("CC", "gcc")
    if shutil.which(shlex.split(name)[0]) is None:
        sys.exit(
            f"lagom: no C compiler: '{name}' is not on PATH; install gcc (Debian/Ubuntu: apt install gcc; "
            "Fedora: dnf install gcc) or name another with CC=..., then run this again."
        )
    return name


@cache
def inlining() -> list[str]:
    """INLINE_FLAGS where compiler and linker can do that together (gcc and its own linker can), else nothing."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("int probe(void) { return 0; }\n")
        command = [*shlex.split(compiler()), *INLINE_FLAGS, "-fPIC", "-shared", str(source), "-o", f"{folder}/probe.so"]
        return INLINE_FLAGS if subprocess.run(command, capture_output=True, check=False).returncode == 0 else []


def sources(folder: str) -> list[Path]:
    """Every C source of a folder that belongs in a library."""
    return sorted(path for path in (ROOT / folder).rglob("*.c") if path.name not in PROGRAMS)


def newest_header() -> float:
    """When the last header changed: any header rebuilds every object, which is cheap here and never wrong."""
    headers = [path for folder in ("csrc", "tuner_plugin") for path in (ROOT / folder).rglob("*.h")]
    return max((path.stat().st_mtime for path in headers), default=0.0)


def compile_object(source: Path, headers_changed: float) -> Path:
    """Compiles one source unless its object is newer than it and every header; returns the object."""
    flags = [*C_FLAGS, *inlining(), *WARNINGS, *shlex.split(os.environ.get("CFLAGS", ""))]
    key = hashlib.sha256(" ".join([compiler(), *flags]).encode()).hexdigest()[:8]
    target = OBJECTS / key / source.relative_to(ROOT).with_suffix(".o")
    if target.exists() and target.stat().st_mtime > max(source.stat().st_mtime, headers_changed):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    call([*shlex.split(compiler()), *flags, "-c", str(source.relative_to(ROOT)), "-o", str(target)])
    return target


def link_library(name: str, objects: list[Path], map_file: str, extra: tuple[str, ...], out: Path) -> None:
    """Links beside the target and renames: a running job keeps the old file mapped and is not disturbed. A library
    that was linked in this way from these objects is left as it is."""
    fresh = out / f".{name}.{os.getpid()}"
    linking = [
        *shlex.split(compiler()),
        "-O2",
        *inlining(),
        *LINK_FLAGS,
        f"-Wl,--version-script={map_file}",
        f"-Wl,-soname,{name}",
    ]
    command = [*linking, *map(str, objects), *extra, *shlex.split(os.environ.get("LDFLAGS", ""))]
    library = out / name
    note = OBJECTS / f"{hashlib.sha256(str(library).encode()).hexdigest()[:8]}.linked"
    newest = max(path.stat().st_mtime for path in [*objects, ROOT / map_file])
    if library.exists() and library.stat().st_mtime > newest and note.exists() and note.read_text() == str(command):
        library.touch()  # whoever compares it with the sources sees that it is of today
        return
    call([*command, "-o", str(fresh)])
    fresh.replace(library)
    note.write_text(str(command))


def call(command: list[str]) -> None:
    """Runs one compiler command; its own messages are the explanation when it fails."""
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        sys.exit(f"lagom: the native build failed at: {shlex.join(command)}")


@contextmanager
def one_build_at_a_time() -> Iterator[None]:
    """Two builds of one checkout (``make -j``, two shells) share their objects: the second waits for the first."""
    OBJECTS.mkdir(parents=True, exist_ok=True)
    with open(OBJECTS / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def commit() -> str:
    """The commit of these sources, with a plus sign where they differ from it; empty where nobody knows."""
    if (ROOT / COMMIT).exists():
        return (ROOT / COMMIT).read_text().strip()
    if not (ROOT / ".git").exists():  # git would find the repository of somebody else around a copy
        return ""
    command = ["git", "describe", "--always", "--exclude=*", "--dirty=+"]
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def build_libraries(out: Path) -> None:
    """Builds every library of LIBRARIES into ``out``."""
    compiler()
    out.mkdir(parents=True, exist_ok=True)
    headers_changed = newest_header()
    with one_build_at_a_time(), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for name, (folders, map_file, extra) in LIBRARIES.items():
            files = [file for folder in folders for file in sources(folder)]
            objects = list(pool.map(lambda file: compile_object(file, headers_changed), files))
            link_library(name, objects, map_file, extra, out)
    (out / "commit").write_text(f"{commit()}\n")


class Native(Command):
    """``python setup.py native``: the libraries, in place."""

    description = "build the native libraries into lagom/_lib"
    user_options: ClassVar[list[tuple[str, str | None, str]]] = []

    def initialize_options(self) -> None:
        pass

    def finalize_options(self) -> None:
        pass

    def run(self) -> None:
        build_libraries(IN_PLACE)


class BuildWithNative(build_py):
    """The libraries travel with the Python files."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            build_libraries(IN_PLACE)
        else:
            build_libraries(Path(self.build_lib) / "lagom" / "_lib")


class SourceWithCommit(sdist):
    """A source distribution has no git to ask, so it carries the commit."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        (Path(base_dir) / COMMIT).write_text(f"{commit()}\n")


class PlatformWheel(bdist_wheel):
    """One wheel for every Python 3: the libraries are loaded with dlopen, not as CPython extensions."""

    def get_tag(self) -> tuple[str, str, str]:
        return "py3", "none", super().get_tag()[2]


class NativeDistribution(Distribution):
    """Makes setuptools choose platlib and a platform tag although there is no CPython extension."""

    def has_ext_modules(self) -> bool:
        return True


setup(
    distclass=NativeDistribution,
    cmdclass={
        "native": Native,
        "build_py": BuildWithNative,
        "sdist": SourceWithCommit,
        "bdist_wheel": PlatformWheel,
    },
)
