"""What a controller is started with beside a job: the same program and the same environment as when a rank starts one
(``csrc/shm/controller_process.c``)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lagom.settings import interpreter
from lagom.wire.layout import ffi
from lagom.wire.library import library


def controller_program() -> list[str]:
    """The command line without the controller's own arguments; to be run in :func:`controller_environment`."""
    words = ffi.string(library().lagom_controller_program()).decode()
    return [interpreter(), "-c", words, str(Path(__file__).resolve().parent.parent.parent)]


def controller_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Of ``environ`` what a controller needs, and what is set for it."""
    given = [ffi.new("char[]", os.fsencode(f"{name}={value}")) for name, value in environ.items()]
    kept = library().lagom_controller_environment(ffi.new("char *[]", [*given, ffi.NULL]))
    if kept == ffi.NULL:
        raise MemoryError
    try:
        variables = [os.fsdecode(ffi.string(variable)) for variable in _until_null(kept)]
    finally:
        library().lagom_controller_environment_free(kept)
    return dict(variable.split("=", 1) for variable in variables)


def _until_null(pointers: Any) -> Iterator[Any]:
    """The elements of a C array that ends with NULL."""
    return itertools.takewhile(lambda pointer: pointer != ffi.NULL, (pointers[index] for index in itertools.count()))
