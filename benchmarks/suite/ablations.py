"""What each ingredient is worth: the same runs with one thing changed."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.suite.cases import Case
from benchmarks.suite.rows import Row, row
from benchmarks.suite.runs import Arm, Run, run_arm, truth

BASE = Arm("lagom", "lagom")
ORDERS: tuple[Arm, ...] = (
    BASE,
    Arm("order: random", "lagom", {"order": "random"}),
    Arm("order: reversed", "lagom", {"order": "reversed"}),
)
ARMS: tuple[Arm, ...] = (
    *ORDERS,
    Arm("start: incumbent", "lagom", {"start": "stock"}),
    Arm("one config for all", "lagom", {"shared": True}),
    Arm("model on (guided)", "guided"),
    Arm("model on, one config for all", "guided", {"shared": True}),
    Arm("as_printed", "as_printed"),
)
KNOBS = (("C off", "stock_2_28"), ("NT on", "stock_2_30_nt"))
"""Knob sets other than the headline's; run with ``lagom`` and ``guided``."""


def ablate(case: Case, seeds: int) -> list[Row]:
    """Every arm on one landscape; all speed-ups and ratios are against the headline knob set's stock and oracle. Where
    contexts are withheld the orders alone, from twice the seeds: they are cheap, and differ by little."""
    simulator = case.simulator()
    frame = truth(simulator)
    if case.blind:
        runs = {arm.name: _runs(case, arm, 2 * seeds) for arm in ORDERS}
        return [row(case, name, done, frame, runs[BASE.name]) for name, done in runs.items()]
    runs = {arm.name: _runs(case, arm, seeds) for arm in ARMS}
    for label, knobs in KNOBS:
        for arm in (BASE, Arm("guided", "guided")):
            runs[f"{label} ({arm.name})"] = _runs(replace(case, knobs=knobs), arm, seeds)
    return [row(case, name, done, frame, runs[BASE.name]) for name, done in runs.items()]


def _runs(case: Case, arm: Arm, seeds: int) -> list[Run]:
    simulator = case.simulator()
    return [run_arm(case, simulator, arm, seed) for seed in range(seeds)]
