"""An arm beside another one of the same rounds of processes, and which of many such comparisons may be believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lagom.bench.pairs import round_logs, rounds_of, sign_of
from lagom.bench.results import Ratio, ratio_of
from lagom.bench.store import BenchRecord
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

    A pair is two single processes, as everywhere in a benchmark (:func:`lagom.bench.pairs.round_logs`).
    """
    sign = sign_of(record)
    logs = [sign * log for log in round_logs(rounds_of(record.runs), arm, beside)]
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


def _p(logs: Sequence[float]) -> float:
    values = np.asarray(logs, dtype=float)
    return min(1.0, 2.0 * min(statistics.signed_rank_p(values), statistics.signed_rank_p(-values)))
