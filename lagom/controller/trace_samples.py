# SPDX-License-Identifier: Apache-2.0
"""A few iterations of one rank's kernels under every config that the search kept: for `lagom report`, which shows the
timeline and the contention overhead before and after.

``kernels/<communicator>-<move>.npz`` in the log folder: the calls and spans of the newest iterations that ran the
candidate of that move (stock: of the baseline), in the layout of ``calls.npy`` and ``kernels.npy``. Only where kernels
are seen with compute beside them; one rank, because every rank does the same, and a log folder should stay small.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom import journal
from lagom.controller.contexts import Newest
from lagom.controller.measure import Tier, kernel_starts
from lagom.controller.recorder import CALL_ROW, KERNEL_ROW, tagged
from lagom.wire.layout import CALL_CANDIDATE, CALL_PROGRAM, CALL_RECORD, KERNEL_SPAN
from lagom.wire.views import SlotView

FOLDER = "kernels"
#: Of one rank: 8 MB and 1 MB while a search runs. 20 iterations of 6,000 kernels.
SPANS_KEPT, CALLS_KEPT = 131_072, 16_384
#: Written of each config: enough for medians. And so many configs of a communicator; a search keeps about ten.
ITERATIONS, FILES = 12, 32
#: Verdicts after which a search may go on from the candidate.
_KEPT = ("baseline", "better", "tie")


@dataclass(slots=True)
class _WatchedRank:
    """The one rank of a communicator that is watched."""

    slot: SlotView
    calls: Newest
    spans: Newest


class TraceSamples:
    """Fed with everything that is drained, and with the events of the log. Times of writing: 0.1 s a file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER
        self._ranks: dict[int, _WatchedRank] = {}  # by communicator, while its search runs
        self._searching: set[int] = set()
        self._files: dict[int, int] = {}

    def add_calls(self, slot: SlotView, records: NDArray[Any]) -> None:
        """Call records of one rank; of each communicator the first one that comes is watched."""
        if slot.communicator not in self._searching:
            return
        if slot.communicator not in self._ranks:
            self._ranks[slot.communicator] = _WatchedRank(
                slot, Newest(CALL_RECORD, CALLS_KEPT), Newest(KERNEL_SPAN, SPANS_KEPT)
            )
        rank = self._ranks[slot.communicator]
        if rank.slot.index == slot.index:
            rank.calls.add(records)

    def add_spans(self, process: int, spans: NDArray[Any]) -> None:
        """Kernel spans of one process."""
        for rank in self._ranks.values():
            if rank.slot.process == process:
                timed = spans[np.isin(spans["source"], Tier.TIMELINE.sources)]
                rank.spans.add(timed)

    def on_event(self, event: journal.Program | journal.Move | journal.Outcome, names: Mapping[int, str]) -> None:
        """A search begins, has made a move, or is over. OSError if the file cannot be written."""
        where = event.communicator
        if isinstance(event, journal.Program):
            self._forget(where)
            if event.tier == Tier.TIMELINE.value:
                self._searching.add(where)
        elif isinstance(event, journal.Outcome):
            self._searching.discard(where)
            self._ranks.pop(where, None)
        elif event.verdict in _KEPT and event.purpose != "final" and event.ran is None and where in self._ranks:
            self._write(where, event, names)

    def _forget(self, communicator: int) -> None:
        """A further search numbers its moves from the beginning."""
        self._searching.discard(communicator)
        self._ranks.pop(communicator, None)
        self._files.pop(communicator, None)
        for file in self._folder.glob(f"{communicator}-*.npz"):
            file.unlink(missing_ok=True)

    def _write(self, communicator: int, move: journal.Move, names: Mapping[int, str]) -> None:
        rank = self._ranks[communicator]
        stock = move.purpose == "baseline"
        calls, spans = excerpt(rank.calls.rows(), rank.spans.rows(), rank.slot.index, candidate=None if stock else True)
        if not len(spans) or self._files.get(communicator, 0) >= FILES:
            return
        self._folder.mkdir(exist_ok=True)
        self._files[communicator] = self._files.get(communicator, 0) + 1
        kept = {int(name): names.get(int(name), "") for name in np.unique(spans["name"])}
        with (self._folder / f"{communicator}-{move.number}.npz").open("wb") as file:
            np.savez_compressed(
                file,
                calls=tagged(CALL_ROW, "slot", rank.slot.index, "record", calls),
                kernels=tagged(KERNEL_ROW, "process", rank.slot.process, "span", spans),
                names=np.frombuffer(json.dumps(kept).encode(), np.uint8),
            )


def excerpt(
    calls: NDArray[Any], spans: NDArray[Any], slot: int, *, candidate: bool | None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """The newest iterations with the candidate in force (``None``: any), each with the one before it: their calls and
    all kernels that started in their time. Empty where their first kernels were not seen."""
    program = np.sort(calls[(calls["flags"] & CALL_PROGRAM) != 0], order="call")
    starts = program[program["position"] == 0]
    if len(starts) < 2:
        return program[:0], spans[:0]
    wanted = np.ones(len(starts) - 1, bool)
    if candidate is not None:
        wanted = ((starts["flags"] & CALL_CANDIDATE) != 0)[:-1] == candidate
    begins, seen = kernel_starts(spans, slot, starts["call"])
    wanted &= seen[:-1] & seen[1:]
    chosen = np.flatnonzero(wanted)[-ITERATIONS:]
    call, at = program["call"], spans["start_ns"].astype(np.int64)
    in_calls, in_spans = np.zeros(len(program), bool), np.zeros(len(spans), bool)
    for one in chosen:
        in_calls |= (call >= starts["call"][one]) & (call <= starts["call"][one + 1])
        in_spans |= (at >= begins[one]) & (at <= begins[one + 1])
    return program[in_calls], spans[in_spans]
