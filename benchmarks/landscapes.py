# SPDX-License-Identifier: Apache-2.0
"""What each part of the search contributes: the table in ``lagom/search/README.md``.

    python -m benchmarks.landscapes [--seeds 4] [--json FILE]      # about 10 minutes on 2 cores

Every third landscape of ``sim_suite``, the noise of its runs (2 %), each arm from the same seeds. The share of the
possible gain is that of the end result, over landscapes where the oracle is at least 2 % faster than stock.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.suite.cases import Case, all_cases
from benchmarks.suite.runs import NOISE, truth
from lagom.cost import FittedModel
from lagom.records import Sample
from lagom.search import TuningSession, make_strategy
from lagom.search.base import Answer, Moves, Strategy
from lagom.search.measurements import Measurements
from lagom.search.strategies.lagom import Lagom
from lagom.sim.simulated_job import SimulatedJob
from tests.evidence import circumstances

EVERY = 3
WORTH = 0.02
SEEDS = 4


class GrowthAlone(Lagom):
    """Floor, raise, grow (the paper's Algorithms 1 and 2) and nothing after: no screening, no handing back."""

    def moves(self, measurements: Measurements) -> Moves:
        """The first three steps of the course."""
        stock = self._anchor = measurements.known(self.space.stock)
        self._comms = self._groups.together(
            [u for u in self.space.units if self._groups.matters(u, stock, self.epsilon)]
        )
        current = yield from self._measure_floor(stock)
        current = yield from self._raise_together(measurements, current)
        current = yield from self._grow(current)
        return Answer(current.assignment, self._ended)


class Blinded(SimulatedJob):
    """A job of which less is measured."""

    def __init__(self, *args: Any, hide: tuple[str, ...], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hidden = dict.fromkeys(hide)

    def _iteration(self, truth: Any) -> Sample:
        return replace(super()._iteration(truth), **self._hidden)


@dataclass(frozen=True, slots=True)
class LandscapeArm:
    """A row of the table."""

    name: str
    strategy: str = "lagom"
    options: dict[str, Any] = field(default_factory=dict)
    noise: float = NOISE
    hide: tuple[str, ...] = ()


ARMS = (
    LandscapeArm("`lagom`"),
    LandscapeArm("the same at 0.5 % noise", noise=0.005),
    LandscapeArm("growth alone (steps 1 to 3)", "growth"),
    LandscapeArm("Y not seen (NCCL's profiler plugin only)", hide=("y",)),
    LandscapeArm("only Z seen", hide=("x", "y", "x_by_site")),
    LandscapeArm("H reversed", options={"order": "reversed"}),
    LandscapeArm('`start="stock"`', options={"start": "stock"}),
    LandscapeArm("`shared=True` (one config for all)", options={"shared": True}),
    LandscapeArm("`auto`", "auto"),
    LandscapeArm("`guided`", "guided"),
    LandscapeArm("`autoccl`", "autoccl"),
)


@dataclass(frozen=True, slots=True)
class LandscapeRun:
    """How one run ended, beside the noise-free frame of its landscape."""

    arm: str
    case: str
    seed: int
    over_oracle: float
    possible: float
    gained: float
    regret: float
    iterations: int
    windows: int
    configs: int


def strategy_of(arm: LandscapeArm) -> Callable[..., Strategy]:
    """Makes the strategy of an arm."""
    return (
        GrowthAlone
        if arm.strategy == "growth"
        else lambda *a, **k: make_strategy(arm.strategy, *a, model=FittedModel, **k)
    )


def run_case(case: Case, seeds: int) -> list[LandscapeRun]:
    """Every arm on one landscape."""
    simulator = case.simulator()
    frame, problem, found = truth(simulator), case.problem(simulator), []
    for arm in ARMS:
        for seed in range(seeds):
            mixed = zlib.crc32(f"{case} {seed}".encode())
            session = TuningSession(strategy_of(arm)(problem, mixed, **arm.options), problem, seed=mixed)
            outcome = Blinded(simulator, mixed, arm.noise, hide=arm.hide).drive(session).outcome
            assert outcome is not None, f"{arm.name} never ended on {case}"
            z = simulator.run(outcome.assignment).z
            found.append(
                LandscapeRun(
                    arm.name, str(case), seed, z / frame.oracle,
                    frame.stock / frame.oracle - 1.0, frame.stock / z - 1.0,
                    outcome.regret_iterations, outcome.iterations, outcome.windows, outcome.configs,
                )
            )  # fmt: skip
    return found


def table(runs: list[LandscapeRun]) -> str:
    """The rows for the README."""
    lines = [
        "| | Z over oracle: median, 95th percentile | share of the possible gain | regret, iterations | iterations, "
        "windows, configs |",
        "|---|---|---|---|---|",
    ]
    for arm in ARMS:
        own = [run for run in runs if run.arm == arm.name]
        ratios = [run.over_oracle for run in own]
        worth = [run for run in own if run.possible >= WORTH]
        share = statistics.fmean(run.gained / run.possible for run in worth) if worth else float("nan")
        middle = [statistics.median(getattr(run, name) for run in own) for name in ("iterations", "windows", "configs")]
        lines.append(
            f"| {arm.name} | {statistics.median(ratios):.4f}, {np.quantile(ratios, 0.95):.3f} | {share:.2f} | "
            f"{statistics.median(run.regret for run in own):.1f} | {', '.join(f'{value:.0f}' for value in middle)} |"
        )
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--cases", type=int, default=0, help="only so many landscapes; 0 = all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every run here")
    wanted = parser.parse_args(arguments)
    cases = all_cases()[::EVERY]
    cases = cases[: wanted.cases] if wanted.cases else cases
    with ProcessPoolExecutor(2) as pool:
        runs = [run for batch in pool.map(run_case, cases, [wanted.seeds] * len(cases)) for run in batch]
    print(table(runs))
    if wanted.json is not None:
        head = circumstances(f"{len(cases)} landscapes of the simulator, {wanted.seeds} seeds, every arm")
        rows = ",\n".join(json.dumps(list(asdict(run).values())) for run in runs)
        fields = json.dumps([one.name for one in dataclasses.fields(LandscapeRun)])
        wanted.json.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "fields": {fields},\n "runs": [\n{rows}\n]}}\n')
    return 0


if __name__ == "__main__":
    sys.exit(main())
