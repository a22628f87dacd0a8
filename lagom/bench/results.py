# SPDX-License-Identifier: Apache-2.0
"""From raw samples to results: pure, from a :class:`BenchRecord` to one result an arm.

Every ratio is of a pair: two neighbouring blocks of one job, or two processes of one round. Fewer than six pairs give
no 95 % interval; the result then says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from lagom.experiment.estimate import SpeedupEstimate, estimate_from_pairs
from lagom.experiment.log_extract import arms_of_search, search_note, search_of
from lagom.experiment.store import ArmWindow, ExperimentRecord, RunRecord
from lagom.format import format_count
from lagom.journal import Outcome


class BenchRecord(ExperimentRecord):
    """The samples of ``lagom bench``, and what it set out to compare. More cycles or rounds only add to them."""

    KEY = ("command", "arms", "metric", "higher_is_better", "communicators")
    schedule: Literal["bench"] = "bench"
    arms: list[str]
    communicators: int = 1


IN_JOB, PROCESS, TUNING = "in job", "process", "tuning"
OWN_STOCK = "own:stock"

#: (process, cycle in it) -> the window of one arm there.
Cycles = Mapping[tuple[int, int], ArmWindow]


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


def _rounds_of(runs: Iterable[RunRecord]) -> dict[int, dict[str, list[float]]]:
    """By round and arm: values, in the order run, of processes that did not fail."""
    rounds: dict[int, dict[str, list[float]]] = {}
    for run in runs:
        if run.kind == PROCESS and (value := run.counted):
            rounds.setdefault(run.round, {}).setdefault(run.arm, []).append(value)
    return rounds


def process_logs(record: BenchRecord, arm: str, other: str = OWN_STOCK) -> list[float]:
    """ln(value of ``arm`` / value of ``other``) of each round that has both, below 0 where ``arm`` is faster; of stock
    itself, of its two processes.

    One process against one, never against the mean of two: a mean of skewed values is spread otherwise than a value,
    and two equal arms would differ. Which of the two stocks stands for it alternates from round to round.
    """
    logs, sign = [], -1.0 if record.higher_is_better else 1.0
    for number, values in _rounds_of(record.runs).items():
        ours, theirs = _one(number + 1 if arm == other else number, values, arm), _one(number, values, other)
        if ours is not None and theirs is not None and (arm != other or len(values[arm]) > 1):
            logs.append(sign * math.log(ours / theirs))
    return logs


def _one(number: int, values: Mapping[str, list[float]], arm: str) -> float | None:
    """The process that stands for ``arm`` in a round."""
    own = values.get(arm, [])
    return own[number % 2] if len(own) > 1 else own[0] if own else None


#: Sweeps: the arms they become begin with this.
SWEEPS = {"static": "static=", "grid": "grid:"}


@dataclass(frozen=True, slots=True)
class Result:
    """One arm. ``pairing`` says what a pair was. ``search`` is what finding it took, of an arm that was tuned for."""

    arm: str
    pairing: str
    measured_by: str
    ratio: SpeedupEstimate | None
    typical: float | None = None  # an iteration under this arm: ns in job, else in the measure's unit
    note: str = ""
    search: Outcome | None = None


def results_of(record: BenchRecord) -> list[Result]:
    """Stock against stock first, then every arm in the order asked for, with those that came of sweeps and tuning."""
    found = {result.arm: result for result in (*_in_job(record), *_processes(record))}
    for run in record.runs_of(TUNING):
        own = Result(run.arm, "its own final A/B", run.measured_by, None, search=search_of(run), note=search_note(run))
        if (measured := found.get(run.arm)) is not None:  # what the comparison showed of what the search found
            own = replace(measured, note=own.note or measured.note, search=own.search)
        found[run.arm] = own
    wanted = [name for asked in record.arms for name in (asked, *_came_of(asked, found))]
    return [found[name] for name in dict.fromkeys([*wanted, *found]) if name in found]


def _came_of(asked: str, found: Iterable[str]) -> list[str]:
    """The arms that a sweep became, or that a search proposed."""
    prefix = SWEEPS.get(asked, f"{asked}:")
    return sorted((name for name in found if name.startswith(prefix)), key=lambda name: (len(name), name))


# -- within a job


def _in_job(record: BenchRecord) -> Iterator[Result]:
    runs = [run for run in record.runs_of(IN_JOB) if run.windows]
    by_arm = cycles_of(record)
    tier = ", ".join(dict.fromkeys(run.measured_by for run in runs if run.measured_by))
    jobs = "one job" if len(runs) == 1 else f"{len(runs)} jobs"
    for arm, own in by_arm.items():
        note, of_stock = "stock against stock: the noise" if arm == "stock" else "", len(by_arm.get("stock", {}))
        if len(own) < of_stock - len(runs):  # left out, or not measurable; each job may have been cut off in a cycle
            note = f"measured in {len(own)} of {of_stock} cycles"
        yield Result(arm, f"within {jobs}", tier, estimate_from_pairs(logs_of(own.values())), _typical(own), note)
    for word in SWEEPS:
        if word in record.arms and (best := _best_of(word, by_arm)) is not None:
            rest = best.held_out
            note = f"best of {best.among}: {best.arm}; chosen by half of its windows, measured by the other"
            ratio = estimate_from_pairs(logs_of(rest.values()))
            yield Result(word, f"within {jobs}, half of the windows", tier, ratio, _typical(rest), note)


def _typical(windows: Cycles) -> float:
    return float(np.median([z for window in windows.values() for _, z in window.z]))


@dataclass(frozen=True, slots=True)
class _Best:
    """The fastest ``arm`` ``among`` so many of a sweep, and those of its windows that were not used to choose it."""

    arm: str
    among: int
    held_out: Cycles


def _best_of(word: str, by_arm: Mapping[str, Cycles]) -> _Best | None:
    """The fastest of a sweep: chosen by every other window and measured by the rest, so that choosing the
    best of many does not overestimate it."""
    arms = {arm: list(own.items()) for arm, own in by_arm.items() if arm.startswith(SWEEPS[word]) and len(own) >= 2}
    if not arms:
        return None
    chosen_by = {arm: logs_of(window for _, window in own[::2]) for arm, own in arms.items()}
    best = min(arms, key=lambda arm: float(np.median(chosen_by[arm])))
    return _Best(best, len(arms), dict(arms[best][1::2]))


# -- processes


def _processes(record: BenchRecord) -> Iterator[Result]:
    by_arm: dict[str, list[tuple[float, str]]] = {}
    for run in record.runs_of(PROCESS):
        if (value := run.counted) is not None:
            by_arm.setdefault(run.arm, []).append((value, run.measure))
    for arm, own in by_arm.items():
        yield Result(
            arm,
            f"{format_count(len(own), 'process', 'processes')} in shuffled rounds",
            " and ".join(dict.fromkeys(measure for _, measure in own)),
            estimate_from_pairs(process_logs(record, arm)),
            float(np.median([value for value, _ in own])),
            "stock against stock, in processes of their own" if arm == OWN_STOCK else "",
        )


# -- two arms


def ratio_between(record: BenchRecord, arm: str, other: str) -> SpeedupEstimate | None:
    """The speed-up of ``arm`` over ``other``, any two arms of :func:`results_of`; None if nothing pairs them.

    Arms of one job are paired by cycle, each beside the stock of its own window; arms in processes of their own by
    round. A sweep (``static``, ``grid``) is its best setting, in the cycles that had no say in which that is. A search
    that left the job with stock is stock: then its own A/A windows stand for it.
    """
    by_arm = cycles_of(record)
    ours, theirs = (_standing_for(record, name, by_arm) for name in (arm, other))
    if ours and theirs:
        return estimate_from_pairs(list(logs_between(ours, theirs)))
    return estimate_from_pairs(process_logs(record, arm, other))


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
