# SPDX-License-Identifier: Apache-2.0
"""One tuning run on the simulator, by the session that the live controller drives; rows of medians over seeds."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.suite.cases import Case
from lagom.cost import FittedModel
from lagom.search import TuningSession, make_strategy
from lagom.sim import Simulator
from lagom.sim.oracle import best_static, oracle
from lagom.sim.simulated_job import SimulatedJob

NOISE = 0.02


@dataclass(frozen=True, slots=True)
class Truth:
    """The noise-free frame of a case, ns: stock, the oracle, the best single cap of NC."""

    stock: float
    oracle: float
    static: float


@dataclass(frozen=True, slots=True)
class SuiteRun:
    """How one run ended. ``z`` noise-free under what the job was left with, ``z_proposed`` under the strategy's own
    choice before the final A/B; ns."""

    seed: int
    z: float
    z_proposed: float
    configs: int
    windows: int
    iterations: int
    regret: float


@dataclass(frozen=True, slots=True)
class StrategyArm:
    """A strategy with options, by the name it has in tables."""

    name: str
    strategy: str
    options: dict[str, Any] = field(default_factory=dict)


def truth(simulator: Simulator) -> Truth:
    """Stock, oracle and best static cap of a case."""
    stock = simulator.run(simulator.stock()).z
    return Truth(stock, oracle(simulator).z, best_static(simulator).z)


def run_arm(case: Case, simulator: Simulator, arm: StrategyArm, seed: int, noise: float = NOISE) -> SuiteRun:
    """One run. Arms share the seed's noise only as far as they ask for the same windows."""
    problem = case.problem(simulator)
    mixed = zlib.crc32(f"{case} {seed}".encode())
    session = TuningSession(
        make_strategy(arm.strategy, problem, mixed, model=FittedModel, **arm.options), problem, seed=mixed
    )
    outcome = SimulatedJob(simulator, mixed, noise).drive(session).outcome
    if outcome is None:
        raise RuntimeError(f"{arm.name} never ended on {case}")
    proposed = outcome.proposed or outcome.assignment
    return SuiteRun(
        seed=seed,
        z=simulator.run(outcome.assignment).z,
        z_proposed=simulator.run(proposed).z,
        configs=outcome.configs,
        windows=outcome.windows,
        iterations=outcome.iterations,
        regret=outcome.regret_iterations,
    )


Row = dict[str, Any]


def row(case: Case, name: str, runs: list[SuiteRun], frame: Truth, autoccl: list[SuiteRun]) -> Row:
    """One line of the table. Speed-ups: above 1 is better than that baseline; ``oracle_ratio``: Z over the best Z.

    ``autoccl`` are that strategy's runs on the same seeds; AutoCCL there is held by the same final A/B as everyone, so
    ``speedup_autoccl_proposed`` compares with its own choice, as the paper does.
    """
    result: Row = {
        "workload": case.workload,
        "preset": case.preset,
        "knobs": case.knobs,
        "label": "paper's fork" if case.fork_only else "stock NCCL",
        "contexts": "withheld" if case.blind else "known",
        "strategy": name,
        "seeds": len(runs),
    }
    _spread(result, "speedup_stock", (frame.stock / run.z for run in runs))
    _spread(result, "speedup_autoccl", (other.z / run.z for run, other in zip(runs, autoccl, strict=True)))
    _spread(result, "speedup_static", (frame.static / run.z for run in runs))
    _spread(result, "oracle_ratio", (run.z / frame.oracle for run in runs))
    _spread(result, "configs", (run.configs for run in runs))
    _spread(result, "windows", (run.windows for run in runs))
    _spread(result, "regret_iterations", (run.regret for run in runs))
    _spread(result, "speedup_proposed", (frame.stock / run.z_proposed for run in runs))
    proposals = (other.z_proposed / run.z for run, other in zip(runs, autoccl, strict=True))
    _spread(result, "speedup_autoccl_proposed", proposals)
    result["oracle_ratio_p95"] = _round(float(np.percentile([run.z / frame.oracle for run in runs], 95)))
    result["below_0995"] = sum(frame.stock / run.z < 0.995 for run in runs)
    result["oracle_speedup"] = _round(frame.stock / frame.oracle)
    result["static_speedup"] = _round(frame.stock / frame.static)
    return result


def _spread(result: Row, key: str, values: Iterable[float]) -> None:
    numbers = np.asarray(list(values), dtype=float)
    for suffix, percentile in (("", 50), ("_p10", 10), ("_p90", 90)):
        result[key + suffix] = _round(float(np.percentile(numbers, percentile)))


def _round(value: float) -> float:
    return round(value, 4)


def pick(rows: Iterable[Row], **want: Any) -> list[Row]:
    """The rows in which every named column has that value (or satisfies that predicate)."""
    return [r for r in rows if all(_fits(r[key], value) for key, value in want.items())]


def _fits(value: Any, wanted: Any) -> bool:
    return bool(wanted(value)) if isinstance(wanted, Callable) else value == wanted  # type: ignore[arg-type]
