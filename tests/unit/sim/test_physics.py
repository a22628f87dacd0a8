# SPDX-License-Identifier: Apache-2.0
"""Links and contention: which way every knob pulls, and the limits."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lagom.errors import LagomError
from lagom.records import Algorithm, CommConfig, Function, Protocol
from lagom.sim import machine
from lagom.sim.contention import _slots_lost, alone_ns, arrival_ns, contended_ns, contended_transfer_ns, transfer
from lagom.sim.layers import attention, gemm, stream
from lagom.sim.operations import Applied, Collective, ComputeKernel

MIB = 1 << 20
PRESETS = list(machine.PRESETS.values())
GATHER = Collective(0, Function.ALL_GATHER, 256 * MIB, 8)


def applied(channels: int, chunk: int = 2 * MIB, threads: int = 512, config: CommConfig | None = None) -> Applied:
    return Applied(config or CommConfig(), channels, threads, chunk)


@pytest.mark.parametrize("host", PRESETS, ids=lambda host: host.name)
def test_no_transfer_beats_the_wire(host: machine.MachineModel) -> None:
    link = host.link
    for channels in (1, 4, 24, 64):
        alone = transfer(host, GATHER, applied(channels, 256 << 10))
        assert alone.wire_bytes / alone.ns <= link.gbps * link.hot_gain
        assert alone.wire_bytes / alone.ns <= channels * link.channel_gbps


@pytest.mark.parametrize("host", PRESETS, ids=lambda host: host.name)
def test_channels_pay_until_the_wire_is_full(host: machine.MachineModel) -> None:
    times = [transfer(host, GATHER, applied(channels, 128 << 10)).ns for channels in (1, 2, 3, 4)]
    assert times == sorted(times, reverse=True)


def test_chunks_pay_where_the_wire_is_not_full_and_cost_where_they_outgrow_the_cache() -> None:
    nvlink = [transfer(machine.H200_NVLINK, GATHER, applied(8, chunk << 10)).ns for chunk in (32, 128, 512, 2048)]
    host = [transfer(machine.H200_HOST, GATHER, applied(4, chunk << 10)).ns for chunk in (256, 512, 1024, 2048)]
    assert nvlink == sorted(nvlink, reverse=True)
    assert host == sorted(host)


def test_an_all_reduce_moves_twice_as_much_and_a_tree_needs_fewer_hops() -> None:
    small = Collective(0, Function.ALL_REDUCE, 64 << 10, 8)
    large = Collective(0, Function.ALL_REDUCE, 256 * MIB, 8)
    ring, tree = (applied(8, config=CommConfig(algorithm=a)) for a in (Algorithm.RING, Algorithm.TREE))
    host = machine.A40_NVLINK
    assert transfer(host, large, ring).wire_bytes == 2 * transfer(host, GATHER, ring).wire_bytes
    assert transfer(host, small, tree).ns < transfer(host, small, ring).ns
    assert transfer(host, large, tree).ns > transfer(host, large, ring).ns


def test_low_latency_protocols_win_small_and_lose_large() -> None:
    host = machine.A40_NVLINK
    plain, quick = (applied(8, config=CommConfig(protocol=p)) for p in (Protocol.SIMPLE, Protocol.LL))
    small = Collective(0, Function.ALL_GATHER, 64 << 10, 8)
    assert transfer(host, small, quick).ns < transfer(host, small, plain).ns
    assert transfer(host, GATHER, quick).ns > 1.5 * transfer(host, GATHER, plain).ns


def test_chunks_are_held_to_the_buffers_of_protocol_and_algorithm() -> None:
    """LL128's buffers give 576,000 B, a tree's 512 KiB: a larger C changes nothing, a smaller one does."""
    host, reduce = machine.A40_NVLINK, Collective(0, Function.ALL_REDUCE, 256 * MIB, 8)
    for config in (CommConfig(protocol=Protocol.LL128), CommConfig(algorithm=Algorithm.TREE)):
        large, half, small = (
            transfer(host, reduce, applied(8, chunk, config=config)).ns for chunk in (2 * MIB, MIB, 65536)
        )
        assert large == half != small


def test_fewer_threads_make_a_slower_channel_and_nothing_else() -> None:
    """NT is negligible for contention (paper 3.2): it moves x, and y hardly at all."""
    host = machine.A40_NVLINK
    many, few = (transfer(host, GATHER, applied(2, threads=threads)) for threads in (512, 128))
    assert few.ns > many.ns
    kernel = gemm(host, "gemm", 4096, 4096, 4096)
    assert contended_ns(host, kernel, few) == pytest.approx(contended_ns(host, kernel, many), rel=0.05)


def test_a_machine_refuses_what_it_cannot_connect() -> None:
    with pytest.raises(LagomError, match="at most 8"):
        transfer(machine.H200_NVLINK, Collective(0, Function.ALL_GATHER, MIB, 16), applied(4))


def test_sixteen_gpus_are_as_slow_as_their_slowest_hop() -> None:
    wide = Collective(0, Function.ALL_GATHER, 256 * MIB, 16)
    assert (
        transfer(machine.A40_PCIE, wide, applied(4)).wire_gbps
        < transfer(machine.A40_PCIE, GATHER, applied(4)).wire_gbps
    )
    shared = Collective(0, Function.ALL_REDUCE, 256 * MIB, 2, sharers=8)
    assert transfer(machine.A40_NVLINK, shared, applied(4)).wire_gbps < machine.A40_NVLINK.link.gbps


@pytest.mark.parametrize("host", PRESETS, ids=lambda host: host.name)
@pytest.mark.parametrize("make", [lambda h: gemm(h, "g", 4096, 8192, 4096), lambda h: stream("s", 1e9)])
def test_company_never_speeds_anything_up(host: machine.MachineModel, make: object) -> None:
    kernel = make(host)  # type: ignore[operator]
    for channels in (1, 2, 8, 24):
        for chunk in (32 << 10, 2 * MIB):
            beside = transfer(host, GATHER, applied(channels, chunk))
            assert contended_ns(host, kernel, beside) >= alone_ns(host, kernel) * (1 - 1e-9)
            assert contended_transfer_ns(host, kernel, beside) >= beside.ns * (1 - 1e-9)


@pytest.mark.parametrize("channels", [1, 2, 8, 15, 61])
def test_a_gemm_loses_one_sm_to_each_channel(channels: int) -> None:
    """A tile takes a whole SM of the A40, so NC channels take NC of 84: neither one more nor one less."""
    host = machine.A40_NVLINK
    kernel = gemm(host, "g", 4096, 8192, 4096)
    assert _slots_lost(host, kernel, transfer(host, GATHER, applied(channels))) == channels


def test_a_held_l2_is_paid_in_traffic() -> None:
    """Two kernels bound by memory that differ only in reuse: what the second takes longer is what it fetches again."""
    host = machine.A40_NVLINK
    plain = ComputeKernel("plain", blocks=1, block_ns=1.0, memory_bytes=1e9)
    reusing = replace(plain, reuse=0.8)
    for chunk in (64 << 10, 256 << 10, 2 * MIB):
        beside = transfer(host, GATHER, applied(2, chunk))
        held = min(1.0, 2 * beside.inflight_bytes / host.l2_bytes)
        by_rate = math.sqrt(beside.memory_gbps / (beside.memory_gbps + host.memory_gbps))
        longer = contended_ns(host, reusing, beside) / contended_ns(host, plain, beside)
        assert longer == pytest.approx(1 + 0.8 * held * by_rate, rel=1e-6)
        assert longer > 1.005
    assert alone_ns(host, reusing) == alone_ns(host, plain)


def test_a_persistent_gemm_steps_when_the_first_channel_comes() -> None:
    """Facts 7: from NC 0 to 1 a persistent kernel may need another round; here a tile count that just fits 132 SMs."""
    host = machine.H200_NVLINK
    kernel = gemm(host, "fits", 320 * 11, 128 * 12, 4096)
    assert kernel.blocks == host.sms
    first = contended_ns(host, kernel, transfer(host, GATHER, applied(1))) / alone_ns(host, kernel)
    second = contended_ns(host, kernel, transfer(host, GATHER, applied(2))) / alone_ns(host, kernel)
    assert first > 1.3
    assert second - first < 0.05


def test_pairs_of_sms_break_one_at_a_time() -> None:
    """24 blocks placed at random over 66 pairs hit 20 of them: more than 24 of 132 SMs are lost to a cluster kernel."""
    host = machine.H200_NVLINK
    even = host.sms / (host.sms - 24)
    kernel = gemm(host, "large", 320 * 64, 128 * 64, 4096)
    loss = contended_ns(host, kernel, transfer(host, GATHER, applied(24))) / alone_ns(host, kernel)
    assert loss > even * 1.1


def test_small_blocks_share_an_sm_with_a_channel() -> None:
    """A streaming kernel of six blocks an SM loses two of them to a channel of 544 threads, not the SM."""
    host = machine.A40_NVLINK
    kernel = stream("copy", 1e9)
    tight = transfer(host, GATHER, applied(42, 32 << 10))
    assert kernel.per_sm == 6
    assert contended_ns(host, kernel, tight) < 1.6 * alone_ns(host, kernel)


def test_arrival_waits_for_a_persistent_kernel_only() -> None:
    h200, a40 = machine.H200_NVLINK, machine.A40_NVLINK
    assert arrival_ns(h200, gemm(h200, "g", 4096, 8192, 4096)) == math.inf
    assert arrival_ns(a40, gemm(a40, "g", 4096, 8192, 4096)) == pytest.approx(
        0.5 * gemm(a40, "g", 4096, 8192, 4096).block_ns
    )
    assert arrival_ns(h200, gemm(h200, "tiny", 128, 128, 4096)) == 0.0


def test_attention_work_grows_with_the_square_of_the_sequence() -> None:
    host = machine.H200_NVLINK
    short, long = (alone_ns(host, attention(host, "a", t, t, 4096)) for t in (8192, 16384))
    assert long / short == pytest.approx(4.0, rel=0.1)
