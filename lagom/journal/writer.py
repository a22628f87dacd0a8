# SPDX-License-Identifier: Apache-2.0
"""Writes the log: append-only, one event a line, each in the file before ``write`` returns.

The log may never cost the job anything. So it is bounded (at ``max_bytes`` it keeps its head, counts what it leaves
out, and still writes how the search and the job ended), and a folder that cannot be written to is reported once on
stderr and otherwise ignored. A line goes out in one write() to an O_APPEND file: a reader sees whole lines, a crash
tears the last one at most, and the next writer starts a fresh line after it.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType

from lagom.files import FOLDER_MODE, open_append
from lagom.journal.schema import Base, Dropped

LOG_NAME = "decisions.jsonl"
DEFAULT_MAX_BYTES = 64 << 20  # about 20,000 moves with their pairs
ENDING_ROOM = 256 << 10  # kept free for the events of ENDINGS
ENDINGS = {"outcome", "job_end", "dropped", "standing_aside"}


class Journal:
    """An open log. ``path`` is the file or the folder it goes into; made if missing."""

    def __init__(self, path: Path | str, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        path = Path(path)
        self.path = path if path.suffix == ".jsonl" else path / LOG_NAME
        self.max_bytes = max_bytes
        self.dropped: Counter[str] = Counter()
        self._complained = False
        self._size = 0
        self._torn = False
        self._descriptor = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def write(self, event: Base) -> None:
        """Append one event. Never raises for the state of the disk."""
        kind = event.kind
        line = _line(event)
        if not self._has_room(kind, len(line)):
            self.dropped[kind] += 1
            return
        if kind in ENDINGS and self.dropped:
            self._say_dropped()
        self._append(line)

    def close(self) -> None:
        """Say what was left out, if anything, and close the file. Safe to call twice."""
        if self.dropped:
            self._say_dropped()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _has_room(self, kind: str, size: int) -> bool:
        limit = self.max_bytes if kind in ENDINGS else self.max_bytes - min(ENDING_ROOM, self.max_bytes // 4)
        return self._opened() and self._size + size <= limit

    def _say_dropped(self) -> None:
        line = _line(Dropped(counts=dict(self.dropped), limit_bytes=self.max_bytes))
        if self._descriptor >= 0 and self._size + len(line) <= self.max_bytes and self._append(line):
            self.dropped.clear()

    def _opened(self) -> bool:
        if self._descriptor >= 0:
            return True
        try:
            self.path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            self._descriptor = open_append(self.path)
            self._size = os.fstat(self._descriptor).st_size
            self._torn = self._size > 0 and os.pread(self._descriptor, 1, self._size - 1) != b"\n"
        except OSError as error:
            self._complain(error)
            return False
        return True

    def _append(self, line: bytes) -> bool:
        data = b"\n" + line if self._torn else line
        try:
            written = os.write(self._descriptor, data)
        except OSError as error:
            self._complain(error)
            return False
        self._size += written
        self._torn = written < len(data)
        return not self._torn

    def _complain(self, error: OSError) -> None:
        if not self._complained:
            self._complained = True
            print(
                f"lagom: the log {self.path} cannot be written ({error.strerror}); the job goes on without it. "
                "Set LAGOM_DIR to a folder that can.",
                file=sys.stderr,
                flush=True,
            )


def _line(event: Base) -> bytes:
    return event.model_dump_json(by_alias=True).encode() + b"\n"
