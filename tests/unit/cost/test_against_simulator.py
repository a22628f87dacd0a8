# SPDX-License-Identifier: Apache-2.0
"""The model against ``lagom.sim``, which shares no code with it: half of the windows must predict the other half."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lagom.cost import IterationModel, Kernel, ModelFit, fit, judge, model_of, program_of
from lagom.records import Assignment, Observation, Problem
from lagom.search.space import Space
from lagom.sim import Simulator, machine, workloads

CASES = {
    "fsdp_llama3_8b on A40, NVLink": ("A40_NVLINK", lambda: workloads.fsdp("llama3_8b")),
    "fsdp_llama3_8b on A40, PCIe": ("A40_PCIE", lambda: workloads.fsdp("llama3_8b")),
    "fsdp_phi2_2b on H200, NVLink": ("H200_NVLINK", lambda: workloads.fsdp("phi2_2b")),
    "fsdp_phi2_2b on H200, host path": ("H200_HOST", lambda: workloads.fsdp("phi2_2b")),
    "tp_llama3_8b on A40, NVLink": ("A40_NVLINK", lambda: workloads.domino("llama3_8b")),
    "tp_llama3_8b on H200, NVLink": ("H200_NVLINK", lambda: workloads.domino("llama3_8b")),
}
WINDOWS = 32
NOISE = 0.005


def random_windows(problem: Problem, seed: int) -> list[Assignment]:
    """Stock, then each site's NC and C up to four rungs below NCCL's own."""
    space, random = Space(problem), np.random.default_rng(seed)
    stock = Assignment.stock(len(problem.sites))
    seen = [stock]
    while len(seen) < WINDOWS:
        window = stock
        for site in range(len(problem.sites)):
            for dim in ("channels", "chunk"):
                top = space.rung(stock, site, dim)
                window = space.at(window, site, dim, max(0, top - int(random.integers(5))))
        seen.append(window)
    return seen


def observed(simulator: Simulator, assignment: Assignment, random: np.random.Generator) -> Observation:
    iteration, factor = simulator.run(assignment), math.exp(random.normal(0.0, NOISE))
    x = tuple(time * factor for time in iteration.x_by_site)
    return Observation(assignment, iteration.z * factor, iteration.y * factor, x, NOISE)


def half_and_half(simulator: Simulator, program: IterationModel | None = None) -> tuple[ModelFit, float]:
    """A fit to the first half of the windows, and the median error of Z of the second."""
    random = np.random.default_rng(7)
    seen = [observed(simulator, window, random) for window in random_windows(simulator.problem(), seed=3)]
    fitted = fit(model_of(simulator.problem(), program), seen[: WINDOWS // 2])
    unseen = [each.assignment for each in seen[WINDOWS // 2 :]]
    z = fitted.model.times(fitted.theta[None], fitted.model.resources(unseen)).z[0]
    truth = np.array([simulator.run(assignment).z for assignment in unseen])
    return fitted, float(np.median(np.abs(np.log(z / truth))))


@pytest.mark.parametrize("name", CASES)
def test_half_of_the_simulated_windows_predict_the_other_half(name: str) -> None:
    preset, workload = CASES[name]
    fitted, error = half_and_half(Simulator(workload(), getattr(machine, preset), knobs="stock_2_30"))
    assert error < 0.05
    trust = judge(fitted)
    assert trust.trusted, trust.reason


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("fsdp")])
def test_a_trace_of_one_stock_iteration_brings_it_below_one_percent(name: str) -> None:
    """Who waits for whom is then known, and the end of the queue that matters is simulated instead of spread out."""
    preset, workload = CASES[name]
    simulator = Simulator(workload(), getattr(machine, preset), knobs="stock_2_30")
    spans = simulator.run(simulator.stock()).kernels
    kernels = [Kernel(span.start, span.end, None if span.site < 0 else span.site) for span in spans]
    _, error = half_and_half(simulator, program_of(simulator.problem(), kernels))
    assert error < 0.01


def test_it_does_not_trust_itself_where_the_windows_belong_to_another_job() -> None:
    """The windows' Z are handed over in a wrong order, as a mis-joined or shifted measurement would."""
    simulator = Simulator(workloads.fsdp("phi2_2b"), machine.H200_HOST, knobs="stock_2_30")
    random = np.random.default_rng(7)
    seen = [observed(simulator, window, random) for window in random_windows(simulator.problem(), seed=3)]
    shuffled = [seen[0]] + [
        Observation(here.assignment, there.z, there.y, there.x_by_site, NOISE)
        for here, there in zip(seen[1:], [*seen[8:], *seen[1:8]], strict=True)
    ]
    trust = judge(fit(model_of(simulator.problem()), shuffled))
    assert not trust.trusted
    assert trust.reason.startswith("the model is not trusted")
