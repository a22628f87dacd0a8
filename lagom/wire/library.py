"""Finds and opens ``liblagom.so``, the C half of the protocol."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from lagom.errors import LagomError
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
