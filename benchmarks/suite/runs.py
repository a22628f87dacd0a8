"""One tuning run on the simulator: the same session the live controller drives, under noise, from a seed."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

from benchmarks.suite.cases import Case
from lagom.cost import FittedModel
from lagom.search import TuningSession, make_strategy
from lagom.sim import Simulator
from lagom.sim.oracle import best_static, oracle
from lagom.sim.world import World

NOISE = 0.02


@dataclass(frozen=True, slots=True)
class Truth:
    """The noise-free frame of a case, ns: stock, the oracle, the best single cap of NC."""

    stock: float
    oracle: float
    static: float


@dataclass(frozen=True, slots=True)
class Run:
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
class Arm:
    """A strategy with options, by the name it has in tables."""

    name: str
    strategy: str
    options: dict[str, Any] = field(default_factory=dict)


def truth(simulator: Simulator) -> Truth:
    """Stock, oracle and best static cap of a case."""
    stock = simulator.run(simulator.stock()).z
    return Truth(stock, oracle(simulator).z, best_static(simulator).z)


def run_arm(case: Case, simulator: Simulator, arm: Arm, seed: int, noise: float = NOISE) -> Run:
    """One run. Arms share the seed's noise only as far as they ask for the same windows."""
    problem = case.problem(simulator)
    mixed = zlib.crc32(f"{case} {seed}".encode())
    session = TuningSession(
        make_strategy(arm.strategy, problem, mixed, model=FittedModel, **arm.options), problem, seed=mixed
    )
    outcome = World(simulator, mixed, noise).drive(session).outcome
    if outcome is None:
        raise RuntimeError(f"{arm.name} never ended on {case}")
    proposed = outcome.proposed or outcome.assignment
    return Run(
        seed=seed,
        z=simulator.run(outcome.assignment).z,
        z_proposed=simulator.run(proposed).z,
        configs=outcome.configs,
        windows=outcome.windows,
        iterations=outcome.iterations,
        regret=outcome.regret_iterations,
    )
