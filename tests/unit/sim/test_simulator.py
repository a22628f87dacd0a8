# SPDX-License-Identifier: Apache-2.0
"""The simulator's face: problems, caching, per-call configs, samples, the oracle, and its independence."""

from __future__ import annotations

import ast
import itertools
import time
from pathlib import Path

import numpy as np
import pytest

import lagom.sim
from lagom.records import STOCK, Assignment, CommConfig
from lagom.search import Space, TuningSession, make_strategy
from lagom.sim import Simulator, machine, workloads
from lagom.sim.oracle import best_static, minimise, oracle
from lagom.sim.simulated_job import SimulatedJob
from lagom.sim.simulator import SimulatorError

KIB = 1 << 10


@pytest.fixture(scope="module")
def llama() -> Simulator:
    return Simulator(workloads.fsdp("llama3_8b"), machine.A40_NVLINK)


def uniform(simulator: Simulator, **knobs: int) -> Assignment:
    return Assignment((CommConfig(**knobs),) * len(simulator.problem().sites))  # type: ignore[arg-type]


def test_the_problem_is_legal_and_counts_its_calls(llama: Simulator) -> None:
    problem = llama.problem()
    assert [s.calls_per_iteration for s in problem.sites] == [1, 1, 31, 32, 32, 1]
    assert [s.context for s in problem.sites] == ["exposed", "exposed", "hidden", "hidden", "hidden", "exposed"]
    assert problem.channels_ceiling == 8
    assert Space(problem).why_illegal(llama.stock()) is None


@pytest.mark.parametrize(
    ("knobs", "ceiling", "chunk", "threads"),
    [("fork", 64, True, True), ("stock_2_30", 8, True, False), ("stock_2_28", 8, False, False)],
)
def test_knob_sets(knobs: str, ceiling: int, chunk: bool, threads: bool) -> None:
    problem = Simulator(workloads.fsdp("llama3_8b"), machine.A40_NVLINK, knobs).problem()
    assert (problem.channels_ceiling, problem.knobs.chunk, problem.knobs.threads) == (ceiling, chunk, threads)


def test_ll128_is_offered_on_nvlink_only_and_trees_for_all_reduce_only() -> None:
    """NCCL switches LL128 off where a hop inside the host is no NVLink."""
    pairs = {
        (preset.name, workload.name): len(Simulator(workload, preset).problem().usable[0])
        for preset in (machine.A40_NVLINK, machine.A40_PCIE)
        for workload in (workloads.TABLE_2["fsdp_phi2_2b_8"], workloads.TABLE_2["tp_phi2_2b_dp1"])
    }
    assert list(pairs.values()) == [2, 4, 1, 2]


def test_results_are_cached_and_fast(llama: Simulator) -> None:
    """32 layers in a few ms: the suite needs about a hundred thousand evaluations."""
    fresh = [uniform(llama, channels=nc, chunk_bytes=c * KIB) for nc in range(1, 8) for c in (32, 128, 512)]
    results, seconds = [], []
    for assignment in fresh:
        began = time.process_time()
        results.append(llama.run(assignment))
        seconds.append(time.process_time() - began)
    assert min(seconds) < 5e-3, "the least: a busy machine makes single ones slow"
    assert all(llama.run(a) is r for a, r in zip(fresh, results, strict=True))


def test_parts_add_up(llama: Simulator) -> None:
    run = llama.run(llama.stock())
    assert sum(run.x_by_site) == pytest.approx(run.x)
    assert max(run.x, run.y) <= run.z <= run.x + run.y


def test_spans_are_the_same_iteration(llama: Simulator) -> None:
    run = llama.run(uniform(llama, channels=3, chunk_bytes=256 * KIB))
    kernels = run.kernels
    calls = [span for span in kernels if span.queue == "comm"]
    assert [span.site for span in calls] == [op.site for op in llama.comm_ops]
    assert {span.grid for span in calls} == {3}
    assert {span.block for span in calls} == {544}
    assert sum(s.end - s.start for s in calls) == pytest.approx(run.x)
    assert sum(s.end - s.start for s in kernels if s.queue == "compute") == pytest.approx(run.y)
    assert max(span.end for span in kernels) == pytest.approx(run.z)


def test_equal_configs_a_call_are_the_same_as_one_a_site(llama: Simulator) -> None:
    chosen = Assignment(tuple(CommConfig(channels=n + 1) for n in range(6)))
    by_call = tuple(chosen[op.site] for op in llama.comm_ops)
    assert llama.run_ops(by_call).z == llama.run(chosen).z
    assert llama.run_ops(by_call) is llama.run_ops(by_call)


def test_a_change_in_mid_iteration_lies_between(llama: Simulator) -> None:
    slow = CommConfig(channels=1, chunk_bytes=32 * KIB)
    count = len(llama.comm_ops)
    half = llama.run_ops((slow,) * (count // 2) + (STOCK,) * (count - count // 2)).z
    assert llama.run(llama.stock()).z < half < llama.run(uniform(llama, channels=1, chunk_bytes=32 * KIB)).z


def test_a_wrong_number_of_configs_is_refused(llama: Simulator) -> None:
    with pytest.raises(SimulatorError, match="collectives"):
        llama.run_ops((STOCK,))
    with pytest.raises(SimulatorError, match="sites"):
        llama.run(Assignment((STOCK,)))


def test_channels_beyond_what_was_built_are_what_was_built(llama: Simulator) -> None:
    """NCCL clamps: 32 was 24 on the measured machine."""
    assert llama.run(uniform(llama, channels=32)).z == llama.run(llama.stock()).z


def test_samples_scatter_around_the_truth(llama: Simulator) -> None:
    truth = llama.run(llama.stock())
    rng = np.random.default_rng(1)
    z = np.array([llama.sample(llama.stock(), rng, 0.02).z for _ in range(2000)]) / truth.z
    assert np.median(z) == pytest.approx(1.0, abs=0.002)
    assert 1.4826 * np.median(np.abs(z - np.median(z))) == pytest.approx(0.02, rel=0.1)
    assert 0.003 < np.mean(z > 1.08) < 0.02  # a straggler in a hundred
    assert llama.sample(llama.stock(), rng, 0.0).z == truth.z


def test_sampling_is_a_function_of_the_seed(llama: Simulator) -> None:
    one, two = (Simulator(workloads.fsdp("llama3_8b"), machine.A40_NVLINK, seed=3) for _ in range(2))
    assert [one.sample(one.stock()).z for _ in range(5)] == [two.sample(two.stock()).z for _ in range(5)]


def test_a_session_runs_on_it_and_repeats(llama: Simulator) -> None:
    outcomes = []
    for _ in range(2):
        problem = llama.problem()
        session = TuningSession(make_strategy("static", problem, 1), problem, seed=1)
        outcomes.append(SimulatedJob(llama, 1).drive(session).outcome)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0] is not None


def test_drift_moves_everything_alike(llama: Simulator) -> None:
    stock = llama.run(llama.stock())
    calm, wandering = SimulatedJob(llama, 5, noise=0.0), SimulatedJob(llama, 5, noise=0.0, drift=0.1)
    z = [wandering._iteration(stock).z for _ in range(4000)]
    assert max(z) / min(z) > 1.25
    assert calm._iteration(stock).z == stock.z
    assert max(abs(a - b) for a, b in itertools.pairwise(z)) < 0.001 * z[0]


# --- the oracle -----------------------------------------------------------------------------------------------


def coarse(simulator: Simulator, site: int) -> list[CommConfig]:
    stock = simulator.problem().stock[site].channels
    return [
        CommConfig(channels=None if nc == stock else nc, chunk_bytes=chunk and chunk * KIB)
        for nc in (1, 2, 4, 8)
        for chunk in (64, 256, None)
    ]


@pytest.mark.parametrize("preset", [machine.A40_NVLINK, machine.A40_PCIE], ids=lambda preset: preset.name)
def test_descent_finds_what_exhaustion_finds(preset: machine.MachineModel) -> None:
    """Three sites, 12 configs each: all 1,728 against the multi-start descent with pair moves."""
    simulator = Simulator(workloads.synthetic(3), preset)
    choices = [coarse(simulator, site) for site in range(3)]

    def cost(choice: tuple[CommConfig, ...]) -> float:
        return simulator.run(Assignment(choice)).z

    best = min(cost(choice) for choice in itertools.product(*choices))
    found, tried = minimise(cost, choices)
    assert cost(found) <= best * 1.0005
    assert tried < 12**3


@pytest.mark.parametrize("seed", range(5))
def test_descent_follows_a_valley_that_takes_two_sites_at_once(seed: int) -> None:
    """Sites 0 and 2 pay for every rung between them more than a rung gains, so neither moves alone: from a start off
    rung 11, one site at a time ends on the valley's floor where it first meets it."""
    choices = [[CommConfig(channels=nc) for nc in range(1, 17)]] * 3

    def cost(choice: tuple[CommConfig, ...]) -> float:
        a, b, c = (config.channels or 0 for config in choice)
        return 10.0 * abs(a - c) + abs(a - 11) + abs(b - 5)

    found, tried = minimise(cost, choices, seed)
    assert [config.channels for config in found] == [11, 5, 11]
    assert tried < 16**3


def test_the_oracle_is_never_beaten_by_chance(llama: Simulator) -> None:
    found = oracle(llama)
    space = Space(llama.problem())
    assert space.why_illegal(found.assignment) is None
    assert found.z <= best_static(llama).z <= llama.run(llama.stock()).z
    rng = np.random.default_rng(0)
    options = [list(space.configs(site)) for site in range(6)]
    for _ in range(300):
        drawn = Assignment(tuple(options[site][rng.integers(len(options[site]))] for site in range(6)))
        assert llama.run(drawn).z >= found.z


# --- independence ---------------------------------------------------------------------------------------------


def test_it_shares_no_code_with_the_cost_model() -> None:
    """Otherwise the model would be tested against itself."""
    for path in Path(lagom.sim.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            assert not any(name.startswith("lagom.cost") for name in names), path
