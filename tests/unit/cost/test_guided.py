# SPDX-License-Identifier: Apache-2.0
"""``guided`` on simulated jobs: few configs, little regret, near the oracle; and when the model is wrong."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

from lagom.cost import FittedModel, IterationModel
from lagom.records import Assignment, Knobs, Problem, Sample
from lagom.search import TuningSession, WindowRequest, WindowResult, make_strategy
from lagom.search.space import Space
from lagom.sim import Simulator, machine, workloads

from .synthetic import WORKLOADS, Fsdp

NOISE = 0.02
Truth = Callable[[Assignment], Sample]


@dataclass
class Job:
    """Something to tune: noise-free truth, measured with 2 % noise."""

    truth: Truth
    problem: Problem
    random: np.random.Generator

    def run(self, strategy: str = "guided", program: IterationModel | None = None, **options: object) -> TuningSession:
        model = partial(FittedModel, program=program)
        session = TuningSession(make_strategy(strategy, self.problem, 1, model=model, **options), self.problem)
        while (request := session.request()) is not None:
            session.report(self.window(request))
        return session

    def window(self, request: WindowRequest) -> WindowResult:
        pairs = [(self.sample(request.incumbent), self.sample(request.candidate)) for _ in range(request.pairs)]
        return WindowResult(tuple(pairs))

    def sample(self, assignment: Assignment) -> Sample:
        return self.truth(assignment).scaled(math.exp(self.random.normal(0.0, NOISE)))

    def oracle(self) -> float:
        """Least Z by coordinate descent from stock and from the floor, without noise."""
        space = Space(self.problem)
        return min(self._descend(space, start) for start in (space.stock, space.floor(space.stock)))

    def _descend(self, space: Space, current: Assignment) -> float:
        for _ in range(3):
            for site in range(len(current)):
                options = [current, *(current.with_config(site, config) for config in space.configs(site))]
                current = min(options, key=lambda assignment: self.truth(assignment).z)
        return self.truth(current).z


def simulated(workload: workloads.Workload, preset: str, knobs: str = "stock_2_30", seed: int = 0) -> Job:
    simulator = Simulator(workload, getattr(machine, preset), knobs=knobs)

    def truth(assignment: Assignment) -> Sample:
        iteration = simulator.run(assignment)
        return Sample(iteration.z, iteration.x, iteration.y, iteration.x_by_site)

    return Job(truth, simulator.problem(), np.random.default_rng(seed))


def synthetic(workload: Fsdp, truth: Truth | None = None, knobs: Knobs | None = None) -> Job:
    return Job(truth or workload.truth, workload.problem(knobs), np.random.default_rng(0))


@pytest.mark.parametrize("preset", ["A40_NVLINK", "H200_NVLINK", "H200_HOST"])
def test_two_communications_within_twelve_configs_near_the_oracle_without_regret(preset: str) -> None:
    """Targets: <= 12 configs for two communications, regret <= 15 iterations, Z within 1 % in the median. The median of
    three seeds here; the full table is the simulator suite's."""
    runs = []
    for seed in range(3):
        job = simulated(workloads.synthetic(2), preset, seed=seed)
        outcome = job.run().outcome
        assert outcome is not None
        runs.append((outcome.configs, outcome.regret_iterations, job.truth(outcome.assignment).z / job.oracle()))
    configs, regret, ratio = np.median(runs, axis=0)
    assert configs <= 12
    assert regret <= 15
    assert ratio <= 1.015  # three seeds scatter


@pytest.mark.parametrize("count", [3, 4, 8])
def test_configs_grow_by_at_most_four_for_each_communication(count: int) -> None:
    session = simulated(workloads.synthetic(count), "H200_HOST").run()
    assert session.outcome is not None
    trusted = not any("the model is not trusted" in move.reason for move in session.moves)
    assert trusted
    assert session.outcome.configs <= 4 + 4 * count


def test_where_stock_is_best_it_says_so_and_costs_little() -> None:
    """NVLink, communication-bound: nothing to gain, and no candidate is asked for that would crawl."""
    outcome = synthetic(WORKLOADS["comm-bound"]).run().outcome
    assert outcome is not None
    assert outcome.assignment.is_stock
    assert outcome.regret_iterations < 15


SAID = ("designed window", "predicted", "half the channels", "second best")


def test_every_move_says_what_was_expected_and_what_came() -> None:
    session = synthetic(WORKLOADS["host"]).run()
    trials = [move for move in session.moves if move.purpose == "trial"]
    assert trials
    for move in trials:
        assert any(word in move.reason for word in SAID), move.reason
    assert session.outcome is not None
    assert "model" in session.outcome.reason or "budget" in session.outcome.reason


def test_of_a_lawless_job_it_says_that_the_model_is_not_trusted_and_ends_no_worse_than_stock() -> None:
    """Each config draws its own Z, far apart."""
    workload = Fsdp()

    def lawless(assignment: Assignment) -> Sample:
        sample = workload.truth(assignment)
        own = np.random.default_rng(zlib.crc32(str(assignment).encode())).normal()
        factor = 1.0 if assignment.is_stock else math.exp(0.3 * own)
        return Sample(sample.z * factor, sample.x, sample.y, sample.x_by_site)

    job = synthetic(workload, lawless)
    session = job.run()
    assert session.outcome is not None
    assert "the model is not trusted" in session.outcome.reason
    stock = Assignment.stock(2)
    assert lawless(session.outcome.assignment).z <= 1.005 * lawless(stock).z


def test_where_only_z_is_known_it_still_finds_the_gain() -> None:
    """No kernel times at all (host clocks only): the host path's 1.26x is found to within 3 %."""
    workload = WORKLOADS["host"]
    job = synthetic(workload, lambda assignment: Sample(workload.truth(assignment).z))
    outcome = job.run().outcome
    assert outcome is not None
    assert workload.truth(outcome.assignment).z < 1.03 * synthetic(workload).oracle()


def test_windows_that_show_no_kernels_are_used_for_their_z() -> None:
    """A join that failed says 0 ns for a site: that is no measurement, and no reason to fall over."""
    workload = WORKLOADS["host"]

    def half_blind(assignment: Assignment) -> Sample:
        sample = workload.truth(assignment)
        return Sample(sample.z, 0.0, 0.0, (0.0, 1.0))

    outcome = synthetic(workload, half_blind).run().outcome
    assert outcome is not None
    assert outcome.speedup is not None
    assert outcome.speedup > 1.1


def test_one_config_for_all_sites() -> None:
    outcome = synthetic(WORKLOADS["host"]).run(shared=True).outcome
    assert outcome is not None
    assert outcome.assignment[0] == outcome.assignment[1]
    assert outcome.speedup is not None
    assert outcome.speedup > 1.1


def test_without_the_chunk_knob_channels_alone_are_tuned() -> None:
    outcome = synthetic(WORKLOADS["host"], knobs=Knobs(chunk=False)).run().outcome
    assert outcome is not None
    assert all(config.chunk_bytes is None for config in outcome.assignment.configs)


def test_nothing_to_tune_is_an_answer() -> None:
    problem = Problem((), (), 24)
    strategy = make_strategy("guided", problem, model=FittedModel)
    session = TuningSession(strategy, problem)
    request = session.request()
    assert request is not None
    session.report(WindowResult(tuple((Sample(1e6), Sample(1e6)) for _ in range(request.pairs))))
    assert session.outcome is not None
    assert "nothing here can be tuned" in session.outcome.reason


def test_a_traced_program_can_be_handed_over() -> None:
    from lagom.cost import Kernel, traced_program

    workload = WORKLOADS["host"]
    ran = workload.timeline(Assignment.stock(2))
    kernels = [Kernel(start, end, site) for start, end, site in ran.comms]
    kernels += [Kernel(start, end) for start, end in ran.compute]
    outcome = synthetic(workload).run(program=traced_program(kernels, 2)).outcome
    assert outcome is not None
    assert workload.truth(outcome.assignment).z < 1.02 * synthetic(workload).oracle()
