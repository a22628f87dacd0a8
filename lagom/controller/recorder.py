"""Keeps what was drained, raw: for people who want to see the evidence, and for tools that come later.

``calls.npy`` and ``kernels.npy`` in the log folder: the records of csrc/protocol/lagom_protocol.h with the slot or the
process they came from; ``names.json``: the kernels' names by index. ``lagom.timeline.records`` reads them back. Off
unless asked for (``--record``); bounded, and what did not fit is counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.wire.layout import CALL_RECORD, KERNEL_SPAN

MAX_ROWS = 1 << 20  # 64 MB each

CALL_ROW = np.dtype([("slot", "u4"), ("record", CALL_RECORD)])
KERNEL_ROW = np.dtype([("process", "u4"), ("span", KERNEL_SPAN)])


class Recorder:
    """Collects rows in memory and writes them at the end of the job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls: list[NDArray[Any]] = []
        self._kernels: list[NDArray[Any]] = []
        self._rows = {"calls": 0, "kernels": 0}
        self.dropped = 0

    def add_calls(self, slot: int, records: NDArray[Any]) -> None:
        """Call records of one slot."""
        self._keep("calls", self._calls, _tagged(CALL_ROW, "slot", slot, "record", records))

    def add_kernels(self, process: int, spans: NDArray[Any]) -> None:
        """Kernel spans of one process."""
        self._keep("kernels", self._kernels, _tagged(KERNEL_ROW, "process", process, "span", spans))

    def write(self, names: Mapping[int, str]) -> None:
        """Write the files; OSError if the folder cannot be written."""
        np.save(self._folder / "calls.npy", np.concatenate([np.zeros(0, CALL_ROW), *self._calls]))
        np.save(self._folder / "kernels.npy", np.concatenate([np.zeros(0, KERNEL_ROW), *self._kernels]))
        (self._folder / "names.json").write_text(json.dumps(dict(names), indent=0))

    def _keep(self, kind: str, kept: list[NDArray[Any]], rows: NDArray[Any]) -> None:
        if self._rows[kind] + len(rows) > MAX_ROWS:
            self.dropped += len(rows)
            return
        if len(rows):
            self._rows[kind] += len(rows)
            kept.append(rows)


def _tagged(dtype: np.dtype[Any], tag: str, value: int, field: str, records: NDArray[Any]) -> NDArray[Any]:
    rows = np.zeros(len(records), dtype)
    rows[tag], rows[field] = value, records
    return rows
