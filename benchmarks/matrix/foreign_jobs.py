# SPDX-License-Identifier: Apache-2.0
"""The job with and without Lagom, in separate processes: exits, losses, and what a step costs.

The cost of tuning to a job is the ratio of mean step times, the search included: a median would leave out the steps in
which candidates were tried. A row with arms runs each of them once a round, in an order of that round's own, so that a
machine that drifts favours none; a row without runs one round.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.matrix.place import Place
from benchmarks.matrix.rows import Row
from benchmarks.matrix.single_runs import SingleRun, run_arms
from benchmarks.matrix.verdicts import format_ratio
from lagom.experiment.estimate import estimate_from_pairs
from lagom.search import STRATEGIES

OFF, AGAIN = "off", "off again"
TUNED = "lagom"
#: One-time work of a job (memory, kernels, torch.compile) falls into its first steps; they are no part of a mean.
START_UP_STEPS = 5
#: Parts an arm's name from its round.
ROUND = "#"


def runs(row: Row) -> dict[str, SingleRun]:
    """The processes of a row in the order in which they run."""
    known = {
        OFF: SingleRun(None),
        TUNED: SingleRun(("--mode", "tune")),
        AGAIN: SingleRun(None),
    } | {arm: SingleRun(_options(arm)) for arm in row.arms if _options(arm)}
    if not row.arms:
        return {arm: known[arm] for arm in (OFF, TUNED, AGAIN)}
    shuffle = random.Random(row.name)
    rounds = (shuffle.sample(row.arms, len(row.arms)) for _ in range(row.rounds))
    return {f"{arm}{ROUND}{number}": known[arm] for number, order in enumerate(rounds) for arm in order}


def _options(arm: str) -> tuple[str, ...]:
    """Of `lagom run`: a config set by hand, or a search strategy; none for the other arms."""
    if arm.startswith("set="):
        return ("--set", arm.removeprefix("set="))
    return ("--mode", "tune", "--strategy", arm) if arm in STRATEGIES and arm != TUNED else ()


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """Every process that time allows; a later session goes on with those that are missing."""
    wanted = runs(row)
    arms = run_arms(place.command(row), place.folder / row.name, wanted, place.environ(row), earlier, budget)
    return {"complete": len(arms) == len(wanted), "arms": arms, "verdict": verdict(arms)}


def verdict(arms: Mapping[str, Any]) -> dict[str, Any]:
    """What the arms show, from their raw samples: exits, losses, and the job without Lagom over each arm by mean steps.
    Empty without a whole round."""
    by_round = rounds_of(arms)
    if not by_round:
        return {}
    found: dict[str, Any] = {"exits": [arm["exit"] for one in by_round for arm in one.values()]}
    first = by_round[0]
    if TUNED in first:
        found["loss_difference"] = _loss_difference(by_round, TUNED)
    found["loss_difference_off"] = _loss_difference(by_round, AGAIN)
    names = {TUNED: "speed", AGAIN: "speed_off"}
    names |= {arm: f"speed {arm}" for arm in first if _options(arm)}
    return found | {name: _speed(by_round, arm) for arm, name in names.items() if arm in first}


def rounds_of(arms: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The arms of each whole round, by name."""
    found: dict[str, dict[str, Any]] = {}
    for name, arm in arms.items():
        what, _, number = name.partition(ROUND)
        found.setdefault(number, {})[what] = arm
    most = max((set(one) for one in found.values()), key=len, default=set())
    return [one for one in found.values() if set(one) == most and {OFF, AGAIN} <= most]


def mean_step(times: Sequence[float]) -> float | None:
    """Milliseconds a step over a whole run without its start-up; None if it was not longer than that."""
    return statistics.fmean(times[START_UP_STEPS:]) if len(times) > START_UP_STEPS else None


def _speed(by_round: Sequence[Mapping[str, Any]], arm: str) -> str | None:
    """The mean step of the job without Lagom over that of an arm: paired by round, in words with its interval."""
    logs = []
    for one in by_round:
        base, ours = mean_step(one[OFF].get("ms", ())), mean_step(one[arm].get("ms", ()))
        if base and ours:
            logs.append(math.log(ours / base))
    if len(by_round) == 1:
        return f"{math.exp(-logs[0]):.3f} (one round: no interval)" if logs else None
    return format_ratio(estimate_from_pairs(logs))


def _loss_difference(by_round: Sequence[Mapping[str, Any]], arm: str) -> float | None:
    """The largest of any round between an arm and the job without Lagom."""
    found = (largest_difference(one[arm]["losses"], one[OFF]["losses"]) for one in by_round)
    return max((difference for difference in found if difference is not None), default=None)


def largest_difference(ones: list[float], others: list[float]) -> float | None:
    """Of two runs' losses, step by step; None if one printed none."""
    both = list(zip(ones, others, strict=False))
    return max(abs(a - b) for a, b in both) if both else None
