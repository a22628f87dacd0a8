# SPDX-License-Identifier: Apache-2.0
"""Is a sample what its config costs? The simulator says how long an iteration under given configs takes, the plan that
was in force says which configs a window's incumbent and candidate were.

For jobs with ``keep_plans``. Their program may begin anywhere in the simulated iteration; where it holds several (a job
interrupted so regularly that its period is the iteration) there is no saying.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lagom import journal
from lagom.controller.measure import busy_ns
from lagom.journal.schema import SampleRecord
from lagom.sim.virtual.call_log import load, unpack
from lagom.sim.virtual.iteration_timing import IterationTimes, timing_of
from lagom.sim.virtual.spec import JobSpec
from lagom.wire.layout import SPAN_COLLECTIVE, SPAN_COMPUTE
from tests.soak.oracle import Schedule, Shape
from tests.system.play import Played

#: Samples that make a test of them one that can fail. How many there are depends on when a search ends.
ENOUGH = 20


def judge(played: Played, spec: JobSpec, folder: Path, *, tolerance: float) -> tuple[int, list[str]]:
    """How many samples could be judged, and a sentence for each whose Z, X or Y is off by more than ``tolerance``, as a
    share. Pauses without calls make an iteration longer: where the spec has such, Z may be too long."""
    pauses = any(not event.calls for event in spec.events)
    book = _Book(spec, folder)
    judged, wrong = 0, []
    for move, arm, sample, times in book.samples(played):
        judged += 1
        for name, measured, true in (("Z", sample.z, times.z), ("X", sample.x, _busy(times, SPAN_COLLECTIVE)),
                                     ("Y", sample.y, _busy(times, SPAN_COMPUTE))):  # fmt: skip
            off = 0.0 if measured is None else measured / true - 1.0
            if abs(off) > tolerance and not (pauses and name == "Z" and off > 0.0):
                wrong.append(f"move {move.number} ({move.purpose}), {arm}: {name} is off by {off:+.1%}")
    return judged, wrong


class _Book:
    def __init__(self, spec: JobSpec, folder: Path) -> None:
        self._folder, self._timing = folder, timing_of(spec)
        self._comm_id = spec.communicators[0].comm_id
        self._calls: list[Shape] = [
            (int(one.collective.function), one.collective.bytes) for one in self._timing.operations
        ]
        words = load(folder, self._comm_id, 0)[: len(self._calls)]
        self._stock = dict(zip(self._calls, map(unpack, words), strict=True))

    def samples(self, played: Played) -> Iterator[tuple[journal.Move, str, SampleRecord, IterationTimes]]:
        """(move, whose turn, what was measured, what it was) of every sample whose plan some rank has kept."""
        epoch = 0
        for event in played.events:
            if isinstance(event, journal.PlanPublished) and event.purpose != "cut":
                epoch = event.epoch
            path = self._folder / f"{self._comm_id:x}.{epoch}.plan"
            if not isinstance(event, journal.Move) or not event.samples or not path.exists():
                continue
            plan = Schedule(path.read_bytes())
            arms = [
                (name, self._times(plan, candidate)) for name, candidate in (("incumbent", False), ("candidate", True))
            ]
            for pair in event.samples:
                for (arm, times), sample in zip(arms, pair, strict=True):
                    if times is not None:
                        yield event, arm, sample, times

    def _times(self, plan: Schedule, candidate: bool) -> IterationTimes | None:
        """An iteration in that turn; the plan's may begin elsewhere than the simulator's, or be another."""
        named = plan.iteration(candidate=candidate)
        calls = [call for call, _ in named]
        turn = next((n for n in range(len(calls)) if calls[n:] + calls[:n] == self._calls), None)
        if turn is None:
            return None
        return self._timing.of([config.over(self._stock[call]) for call, config in named[turn:] + named[:turn]])


def _busy(times: IterationTimes, kind: int) -> float:
    return busy_ns(times.rows[times.rows["kind"] == kind])
