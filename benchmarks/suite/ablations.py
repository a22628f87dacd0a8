# SPDX-License-Identifier: Apache-2.0
"""What each ingredient is worth (the same runs with one thing changed), and how the number of configs grows with the
number of communications (the paper's Fig. 8c)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.suite.cases import Case
from benchmarks.suite.runs import Row, StrategyArm, SuiteRun, row, run_arm, truth

BASE = StrategyArm("lagom", "lagom")
ORDERS: tuple[StrategyArm, ...] = (
    BASE,
    StrategyArm("order: random", "lagom", {"order": "random"}),
    StrategyArm("order: reversed", "lagom", {"order": "reversed"}),
)
ARMS: tuple[StrategyArm, ...] = (
    *ORDERS,
    StrategyArm("start: incumbent", "lagom", {"start": "stock"}),
    StrategyArm("one config for all", "lagom", {"shared": True}),
    StrategyArm("model on (guided)", "guided"),
    StrategyArm("model on, one config for all", "guided", {"shared": True}),
    StrategyArm("as_printed", "as_printed"),
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
        for arm in (BASE, StrategyArm("guided", "guided")):
            runs[f"{label} ({arm.name})"] = _runs(replace(case, knobs=knobs), arm, seeds)
    return [row(case, name, done, frame, runs[BASE.name]) for name, done in runs.items()]


def _runs(case: Case, arm: StrategyArm, seeds: int) -> list[SuiteRun]:
    simulator = case.simulator()
    return [run_arm(case, simulator, arm, seed) for seed in range(seeds)]


STRATEGIES = ("auto", "lagom", "guided", "autoccl")
PRESETS = ("a40_nvlink", "h200_host")


def converge(case: Case, seeds: int) -> list[Row]:
    """Configs to the end of the run, and to within 1 % of where it ends, for one synthetic pattern."""
    simulator = case.simulator()
    count = len(simulator.problem().sites)
    stock = simulator.run(simulator.stock()).z
    rows: list[Row] = []
    for name in STRATEGIES:
        runs = [run_arm(case, simulator, StrategyArm(name, name), seed) for seed in range(seeds)]
        configs = [run.configs for run in runs]
        rows.append(
            {
                "preset": case.preset,
                "communications": count,
                "strategy": name,
                "configs": float(np.median(configs)),
                "configs_p10": float(np.percentile(configs, 10)),
                "configs_p90": float(np.percentile(configs, 90)),
                "speedup_stock": round(float(np.median([stock / run.z for run in runs])), 4),
                "regret_iterations": round(float(np.median([run.regret for run in runs])), 2),
            }
        )
    return rows


def convergence_cases(most: int = 16) -> list[Case]:
    """1 to ``most`` communications on a compute-bound and a communication-bound machine."""
    return [Case(f"synthetic_{n}", preset, "stock_2_30") for preset in PRESETS for n in range(most, 0, -1)]


def slope(rows: list[Row], strategy: str, preset: str) -> tuple[float, float, float]:
    """Straight line through configs over N: (per communication, at none, r squared)."""
    points = [(r["communications"], r["configs"]) for r in rows if (r["strategy"], r["preset"]) == (strategy, preset)]
    if len(points) < 2:
        return (float("nan"),) * 3
    x, y = np.array(points, dtype=float).T
    per, at_none = np.polyfit(x, y, 1)
    rest = y - (per * x + at_none)
    spread = float(np.sum((y - y.mean()) ** 2))
    return float(per), float(at_none), 1.0 - float(np.sum(rest**2)) / spread if spread else 1.0
