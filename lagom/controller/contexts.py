# SPDX-License-Identifier: Apache-2.0
"""Exposed or hidden, while the program is being learnt: the last iterations' calls and kernels, kept for one question.

The first AllGather of a pass looks like the others and has nothing to hide behind; only a timeline tells it from them.
The records are kept in bounded buffers, newest last, and dropped with this object when the question is answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.controller.measure import Tier
from lagom.program import CallHistory, CallProgram, find_positions
from lagom.timeline import from_ring
from lagom.timeline.busy_times import hidden_by_position
from lagom.timeline.kernel_table import KernelTable
from lagom.wire.layout import CALL_RECORD, KERNEL_SPAN

#: Over all ranks; 6 MB and 1 MB. Eight ranks keep two iterations of 6,000 kernels each.
SPANS_KEPT, CALLS_KEPT = 98_304, 16_384
#: How long tuning waits for the answer, and how many iterations the ranks must have called meanwhile, and since the
#: beginning, before it no longer waits: on a busy machine a rank may show nothing for seconds.
PATIENCE_SECONDS, PATIENCE_ITERATIONS = 1.0, 3
_NOWHERE = 0xFFFFFFFF


class Newest:
    """The newest ``capacity`` rows of a stream of records."""

    def __init__(self, dtype: np.dtype[Any], capacity: int) -> None:
        self._rows = np.zeros(capacity, dtype)
        self._seen = 0

    def add(self, records: NDArray[Any]) -> None:
        """Append records, oldest first."""
        fresh = records[-self._rows.size :]
        self._seen += len(records)
        self._rows[(self._seen - len(fresh) + np.arange(len(fresh))) % self._rows.size] = fresh

    def rows(self) -> NDArray[Any]:
        """A copy of what is kept, oldest first."""
        kept = min(self._seen, self._rows.size)
        return self._rows[(self._seen - kept + np.arange(kept)) % self._rows.size]


@dataclass(slots=True)
class Contexts:
    """Collects from when it is made. ``slots`` maps slot to process: the ranks of one communicator."""

    slots: dict[int, int]
    began: float  # monotonic seconds
    _calls: dict[int, Newest] = field(default_factory=dict)
    _spans: dict[int, Newest] = field(default_factory=dict)
    _asked: tuple[float, int] | None = None

    def add_calls(self, slot: int, records: NDArray[Any]) -> None:
        """Call records of one rank."""
        if slot in self.slots:
            room = CALLS_KEPT // len(self.slots)
            self._calls.setdefault(slot, Newest(CALL_RECORD, room)).add(records)

    def add_spans(self, process: int, spans: NDArray[Any]) -> None:
        """Kernel spans of one process."""
        timed = spans[np.isin(spans["source"], Tier.TIMELINE.sources)]
        if len(timed) and process in self.slots.values():
            room = SPANS_KEPT // len(self.slots)
            self._spans.setdefault(process, Newest(KERNEL_SPAN, room)).add(timed)

    def hidden_shares(self, history: CallHistory, program: CallProgram) -> tuple[float, ...] | None:
        """Share of each position's communication that ran beside compute; ``None`` while any position is unknown, and
        where one process has several ranks, whose compute cannot be told apart."""
        if not self._can_be_told():
            return None
        seen = list(self.tables(history, program))
        shares = hidden_by_position(
            [table for _, table, _ in seen],
            [records for _, _, records in seen],
            [slot for slot, _, _ in seen],
            len(program.positions),
        )
        return None if np.isnan(shares).any() else tuple(shares.tolist())

    def tables(self, history: CallHistory, program: CallProgram) -> Iterator[tuple[int, KernelTable, NDArray[Any]]]:
        """Of each rank: its slot, its kernels, its calls with the positions that the program gives them."""
        where = find_positions(history, program)
        for slot, process in self.slots.items():
            yield slot, from_ring(self._spans[process].rows()), _placed(self._calls[slot].rows(), where)

    def _can_be_told(self) -> bool:
        """Whether every rank has shown calls and kernels, and has a process to itself."""
        processes = set(self.slots.values())
        return (
            len(processes) == len(self.slots) and processes <= set(self._spans) and set(self.slots) <= set(self._calls)
        )

    def worth_waiting(self, program: CallProgram, now: float, call: int) -> bool:
        """Whether an answer may still come: a little more than nothing is waited for it. ``call``: the newest seen."""
        asked, first_call = self._asked = self._asked or (now, call)
        if now - asked < PATIENCE_SECONDS or now - self.began < PATIENCE_ITERATIONS * program.iteration_ns * 1e-9:
            return True
        return call - first_call < PATIENCE_ITERATIONS * program.calls_per_iteration


def _placed(records: NDArray[Any], where: dict[int, int]) -> NDArray[Any]:
    """The records with the positions that the program, found since, gives them; transparent calls have none."""
    records["position"] = [where.get(call, _NOWHERE) for call in records["call"].tolist()]
    return records
