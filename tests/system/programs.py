"""The programs of ``native/``: compiled, and linked with liblagom."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lagom.wire.library import LIBRARY_FOLDER

NATIVE = Path(__file__).resolve().parent / "native"
CSRC = Path(__file__).resolve().parents[2] / "csrc"
C_FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-g1", "-Wall", "-Wextra", "-Werror", "-Wshadow"]


def build(out: Path, *names: str) -> Path:
    """Compiles the named programs, or all of them, into the folder ``out`` and returns it."""
    sources = [NATIVE / f"{name}.c" for name in names] or sorted(NATIVE.glob("*.c"))
    for source in sources:
        command = ["gcc", *C_FLAGS, f"-I{CSRC}", str(source), "-o", str(out / source.stem)]
        command += [str(LIBRARY_FOLDER / "liblagom.so"), f"-Wl,-rpath,{LIBRARY_FOLDER}", "-ldl"]
        subprocess.run(command, check=True)
    return out
