"""An arm beside another one of the same rounds of processes, and which of many such comparisons may be believed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lagom.bench.arms import Kind
from lagom.bench.results import Ratio, ratio_of
from lagom.bench.store import BenchRecord, RunRecord
from lagom.search import statistics

LEVEL = 0.05  # of all comparisons of one record together, two-sided
SPARE = 2  # rounds more than the fewest that can show anything: one pair may fall the wrong way


@dataclass(frozen=True, slots=True)
class Paired:
    """``ratio``: how many times as fast as ``beside``; ``p``: two-sided, of as much in that direction by chance."""

    arm: str
    beside: str
    ratio: Ratio
    p: float


def paired(record: BenchRecord, arm: str, beside: str) -> Paired | None:
    """The arm against another, by rounds that have both; None where there is none.

    Where the other ran twice in a round (stock does), its first and its second process take turns: a pair is then two
    single processes, whose difference is symmetric if the arms are equal. Of a mean of two it would not be, as noise is
    skewed.
    """
    logs = list(_logs(_by_round(record.runs_of(Kind.PROCESS.value)), arm, beside, record.higher_is_better))
    ratio = ratio_of(logs)
    return None if ratio is None else Paired(arm, beside, ratio, _p(logs))


def believed(found: Iterable[Paired], level: float = LEVEL) -> frozenset[str]:
    """The arms that differ, of all that were looked at: Holm (1979), so that none of them does by chance in more than
    ``level`` of all records, however many arms were tried."""
    ordered = sorted(found, key=lambda one: one.p)
    passed: list[str] = []
    for place, one in enumerate(ordered):
        if one.p > level / (len(ordered) - place):
            break
        passed.append(one.arm)
    return frozenset(passed)


def rounds_for(arms: int) -> int:
    """Rounds in which one of so many arms can be shown to be better."""
    return statistics.fewest_pairs(LEVEL / 2 / max(arms, 1)) + SPARE


def _by_round(runs: Iterable[RunRecord]) -> dict[int, dict[str, list[float]]]:
    found: dict[int, dict[str, list[float]]] = {}
    for run in runs:
        if run.value:
            found.setdefault(run.round, {}).setdefault(run.arm, []).append(run.value)
    return found


def _logs(
    rounds: Mapping[int, Mapping[str, Sequence[float]]], arm: str, beside: str, higher_is_better: bool
) -> Iterator[float]:
    """ln(arm / beside) of times, below 0 = the arm is faster."""
    sign = -1.0 if higher_is_better else 1.0
    for number, values in rounds.items():
        mine, others = values.get(arm), values.get(beside)
        if mine and others:
            yield sign * math.log(mine[0] / others[number % len(others)])


def _p(logs: Sequence[float]) -> float:
    values = np.asarray(logs, dtype=float)
    return min(1.0, 2.0 * min(statistics.signed_rank_p(values), statistics.signed_rank_p(-values)))
