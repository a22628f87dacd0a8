# SPDX-License-Identifier: Apache-2.0
"""Finds and opens ``liblagom.so``, the C half of the protocol, and asks it how a controller is started."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lagom.errors import LagomError
from lagom.settings import interpreter
from lagom.wire.layout import ffi

LIBRARY_FOLDER = Path(__file__).resolve().parent.parent / "_lib"


class LibraryMissing(LagomError):
    """The native half is not built or does not load."""


@functools.cache
def library() -> Any:
    """The opened library; raises :class:`LibraryMissing` with the remedy."""
    path = LIBRARY_FOLDER / "liblagom.so"
    try:
        return ffi.dlopen(str(path))
    except OSError as error:
        raise LibraryMissing(
            f"cannot load {path} ({error}); build it with `make native` or reinstall lagom."
        ) from error


def plugin_path() -> Path:
    """Absolute path of what ``NCCL_TUNER_PLUGIN`` wants; raises :class:`LibraryMissing` if it is not built."""
    path = LIBRARY_FOLDER / "libnccl-tuner-lagom.so"
    if not path.exists():
        raise LibraryMissing(f"{path} does not exist; build it with `make native` or reinstall lagom.")
    return path


def controller_program() -> list[str]:
    """The command line of a controller without its own arguments, to be run in :func:`controller_environment`. A rank
    starts one with the same program and environment (``csrc/shm/controller_process.c``)."""
    words = ffi.string(library().lagom_controller_program()).decode()
    return [interpreter(), "-c", words, str(Path(__file__).resolve().parent.parent.parent)]


def python_of_ranks(wanted: str = "") -> tuple[Path, str]:
    """The Python that a rank starts the controller with where LAGOM_PYTHON is ``wanted``, and one clause that says why
    it would not; empty if it would (``csrc/shm/controller_python.h``)."""
    python, reason = ffi.new("char[4096]"), ffi.new("char[256]")
    found = library().lagom_controller_python(os.fsencode(wanted), python, reason, 256)
    return Path(os.fsdecode(ffi.string(python))), "" if found else ffi.string(reason).decode(errors="replace")


def controller_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Of ``environ`` what a controller needs, and what is set for it."""
    given = [ffi.new("char[]", os.fsencode(f"{name}={value}")) for name, value in environ.items()]
    kept = library().lagom_controller_environment(ffi.new("char *[]", [*given, ffi.NULL]))
    if kept == ffi.NULL:
        raise MemoryError
    try:
        until_null = itertools.takewhile(lambda pointer: pointer != ffi.NULL, (kept[i] for i in itertools.count()))
        variables = [os.fsdecode(ffi.string(variable)) for variable in until_null]
    finally:
        library().lagom_controller_environment_free(kept)
    return dict(variable.split("=", 1) for variable in variables)
