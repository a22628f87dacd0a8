# SPDX-License-Identifier: Apache-2.0
"""The workloads against the published shapes of their models."""

from __future__ import annotations

import pytest

from lagom.records import Function
from lagom.sim import Simulator, machine, workloads
from lagom.sim.layers import LLAMA3_8B, MPT_7B, PHI2_2B
from lagom.sim.simulator import SimulatorError

MIB = 1 << 20


@pytest.mark.parametrize(
    ("shape", "billions"), [(LLAMA3_8B, 8.03), (PHI2_2B, 2.78), (MPT_7B, 6.65)], ids=["llama3", "phi2", "mpt"]
)
def test_parameter_counts(shape: object, billions: float) -> None:
    """Published counts; norms and biases (below 1 %) are left out."""
    total = shape.layers * shape.layer_parameters + shape.root_parameters  # type: ignore[attr-defined]
    assert total / 1e9 == pytest.approx(billions, rel=0.01)


def test_a_llama3_layer_gathers_416_mib() -> None:
    """Measured: AG of 416 MB a layer."""
    simulator = Simulator(workloads.fsdp("llama3_8b"), machine.H200_NVLINK)
    assert {site.bytes for site in simulator.problem().sites[1:5]} == {416 * MIB}


def test_table_2_is_whole() -> None:
    names = list(workloads.TABLE_2)
    assert len(names) == 14
    assert sum(name.startswith("fsdp") for name in names) == 6
    assert sum(name.startswith("tp") for name in names) == 6
    assert sum(name.startswith("ep") for name in names) == 2


def test_fsdp_calls() -> None:
    """Six layers without a head: 12 AllGathers and 6 ReduceScatters a step, as the trace of the measured job shows."""
    simulator = Simulator(workloads.fsdp("llama3_8b", layers=6, head=False), machine.H200_NVLINK)
    calls = [op.function for op in simulator.comm_ops]
    assert (calls.count(Function.ALL_GATHER), calls.count(Function.REDUCE_SCATTER)) == (12, 6)
    backward = [op.function.name[:1] + str(op.site) for op in simulator.comm_ops[6:]]
    # before the backward of layer l: AG(l-1); after it: RS(l)
    assert backward == ["A2", *("A2 R3 " * 5).split(), "R3"]


def test_fsdp_work_is_six_flops_a_parameter_and_token() -> None:
    """GEMM time at the machine's own rate, forward and backward: 6 x parameters x tokens, waves on top."""
    host = machine.A40_NVLINK
    simulator = Simulator(workloads.fsdp("llama3_8b", tokens=4096), host)
    kernels = [op.kernel for g in simulator.groups for s in g.segments for op in s.compute for _ in range(s.repeats)]
    gemms = [k for k in kernels if k.blocks and k.name.split("_")[0] in ("qkv", "attn", "gate", "up", "down", "head")]
    work = sum(k.blocks * k.block_ns * host.sm_flops_per_ns for k in gemms)
    parameters = 32 * LLAMA3_8B.layer_parameters + LLAMA3_8B.root_parameters / 2
    assert work == pytest.approx(6.0 * parameters * 4096, rel=0.02)


def test_domino_order_and_exposure() -> None:
    """Four AllReduces a layer forward, the last exposed (the released code), four hidden backward, one step group."""
    simulator = Simulator(workloads.domino("llama3_8b", replicas=2), machine.A40_NVLINK)
    contexts = [site.context for site in simulator.problem().sites]
    assert contexts == ["hidden", "exposed", "hidden"]
    assert [op.site for op in simulator.comm_ops[:4]] == [0, 0, 0, 1]
    assert simulator.comm_ops[-1].site == -1  # the gradients' AllReduce belongs to another communicator
    passes = 256 // (4 * 2)
    assert len(simulator.comm_ops) == passes * 32 * 8 + 1


def test_an_alltoall_is_for_the_fork_only() -> None:
    workload = workloads.TABLE_2["ep_deepseek_moe_16b_8"]
    stock = Simulator(workload, machine.A40_NVLINK, "stock_2_30")
    fork = Simulator(workload, machine.A40_NVLINK, "fork")
    assert stock.problem().sites == ()
    assert all(op.site == -1 for op in stock.comm_ops)
    assert [site.function.word for site in fork.problem().sites] == ["alltoall", "alltoall"]
    assert stock.run(stock.stock()).z == fork.run(fork.stock()).z


def test_dispatch_moves_every_token_to_its_experts() -> None:
    fork = Simulator(workloads.TABLE_2["ep_olmoe_1b_7b_8"], machine.A40_NVLINK, "fork")
    assert fork.problem().sites[0].bytes == 8192 // 2 * 8 * 2048 * 2  # half the tokens, 8 experts each, bf16


def test_a_second_host_needs_figures_of_its_network() -> None:
    with pytest.raises(Exception, match="more than one host"):
        Simulator(workloads.TABLE_2["fsdp_llama3_8b_16"], machine.H200_NVLINK)


@pytest.mark.parametrize("count", [1, 2, 7, 16])
def test_synthetic_patterns_have_that_many_communications(count: int) -> None:
    simulator = Simulator(workloads.synthetic(count), machine.A40_NVLINK)
    assert len(simulator.problem().sites) == count
    assert simulator.run(simulator.stock()).z > 0


def test_unknown_knob_sets_are_refused_by_name() -> None:
    with pytest.raises(SimulatorError, match="stock_2_30"):
        Simulator(workloads.fig3(), machine.A40_PCIE, "everything")
