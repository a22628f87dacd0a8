# SPDX-License-Identifier: Apache-2.0
"""Every calibration figure, with its source, beside the simulator's own value. No speed-up of the paper's evaluation
(Fig. 7, 8) is among them: those are to be reproduced, so the suite reports them and nothing is fitted to them."""

from __future__ import annotations

import pytest

from lagom.records import Assignment, CommConfig, Function, Protocol
from lagom.sim import Simulator, machine, workloads
from lagom.sim.contention import Transfer, alone_ns, contended_ns, contended_transfer_ns, transfer
from lagom.sim.layers import attention, gemm, stream
from lagom.sim.operations import Applied, Collective

KIB, MIB, MS, US = 1 << 10, 1 << 20, 1e6, 1e3
GATHER = Collective(0, Function.ALL_GATHER, 416 * MIB, 8)  # a Llama-3-8B layer


def all_gather(host: machine.MachineModel, channels: int, chunk: int = 2 * MIB) -> Transfer:
    return transfer(host, GATHER, Applied(CommConfig(), channels, 512, chunk))


def speedup(simulator: Simulator, **knobs: int | Protocol) -> float:
    """Of one config at every site over stock."""
    every = Assignment((CommConfig(**knobs),) * len(simulator.problem().sites))  # type: ignore[arg-type]
    return simulator.run(simulator.stock()).z / simulator.run(every).z


# --- paper, Fig. 3 (8 x A40, PCIe, NT=128, C=16 KB) -------------------------------------------------------------------


@pytest.fixture(scope="module")
def fig3() -> Simulator:
    return Simulator(workloads.fig3(), machine.A40_PCIE, "fork")


def at(simulator: Simulator, channels: int, chunk: int = 16 * KIB) -> tuple[float, float]:
    run = simulator.run(Assignment((CommConfig(channels=channels, threads=128, chunk_bytes=chunk),)))
    return run.x, run.y


def test_sixteen_channels_and_thirty_two_cost_compute_30_2_percent_more(fig3: Simulator) -> None:
    """Paper 3.2: "using NC=16 versus NC=32 ... computation time differs by 30.2 %"."""
    assert at(fig3, 32)[1] / at(fig3, 16)[1] == pytest.approx(1.302, abs=0.015)


def test_sixteen_channels_and_thirty_two_communicate_alike(fig3: Simulator) -> None:
    """Paper 3.2: "communication performance remains nearly identical"."""
    assert at(fig3, 32)[0] / at(fig3, 16)[0] == pytest.approx(1.0, abs=0.05)


def test_the_knee_lies_near_eight_channels(fig3: Simulator) -> None:
    """Paper 3.2: "optimal points (e.g., NC > 8)": up to 8 each doubling pays a lot, beyond it little."""
    x = {channels: at(fig3, channels)[0] for channels in (4, 8, 16, 32)}
    assert x[8] < 0.7 * x[4]
    assert x[16] > 0.75 * x[8]


def test_compute_only_suffers_as_channels_or_chunk_grow(fig3: Simulator) -> None:
    """Paper 3.2, Fig. 3b and 3c: a larger NC or C "progressively prolongs computation time"."""
    by_channels = [at(fig3, channels)[1] for channels in (1, 2, 4, 8, 16, 32)]
    by_chunk = [at(fig3, 4, chunk * KIB)[1] for chunk in (16, 64, 256, 1024, 2048)]
    assert by_channels == sorted(by_channels)
    assert by_chunk == sorted(by_chunk)


def test_stock_on_a40_nvlink_is_eight_channels_of_two_megabytes() -> None:
    """Paper 4.3: NCCL's default for the AllGather is NC=8, C=2 MB."""
    simulator = Simulator(workloads.TABLE_2["fsdp_phi2_2b_8"], machine.A40_NVLINK)
    assert (simulator.problem().stock[0].channels, simulator.problem().stock[0].chunk_bytes) == (8, 2 * MIB)


# --- measurements: 8 x H200, NVLink -----------------------------------------------------------------------------------

CHUNK_CURVE = {  # ms for two AllGathers of 416 MB, by NC and KiB
    24: {2048: 2.48, 1024: 2.51, 512: 2.61, 256: 3.00, 128: 3.25, 32: 6.55},
    16: {2048: 2.77, 1024: 3.51, 512: 3.65, 256: 4.00, 128: 4.47, 32: 9.18},
    8: {2048: 5.18, 1024: 5.36, 512: 5.62, 256: 6.67, 128: 8.32, 32: 17.8},
}


@pytest.mark.parametrize(("channels", "chunk"), [(nc, c) for nc, row in CHUNK_CURVE.items() for c in row])
def test_chunk_curve(channels: int, chunk: int) -> None:
    """Measured chunk table; the one point off by more than 10 % is (16, 2 MiB), which the other 17 contradict."""
    both = 2 * all_gather(machine.H200_NVLINK, channels, chunk * KIB).ns / MS
    tolerance = 0.15 if (channels, chunk) == (16, 2048) else 0.10
    assert both == pytest.approx(CHUNK_CURVE[channels][chunk], rel=tolerance)


def test_a_gemm_takes_1_39_times_as_long_under_24_channels() -> None:
    """Trace at T=4096: 1.39-1.40 times, for the same persistent GEMM at the same place in the step."""
    host = machine.H200_NVLINK
    kernel = gemm(host, "gate", 4096, 14336, 4096)
    slower = contended_ns(host, kernel, all_gather(host, 24)) / alone_ns(host, kernel)
    assert slower == pytest.approx(1.395, abs=0.02)


def test_kernels_alone_take_what_the_trace_shows() -> None:
    """Trace at T=4096, shortest of each: GEMM 614 us (5 % more when sustained), attention 252 and 700, copy 217."""
    host = machine.H200_NVLINK
    assert alone_ns(host, gemm(host, "gate", 4096, 14336, 4096)) / US == pytest.approx(614, rel=0.15)
    assert alone_ns(host, attention(host, "fwd", 4096, 4096, 4096)) / US == pytest.approx(252, rel=0.10)
    assert alone_ns(host, attention(host, "bwd", 4096, 4096, 4096, backward=True)) / US == pytest.approx(700, rel=0.10)
    assert alone_ns(host, stream("copy", 2.0 * 416 * MIB)) / US == pytest.approx(217, rel=0.05)


def test_a_copy_and_an_all_gather_share_the_memory_mildly() -> None:
    """Trace: the copy of 416 MB takes 242 us in the median, beside an AllGather; that AllGather 1.58-1.72 ms, 1.24
    alone."""
    host = machine.H200_NVLINK
    gather = all_gather(host, 24)
    assert contended_ns(host, stream("copy", 2.0 * 416 * MIB), gather) / US == pytest.approx(242, rel=0.15)
    beside = contended_transfer_ns(host, gemm(host, "gate", 4096, 14336, 4096), gather)
    assert beside / MS == pytest.approx(1.65, rel=0.07)


STEPS = {2048: 45.2, 4096: 75.5, 8192: 147.0, 16384: 322.0}  # ms
CHANNEL_TABLE = {
    2048: {4: 0.53, 8: 0.81, 12: 0.95, 16: 0.98},
    4096: {4: 0.75, 8: 0.94, 12: 0.99, 16: 0.99, 20: 1.00},
    8192: {4: 0.95, 8: 0.98, 12: 1.00, 16: 1.00},
    16384: {12: 1.00, 16: 1.005, 20: 1.00},
}


def measured_fsdp(tokens: int, layers: int, host: machine.MachineModel) -> Simulator:
    """The job of the measurements: Llama-3-8B layers without embedding and head, one sequence of ``tokens``."""
    return Simulator(workloads.fsdp("llama3_8b", tokens=tokens, layers=layers, head=False, sequence=tokens), host)


@pytest.mark.parametrize("tokens", STEPS)
def test_step_time(tokens: int) -> None:
    simulator = measured_fsdp(tokens, 6, machine.H200_NVLINK)
    assert simulator.run(simulator.stock()).z / MS == pytest.approx(STEPS[tokens], rel=0.10)


@pytest.mark.parametrize(("tokens", "x", "y"), [(2048, 30.4, 38.3), (4096, 34.5, 67.5)])
def test_busy_times(tokens: int, x: float, y: float) -> None:
    """Trace: communication and compute stream, ms a step. The real X holds waiting for peers, which one GPU has none
    of."""
    simulator = measured_fsdp(tokens, 6, machine.H200_NVLINK)
    run = simulator.run(simulator.stock())
    assert run.x / MS == pytest.approx(x, rel=0.20)
    assert run.y / MS == pytest.approx(y, rel=0.06)


@pytest.mark.parametrize(("tokens", "channels"), [(t, nc) for t, row in CHANNEL_TABLE.items() for nc in row])
def test_channel_table(tokens: int, channels: int) -> None:
    """Speed-ups over stock of AG=RS=NC; run-to-run spread 1-2 %."""
    found = speedup(measured_fsdp(tokens, 6, machine.H200_NVLINK), channels=channels)
    assert found == pytest.approx(CHANNEL_TABLE[tokens][channels], abs=0.06)


@pytest.mark.parametrize(
    ("tokens", "step", "table", "ll128"),
    [(8192, 12.8, {4: 0.45, 8: 0.77, 12: 0.89, 16: 0.97}, None), (32768, 40.6, {16: 0.96}, 0.95)],
)
def test_domino(tokens: int, step: float, table: dict[int, float], ll128: float | None) -> None:
    """Domino-style TP, 8 layers, forward: step in ms and speed-ups over stock."""
    simulator = Simulator(workloads.domino("llama3_8b", tokens=tokens, layers=8, backward=False), machine.H200_NVLINK)
    assert simulator.run(simulator.stock()).z / MS == pytest.approx(step, rel=0.10)
    for channels, expected in table.items():
        assert speedup(simulator, channels=channels) == pytest.approx(expected, abs=0.06)
    if ll128 is not None:
        assert speedup(simulator, protocol=Protocol.LL128) == pytest.approx(ll128, abs=0.03)


# --- measurements: 8 x H200 through host memory -----------------------------------------------------------------------

HOST_16384 = {(4, 1024): 1.147, (4, 512): 1.358, (4, 256): 1.396, (3, 512): 1.366, (3, 256): 1.365, (2, 512): 1.351}
HOST_16384 |= {(3, 2048): 1.049, (2, 2048): 1.161}


@pytest.mark.parametrize(("channels", "chunk"), HOST_16384)
def test_host_path_bound_by_communication(channels: int, chunk: int) -> None:
    """T=16384, 3 layers, 2.30.7: speed-up over stock, measured to about 4 %."""
    found = speedup(measured_fsdp(16384, 3, machine.H200_HOST), channels=channels, chunk_bytes=chunk * KIB)
    assert found == pytest.approx(HOST_16384[channels, chunk], rel=0.03)


def test_host_path_step() -> None:
    """T=16384, 3 layers: 400 ms (300 on the next host of the same kind)."""
    simulator = measured_fsdp(16384, 3, machine.H200_HOST)
    assert simulator.run(simulator.stock()).z / MS == pytest.approx(400, rel=0.05)


def test_host_path_bound_by_compute_gains_less() -> None:
    """T=32768, 2 layers: 1.048-1.060 measured. The simulator says 1.06-1.13: what is exposed at the ends weighs more in
    it, since this table came from a faster host (step 327 ms, here 379). The order is right, the size 7 % too large."""
    simulator = measured_fsdp(32768, 2, machine.H200_HOST)
    for channels, chunk, measured in (
        (4, 512, 1.052),
        (4, 256, 1.048),
        (3, 512, 1.060),
        (2, 512, 1.058),
        (2, 2048, 1.049),
    ):
        found = speedup(simulator, channels=channels, chunk_bytes=chunk * KIB)
        assert measured - 0.01 < found < measured + 0.08


def test_one_channel_of_the_host_path_is_as_fast_as_stock() -> None:
    """AG of 416 MB beside 8 FFN pairs: X 30.4 at stock (NC=4), 30.0 at NC=1, on the faster host; Y 23.6 and 21.6."""
    host = machine.H200_HOST
    one, stock = all_gather(host, 1), all_gather(host, 4)
    assert one.ns / stock.ns == pytest.approx(30.0 / 30.4, rel=0.03)
    kernel = gemm(host, "ffn", 16384, 14336, 4096)
    loss = contended_ns(host, kernel, stock) / contended_ns(host, kernel, one)
    assert loss == pytest.approx(23.6 / 21.6, abs=0.06)
