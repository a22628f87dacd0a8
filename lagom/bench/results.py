"""From raw samples to what can be said: pure, from a :class:`~lagom.bench.store.BenchRecord` to one result an arm.

Every ratio is of a pair: two neighbouring blocks of one job, or two processes of one round. The number is the
Hodges-Lehmann median of ln(Z of stock / Z of the arm), the interval that of the signed-rank test: neither asks how the
noise is distributed, and fewer than six pairs give no 95 % interval at all, which is then said.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lagom.bench.log_extract import arms_of_search
from lagom.bench.pairs import (
    IN_JOB,
    OWN_STOCK,
    PROCESS,
    TUNING,
    Cycles,
    cycles_of,
    logs_between,
    logs_of,
    round_logs,
    rounds_of,
    sign_of,
)
from lagom.bench.store import BenchRecord, RunRecord
from lagom.search import statistics

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
    by_arm = cycles_of(record)
    tier = ", ".join(dict.fromkeys(run.measured_by for run in runs if run.measured_by))
    jobs = "one job" if len(runs) == 1 else f"{len(runs)} jobs"
    for arm, own in by_arm.items():
        note = "stock against stock: the noise" if arm == "stock" else _fewer(own, by_arm.get("stock", {}), len(runs))
        yield Result(arm, f"within {jobs}", tier, ratio_of(logs_of(own.values())), _typical(own), note)
    for word in SWEEPS:
        if word in record.arms and (best := _best_of(word, by_arm)) is not None:
            rest = best.held_out
            note = f"best of {best.among}: {best.arm}; chosen by half of its windows, measured by the other"
            ratio = ratio_of(logs_of(rest.values()))
            yield Result(word, f"within {jobs}, half of the windows", tier, ratio, _typical(rest), note)


def _fewer(own: Cycles, stock: Cycles, jobs: int) -> str:
    """Whether an arm has fewer pairs than the others: it was left out, or could not be measured. Each job may have been
    cut off within a cycle."""
    return f"measured in {len(own)} of {len(stock)} cycles" if len(own) < len(stock) - jobs else ""


def _typical(windows: Cycles) -> float:
    return float(np.median([z for window in windows.values() for _, z in window.z]))


@dataclass(frozen=True, slots=True)
class _Best:
    """The fastest ``arm`` ``among`` so many of a sweep, and its windows that had no say in that."""

    arm: str
    among: int
    held_out: Cycles


def _best_of(word: str, by_arm: Mapping[str, Cycles]) -> _Best | None:
    """The fastest of a sweep: chosen by every other window and measured by the rest, so that the best of many is not
    taken for better than it is."""
    arms = {arm: list(own.items()) for arm, own in by_arm.items() if arm.startswith(SWEEPS[word]) and len(own) >= 2}
    if not arms:
        return None
    chosen_by = {arm: logs_of(window for _, window in own[::2]) for arm, own in arms.items()}
    best = min(arms, key=lambda arm: float(np.median(chosen_by[arm])))
    return _Best(best, len(arms), dict(arms[best][1::2]))


# -- processes


def _processes(record: BenchRecord) -> Iterator[Result]:
    runs = [run for run in record.runs_of(PROCESS) if run.counted is not None]
    arms = dict.fromkeys(run.arm for run in runs)
    rounds, sign = rounds_of(runs), sign_of(record)
    for arm in arms:
        logs = [sign * log for log in round_logs(rounds, arm)]
        values = [run.value for run in runs if run.arm == arm and run.value is not None]
        yield Result(
            arm,
            f"{len(values)} process{'' if len(values) == 1 else 'es'} in shuffled rounds",
            " and ".join(dict.fromkeys(run.measure for run in runs if run.arm == arm)),
            ratio_of(logs),
            float(np.median(values)),
            "stock against stock, in processes of their own" if arm == OWN_STOCK else "",
        )


# -- two arms


def ratio_between(record: BenchRecord, arm: str, other: str) -> Ratio | None:
    """The speed-up of ``arm`` over ``other``, any two arms of :func:`results_of`; None if nothing pairs them.

    Arms of one job are paired by cycle, each beside the stock of its own window; arms in processes of their own by
    round. A sweep (``static``, ``grid``) is its best setting, in the cycles that had no say in which that is. A search
    that left the job with stock is stock: then its own A/A windows stand for it.
    """
    by_arm = cycles_of(record)
    ours, theirs = (_standing_for(record, name, by_arm) for name in (arm, other))
    if ours and theirs:
        return ratio_of(list(logs_between(ours, theirs)))
    sign = sign_of(record)
    return ratio_of([sign * log for log in round_logs(rounds_of(record.runs), arm, other)])


def _standing_for(record: BenchRecord, name: str, by_arm: Mapping[str, Cycles]) -> Cycles | None:
    """The windows of an arm; of what a sweep chose, or of stock where a search kept it."""
    if name in by_arm:
        return by_arm[name]
    if name in SWEEPS and name in record.arms:
        best = _best_of(name, by_arm)
        return None if best is None else best.held_out
    searches = [run for run in record.runs_of(TUNING, name) if run.outcome is not None]
    kept_stock = searches and all(wish.name != name for run in searches for wish in arms_of_search(run))
    return by_arm.get("stock") if kept_stock else None


# -- tuning


def _searches(record: BenchRecord) -> Iterator[Result]:
    for run in record.runs:
        if run.kind == TUNING:
            yield Result(
                run.arm, "its own final A/B", run.measured_by, None, search=_search(run), note=_search_note(run)
            )


def _search(run: RunRecord) -> Search | None:
    outcome = run.outcome
    if outcome is None:
        return None
    return Search(
        verdict=outcome["verdict"],
        speedup=outcome.get("speedup"),
        low=outcome.get("speedup_low"),
        high=outcome.get("speedup_high"),
        configs=outcome.get("configs", 0),
        iterations=outcome.get("iterations", 0),
        lost=outcome.get("regret_iterations", 0.0),
        reason=outcome.get("reason", ""),
    )


def _search_note(run: RunRecord) -> str:
    if run.outcome is None:
        return run.reason or "its search had not ended when the job did"
    verdict = run.outcome["verdict"]
    if verdict == "stopped":  # on whatever was confirmed until then
        return f"its search was stopped: {run.outcome.get('reason', '')}"
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
