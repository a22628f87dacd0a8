"""A controller's standard output and error lie in a file; that the disk is full must not end it."""

from __future__ import annotations

import io
import os
import sys
from typing import Any, TextIO


class _BestEffort(io.RawIOBase):
    """Writes to a descriptor; what cannot be written is lost."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any, /) -> int:
        """As much of ``data`` as goes; says that it was all."""
        try:
            os.write(self._descriptor, data)
        except OSError:
            return len(data)  # nobody is left to be told
        return len(data)


def _stream(descriptor: int) -> TextIO:
    return io.TextIOWrapper(io.BufferedWriter(_BestEffort(descriptor)), "utf-8", write_through=True)


def speak_as_far_as_possible() -> None:
    """From here on ``print`` never raises for the state of the disk."""
    sys.stdout, sys.stderr = _stream(1), _stream(2)
