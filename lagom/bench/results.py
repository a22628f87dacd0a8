"""From raw samples to what can be said: pure, from a :class:`~lagom.bench.store.BenchRecord` to one result an arm.

Every ratio is of a pair: two neighbouring blocks of one job, or two processes of one round. The number is the
Hodges-Lehmann median of ln(Z of stock / Z of the arm), the interval that of the signed-rank test: neither asks how the
noise is distributed, and fewer than six pairs give no 95 % interval at all, which is then said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from lagom.bench.store import BenchRecord, RunRecord, Window
from lagom.search import statistics

IN_JOB, PROCESS, TUNING = "in job", "process", "tuning"
OWN_STOCK = "own:stock"
CERTAINTY = 2.0  # standard errors
#: Sweeps: the arms they become begin with this.
SWEEPS = {"static": "static=", "grid": "grid:"}


@dataclass(frozen=True, slots=True)
class Ratio:
    """Speed-up over stock with its 95 % interval, from ``pairs`` pairs. ``low`` is 0 and ``high`` infinite where there
    are too few. ``resolvable``: the smallest effect, as a fraction, that so many pairs of such noise would show."""

    value: float
    low: float
    high: float
    pairs: int
    resolvable: float

    @property
    def has_interval(self) -> bool:
        """Whether there were pairs enough for one."""
        return self.low > 0.0 and math.isfinite(self.high)


@dataclass(frozen=True, slots=True)
class Result:
    """One arm. ``pairing`` says what a pair was. ``search`` is what finding it took, of an arm that was tuned for."""

    arm: str
    pairing: str
    measured_by: str
    ratio: Ratio | None
    typical: float | None = None  # an iteration under this arm: ns in job, else in the measure's unit
    note: str = ""
    search: Search | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """How a tuning run went: its verdict, its own final A/B, and what it cost the job."""

    verdict: str
    speedup: float | None
    low: float | None
    high: float | None
    configs: int
    iterations: int
    lost: float
    reason: str


def results_of(record: BenchRecord) -> list[Result]:
    """Stock against stock first, then every arm in the order asked for, with those that came of sweeps and tuning."""
    found = {result.arm: result for result in (*_in_job(record), *_processes(record))}
    for search in _searches(record):
        found[search.arm] = _joined(found.get(search.arm), search)
    wanted = [name for asked in record.arms for name in (asked, *_came_of(asked, found))]
    return [found[name] for name in dict.fromkeys([*wanted, *found]) if name in found]


def _came_of(asked: str, found: Iterable[str]) -> list[str]:
    """The arms that a sweep became, or that a search proposed."""
    prefix = SWEEPS.get(asked, f"{asked}:")
    return sorted((name for name in found if name.startswith(prefix)), key=lambda name: (len(name), name))


def ratio_of(logs: Sequence[float]) -> Ratio | None:
    """The speed-up that ln(Z of the arm / Z of stock) of each pair amounts to; None without pairs."""
    if not logs:
        return None
    values = np.asarray(logs, dtype=float)
    low, high = statistics.shift_interval(values)
    scatter = statistics.Noise()
    scatter.add(list(logs))
    error = statistics.estimate(list(logs), scatter.sigma).se
    return Ratio(
        value=math.exp(-statistics.hodges_lehmann(values)),
        low=math.exp(-high) if math.isfinite(high) else 0.0,
        high=math.exp(-low) if math.isfinite(low) else math.inf,
        pairs=len(values),
        resolvable=statistics.resolvable(error, CERTAINTY),
    )


# -- within a job


def _in_job(record: BenchRecord) -> Iterator[Result]:
    runs = [run for run in record.runs_of(IN_JOB) if run.windows]
    windows = [window for run in runs for window in run.windows]
    by_arm: dict[str, list[Window]] = {}
    for window in windows:
        by_arm.setdefault(window.arm, []).append(window)
    tier = ", ".join(dict.fromkeys(run.measured_by for run in runs if run.measured_by))
    jobs = "one job" if len(runs) == 1 else f"{len(runs)} jobs"
    for arm, own in by_arm.items():
        note = "stock against stock: the noise" if arm == "stock" else ""
        typical = float(np.median([z for window in own for _, z in window.z]))
        yield Result(arm, f"within {jobs}", tier, ratio_of(_logs(own)), typical, note)
    for word, prefix in SWEEPS.items():
        if word in record.arms:
            yield from _best_of(word, {arm: own for arm, own in by_arm.items() if arm.startswith(prefix)}, tier)


def _logs(windows: Iterable[Window]) -> list[float]:
    return [math.log(arm / stock) for window in windows for stock, arm in window.z]


def _best_of(word: str, arms: dict[str, list[Window]], tier: str) -> Iterator[Result]:
    """The fastest of a sweep: chosen by every other window and measured by the rest, so that the best of many is not
    taken for better than it is."""
    split = {arm: (own[::2], own[1::2]) for arm, own in arms.items() if len(own) >= 2}
    if not split:
        return
    best = min(split, key=lambda arm: float(np.median(_logs(split[arm][0]))))
    rest = split[best][1]
    typical = float(np.median([z for window in rest for _, z in window.z]))
    note = f"best of {len(split)}: {best}; chosen by half of its windows, measured by the other"
    yield Result(word, "within one job, half of the windows", tier, ratio_of(_logs(rest)), typical, note)


# -- processes


def _processes(record: BenchRecord) -> Iterator[Result]:
    runs = [run for run in record.runs_of(PROCESS) if run.value is not None]
    arms = dict.fromkeys(run.arm for run in runs)
    rounds = _rounds(runs)
    for arm in arms:
        logs = list(_round_logs(rounds, arm, record.higher_is_better))
        values = [run.value for run in runs if run.arm == arm and run.value is not None]
        yield Result(
            arm,
            f"{len(values)} process{'' if len(values) == 1 else 'es'} in shuffled rounds",
            " and ".join(dict.fromkeys(run.measure for run in runs if run.arm == arm)),
            ratio_of(logs),
            float(np.median(values)),
            "stock against stock, in processes of their own" if arm == OWN_STOCK else "",
        )


def _rounds(runs: Iterable[RunRecord]) -> dict[int, dict[str, list[float]]]:
    """round -> arm -> values, in the order run."""
    rounds: dict[int, dict[str, list[float]]] = {}
    for run in runs:
        if run.value:
            rounds.setdefault(run.round, {}).setdefault(run.arm, []).append(run.value)
    return rounds


def _round_logs(rounds: dict[int, dict[str, list[float]]], arm: str, higher_is_better: bool) -> Iterator[float]:
    """ln(arm / stock) of each round that has both; of stock itself, of its two processes."""
    sign = -1.0 if higher_is_better else 1.0
    for values in rounds.values():
        stock = values.get(OWN_STOCK, [])
        if arm == OWN_STOCK:
            if len(stock) >= 2:
                yield sign * math.log(stock[1] / stock[0])
        elif stock and values.get(arm):
            yield sign * math.log(values[arm][0] / (sum(stock) / len(stock)))


# -- tuning


def _searches(record: BenchRecord) -> Iterator[Result]:
    for run in record.runs:
        if run.kind == TUNING:
            yield Result(run.arm, "its own final A/B", run.measured_by, None, search=_search(run), note=_told(run))


def _search(run: RunRecord) -> Search | None:
    told = run.outcome
    if told is None:
        return None
    return Search(
        verdict=told["verdict"],
        speedup=told.get("speedup"),
        low=told.get("speedup_low"),
        high=told.get("speedup_high"),
        configs=told.get("configs", 0),
        iterations=told.get("iterations", 0),
        lost=told.get("regret_iterations", 0.0),
        reason=told.get("reason", ""),
    )


def _told(run: RunRecord) -> str:
    if run.outcome is None:
        return "the search had not ended when the job did"
    verdict = run.outcome["verdict"]
    return "" if verdict == "improved" else f"{verdict.replace('_', ' ')}: the job is left with stock"


def _joined(measured: Result | None, search: Result) -> Result:
    """What the comparison showed of what the search found."""
    if measured is None:
        return search
    return Result(
        search.arm,
        measured.pairing,
        measured.measured_by,
        measured.ratio,
        measured.typical,
        search.note or measured.note,
        search.search,
    )
