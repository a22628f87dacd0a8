# SPDX-License-Identifier: Apache-2.0
"""Keeps what was drained, raw: for people who want to see the evidence, and for tools that come later.

``calls.npy`` and ``kernels.npy`` in the log folder: the records of csrc/protocol/lagom_protocol.h with the slot or the
process they came from; ``names.json``: the kernels' names by index. ``lagom.timeline.ring_records`` reads them back.
Off unless asked for (``--record``); bounded: the first and the newest rows are kept, what lies between is counted.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.wire.layout import CALL_RECORD, KERNEL_SPAN

MAX_ROWS = 1 << 20  # 64 MB each

CALL_ROW = np.dtype([("slot", "u4"), ("record", CALL_RECORD)])
KERNEL_ROW = np.dtype([("process", "u4"), ("span", KERNEL_SPAN)])


class _Kept:
    """The first rows of a stream and its newest ones, half of the room each; those between are dropped and counted."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._empty = np.zeros(0, dtype)
        self._first: list[NDArray[Any]] = []
        self._newest: deque[NDArray[Any]] = deque()
        self._rows = [0, 0]
        self.dropped = 0

    def add(self, rows: NDArray[Any]) -> None:
        """Append rows, oldest first."""
        room = max(0, MAX_ROWS // 2 - self._rows[0])
        for part, kept, chunk in ((0, self._first, rows[:room]), (1, self._newest, rows[room:])):
            if len(chunk):
                self._rows[part] += len(chunk)
                kept.append(chunk)
        while self._rows[1] > MAX_ROWS // 2:
            oldest = len(self._newest.popleft())
            self._rows[1] -= oldest
            self.dropped += oldest

    def rows(self) -> NDArray[Any]:
        """What is kept, in order."""
        return np.concatenate([self._empty, *self._first, *self._newest])


class Recorder:
    """Collects rows in memory and writes them at the end of the job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls, self._kernels = _Kept(CALL_ROW), _Kept(KERNEL_ROW)

    @property
    def dropped(self) -> int:
        """Rows that did not fit."""
        return self._calls.dropped + self._kernels.dropped

    def add_calls(self, slot: int, records: NDArray[Any]) -> None:
        """Call records of one slot."""
        self._calls.add(tagged(CALL_ROW, "slot", slot, "record", records))

    def add_kernels(self, process: int, spans: NDArray[Any]) -> None:
        """Kernel spans of one process."""
        self._kernels.add(tagged(KERNEL_ROW, "process", process, "span", spans))

    def write(self, names: Mapping[int, str]) -> None:
        """Write the files; OSError if the folder cannot be written."""
        np.save(self._folder / "calls.npy", self._calls.rows())
        np.save(self._folder / "kernels.npy", self._kernels.rows())
        (self._folder / "names.json").write_text(json.dumps(dict(names), indent=0))


def tagged(dtype: np.dtype[Any], tag: str, value: int, field: str, records: NDArray[Any]) -> NDArray[Any]:
    """The records as rows of ``dtype``, each with the number of its slot or process."""
    rows = np.zeros(len(records), dtype)
    rows[tag], rows[field] = value, records
    return rows
