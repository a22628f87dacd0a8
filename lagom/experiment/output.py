# SPDX-License-Identifier: Apache-2.0
"""What a job prints: whole in a file, and cut into lines that are short enough to be searched."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import threading
from collections.abc import Iterator
from pathlib import Path

from lagom.files import open_fresh

CHUNK_BYTES = 1 << 16
LOOK_MS = 100
#: Bytes of a line that are kept; the rest of it is in the file only.
LONGEST_LINE = 1 << 14
_END_OF_LINE = re.compile(rb"\r\n|\n|\r")  # progress bars end theirs with \r


def read_output(pipe: int, over: threading.Event) -> Iterator[bytes]:
    """What comes out of a pipe, to its end; or, once the job is ``over``, what is in the pipe by then: a daemon may
    hold it open for days, and write to it."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while not over.is_set():
        if poll.poll(LOOK_MS):
            if not (chunk := os.read(pipe, CHUNK_BYTES)):
                return
            yield chunk
    left = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
    while left > 0 and poll.poll(0) and (chunk := os.read(pipe, min(left, CHUNK_BYTES))):
        left -= len(chunk)
        yield chunk


class OutputLines:
    """Cuts output into lines, whatever lengths it comes in. Empty lines are left out."""

    def __init__(self) -> None:
        self._begun = b""

    def of(self, chunk: bytes) -> Iterator[str]:
        """The lines that end in ``chunk``."""
        *ended, begun = _END_OF_LINE.split(chunk)
        for part in ended:
            whole, self._begun = self._begun + part[:LONGEST_LINE], b""
            if whole:
                yield whole[:LONGEST_LINE].decode(errors="replace")
        self._begun = (self._begun + begun[:LONGEST_LINE])[:LONGEST_LINE]

    def rest(self) -> Iterator[str]:
        """The last line, if nothing ended it."""
        yield from self.of(b"\n")


class OutputFile:
    """The output in a file, readable at once. At the first error it is given up, and removed: on a full disk its room
    is the samples'."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self.given_up = ""
        with self._or_give_up():
            self._file = open_fresh(path)

    def write(self, chunk: bytes) -> None:
        """More of it."""
        while chunk and self._file is not None:
            with self._or_give_up():
                chunk = chunk[os.write(self._file, chunk) :]

    def close(self) -> None:
        """It is over."""
        if self._file is not None:
            with self._or_give_up():
                os.close(self._file)
            self._file = None

    @contextlib.contextmanager
    def _or_give_up(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.given_up = f"what the job printed was not kept in {self._path} ({error.strerror or error})"
            if self._file is not None:
                with contextlib.suppress(OSError):
                    os.close(self._file)
                with contextlib.suppress(OSError):
                    self._path.unlink()
            self._file = None
