# SPDX-License-Identifier: Apache-2.0
"""The programs of ``native/``: compiled, and linked with liblagom. They are kept in ``build/tests/system``."""

from __future__ import annotations

import fcntl
import os
import subprocess
from pathlib import Path

from lagom.wire.library import LIBRARY_FOLDER

NATIVE = Path(__file__).resolve().parent / "native"
ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "build" / "tests" / "system"
C_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-g1", "-Wall", "-Wextra", "-Werror", "-Wshadow"]


def build() -> Path:
    """The folder with all programs, each compiled unless it is newer than every source of theirs and of ours."""
    OUT.mkdir(parents=True, exist_ok=True)
    newest = max(path.stat().st_mtime for folder in (NATIVE, ROOT / "csrc") for path in folder.rglob("*.[ch]"))
    newest = max(newest, (LIBRARY_FOLDER / "liblagom.so").stat().st_mtime)
    with (OUT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes test at once
        for source in sorted(NATIVE.glob("*.c")):
            program = OUT / source.stem
            if not program.exists() or program.stat().st_mtime <= newest:
                compile_program(source, program)
    return OUT


def compile_program(source: Path, program: Path) -> None:
    """Beside its place and renamed: who runs the old one is not disturbed."""
    fresh = program.with_name(f".{program.name}.{os.getpid()}")
    command = ["gcc", *C_FLAGS, f"-I{ROOT / 'csrc'}", str(source), "-o", str(fresh)]
    command += [str(LIBRARY_FOLDER / "liblagom.so"), f"-Wl,-rpath,{LIBRARY_FOLDER}", "-ldl"]
    subprocess.run(command, check=True)
    fresh.rename(program)
