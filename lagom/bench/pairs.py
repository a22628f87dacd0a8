"""What belongs together in a record: windows of one cycle, processes of one round. Pure.

Two things are compared only if they were measured as neighbours, and so that under equality swapping them changes
nothing: the same number of the same kind of values on both sides, and which is which settled before they are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from lagom.bench.store import ArmWindow, BenchRecord, RunRecord

IN_JOB, PROCESS, TUNING = "in job", "process", "tuning"
OWN_STOCK = "own:stock"

#: (process, cycle in it) -> the window of one arm there.
Cycles = Mapping[tuple[int, int], ArmWindow]
#: round -> arm -> values, in the order run.
Rounds = Mapping[int, Mapping[str, list[float]]]


def cycles_of(record: BenchRecord) -> dict[str, dict[tuple[int, int], ArmWindow]]:
    """The windows of each arm, by the cycle they were measured in.

    A cycle holds each arm once at most, so one that comes again begins the next. Where a window came back empty, a
    neighbour may be counted to the cycle before: they are still the closest of their arms.
    """
    found: dict[str, dict[tuple[int, int], ArmWindow]] = {}
    for job, run in enumerate(record.runs_of(IN_JOB)):
        cycle, seen = 0, set[str]()
        for window in run.windows:
            if window.arm in seen:
                cycle, seen = cycle + 1, set()
            seen.add(window.arm)
            found.setdefault(window.arm, {})[job, cycle] = window
    return found


def logs_of(windows: Iterable[ArmWindow]) -> list[float]:
    """ln(Z of the arm / Z of stock) of every pair."""
    return [math.log(arm / stock) for window in windows for stock, arm in window.z]


def logs_between(ours: Cycles, theirs: Cycles) -> Iterator[float]:
    """ln(Z of one arm / Z of another), each beside the stock of its own window, of cycles that have both."""
    for place, window in ours.items():
        if place in theirs:
            yield from (a - b for a, b in zip(logs_of([window]), logs_of([theirs[place]]), strict=False))


def rounds_of(runs: Iterable[RunRecord]) -> dict[int, dict[str, list[float]]]:
    """The values of each round, of processes that did not fail."""
    rounds: dict[int, dict[str, list[float]]] = {}
    for run in runs:
        if run.kind == PROCESS and (value := run.counted):
            rounds.setdefault(run.round, {}).setdefault(run.arm, []).append(value)
    return rounds


def round_logs(rounds: Rounds, arm: str, other: str = OWN_STOCK) -> Iterator[float]:
    """ln(value of ``arm`` / value of ``other``) of each round that has both; of stock itself, of its two processes.

    One process against one, never against the mean of two: a mean of skewed values is spread otherwise than a value,
    and two equal arms would differ. Which of the two stocks stands for it alternates from round to round.
    """
    for number, values in rounds.items():
        ours, theirs = _one(number + 1 if arm == other else number, values, arm), _one(number, values, other)
        if ours is not None and theirs is not None and (arm != other or len(values[arm]) > 1):
            yield math.log(ours / theirs)


def _one(number: int, values: Mapping[str, list[float]], arm: str) -> float | None:
    """The process that stands for ``arm`` in a round."""
    own = values.get(arm, [])
    return own[number % 2] if len(own) > 1 else own[0] if own else None


def sign_of(record: BenchRecord) -> float:
    """Of a log of process values, so that less is faster."""
    return -1.0 if record.higher_is_better else 1.0
