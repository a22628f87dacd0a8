# SPDX-License-Identifier: Apache-2.0
"""The simulated machines. Every constant has a unit and says where it comes from:

- ``[L]`` the Lagom paper (arXiv 2602.20656); ``[M]`` measurements of 8xH200, November 2026 (README.md here);
- ``[D]`` vendor data sheet; ``[A]`` assumed, no figure known: a plausible value that no reproduced result was tuned on.

``tests/unit/sim/test_calibration.py`` states every calibration figure beside the simulator's own value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Link:
    """What moves bytes between the GPUs of one communicator.

    A channel alone moves ``channel_gbps`` (bytes/ns) with an endless chunk; half of that at a chunk of
    ``half_chunk_bytes``. All channels together cannot pass ``gbps``. ``sharpness`` is the power of the smooth minimum
    of the two. Where the bytes bounce through host memory, the cap falls from ``hot_gain * gbps`` to ``gbps`` as the
    bytes in flight (channels times chunk) outgrow ``hot_bytes`` of processor cache, with exponent ``hot_power``.
    """

    gbps: float
    channel_gbps: float
    half_chunk_bytes: float
    sharpness: float
    hop_ns: float
    compute_drag: float = 0.0  # cap / (1 + drag * memory pressure of the compute kernel beside it)
    crowding: float = 0.0  # loss of the cap for each channel past the knee, as a share
    hot_gain: float = 1.0
    hot_bytes: float = 1.0
    hot_power: float = 1.0


@dataclass(frozen=True, slots=True)
class MachineModel:
    """One kind of host. Bandwidths in GB/s (= bytes/ns), times in ns, sizes in bytes."""

    name: str
    sms: int
    sm_threads: int
    memory_gbps: float
    l2_bytes: float
    sm_flops_per_ns: float  # dense bf16, what a good GEMM reaches on one SM
    attention_efficiency: float  # of that rate
    gemm_tile: tuple[int, int]
    gemm_reuse: float  # share of a GEMM's operand fetches that a clean L2 serves
    persistent_gemm: bool
    paired_sms: bool  # GEMMs run as clusters of two SMs
    link: Link
    between_nodes: Link | None  # None: nothing measured, so no row of more than one host
    gpus_per_node: int
    ll128: bool  # whether NCCL offers it: only where every hop inside the host is NVLink
    built_channels: int  # what stock NCCL builds; its ceiling and its default NC above 1 MB
    p2p_channels: int  # its default for AlltoAll, which goes by send and receive
    default_chunk: int
    default_threads: int
    launch_ns: float  # gap between two kernels of a stream
    comm_launch_ns: float  # a collective's fixed cost
    burst: float  # how much above its mean rate a channel draws memory bandwidth at the largest chunk
    burst_half_chunk: float
    wave_sharpness: float  # 1: hard waves; 0: none (blocks of uneven length fill the gaps)


# --- 8 x A40, NVLink (the paper's cluster A) --------------------------------------------------------------------------
A40_NVLINK = MachineModel(
    name="a40_nvlink",
    sms=84,  # [D], and the 30.2 % of [L] Fig. 3 = (84 - 16) / (84 - 32) - 1 says the same
    sm_threads=1536,  # [D] compute capability 8.6
    memory_gbps=696.0,  # [D]
    l2_bytes=6 << 20,  # [D]
    sm_flops_per_ns=1070.0,  # [D] 149.7 TFLOP/s dense / 84, times 0.6 [A]: 90 TFLOP/s, a 300 W card's GEMM
    attention_efficiency=0.7,  # [A]
    gemm_tile=(128, 256),  # [A] one 256-thread block an SM
    gemm_reuse=0.5,  # [A]
    persistent_gemm=False,
    paired_sms=False,
    link=Link(
        gbps=42.0,  # [L] §4.1 "full 400 Gbps" = 50 GB/s, times 0.85 [A]
        channel_gbps=16.0,  # [A] H200's fitted 18 GB/s, less for the smaller SM
        half_chunk_bytes=80 << 10,  # [M] H200 chunk curve
        sharpness=3.0,  # [M] H200 chunk curve
        hop_ns=3000.0,  # [A]
        compute_drag=0.10,  # [A]
        crowding=0.0005,  # [L] Fig. 3 text: "diminishing returns or even slight increases at larger values"
    ),
    between_nodes=Link(80.0, 16.0, 80 << 10, 3.0, 12000.0, 0.05, 0.0005),  # [L] 2 x 400 Gbps, times 0.8 [A]
    gpus_per_node=8,
    ll128=True,
    built_channels=8,  # [L] §4.3: stock runs the AllGather with NC=8, C=2 MB
    p2p_channels=8,  # [A]
    default_chunk=2 << 20,  # [L] §4.3
    default_threads=512,  # NCCL, RING/SIMPLE
    launch_ns=2500.0,  # [A]
    comm_launch_ns=12000.0,  # [A]
    burst=3.0,  # [A] [L] Fig. 3c says only that a larger C slows compute "significantly"; H200's measured 0.2 would not
    burst_half_chunk=256 << 10,  # [A]
    wave_sharpness=0.5,  # [A]
)

# --- 8 x A40, PCIe 4.0 (the paper's cluster B) ------------------------------------------------------------------------
A40_PCIE = replace(
    A40_NVLINK,
    name="a40_pcie",
    link=Link(
        gbps=15.0,  # [A] PCIe 4.0 x16 is 32 GB/s; a ring across 8 cards and two sockets gets about half
        channel_gbps=16.0,
        half_chunk_bytes=80 << 10,
        sharpness=3.0,
        hop_ns=5000.0,  # [A]
        compute_drag=0.03,  # [A]
        crowding=0.0005,
    ),
    between_nodes=Link(10.0, 16.0, 80 << 10, 3.0, 15000.0, 0.03, 0.0005),  # [L] 100 Gbps, times 0.8 [A]
    ll128=False,
    p2p_channels=4,  # [A]
    built_channels=4,  # [A] two rings, doubled; [L] §4.2 says only "larger NC values" on NVLink
)

# --- 8 x H200, NVSwitch -----------------------------------------------------------------------------------------------
H200_NVLINK = MachineModel(
    name="h200_nvlink",
    sms=132,  # [M]
    sm_threads=2048,  # [D] compute capability 9.0
    memory_gbps=4800.0,  # [D]
    l2_bytes=50 << 20,  # [D]
    sm_flops_per_ns=5600.0,  # [M] trace: 4096x14336x4096 in 0.614 ms at best = 783 TFLOP/s; 5 % less under load / 132
    attention_efficiency=0.70,  # [M] trace: causal forward at T=4096 in 0.252 ms = 545 TFLOP/s
    gemm_tile=(320, 128),  # [M] nvjet 320x128, the kernel whose slow-down was measured
    gemm_reuse=0.5,  # [A]
    persistent_gemm=True,  # [M]
    paired_sms=True,  # [M] "clusters of 2"
    link=Link(
        gbps=450.0,  # [D] NVLink 4, each way; the next three fitted to 18 points of the chunk curve (rms 5 %)
        channel_gbps=21.7,  # [M]
        half_chunk_bytes=98 << 10,  # [M]
        sharpness=1.67,  # [M]
        hop_ns=2000.0,  # [A]
        compute_drag=0.8,  # [M] trace: the same AllGather 1.24 ms alone, 1.6-1.7 ms (median) in the job
    ),
    between_nodes=None,
    gpus_per_node=8,
    ll128=True,
    built_channels=24,  # [M]
    p2p_channels=32,  # [M]
    default_chunk=2 << 20,  # [M]
    default_threads=512,  # [M]
    launch_ns=2500.0,  # [M] trace: gaps of 1.5-4 us
    comm_launch_ns=12000.0,  # [A]
    burst=0.2,  # [M] trace: copying 416 MB takes 217 us quiet, 242 us (median) beside an AllGather
    burst_half_chunk=256 << 10,  # [A]
    wave_sharpness=0.5,  # [A]
)

# --- 8 x H200, through host memory (NCCL_P2P_DISABLE=1) ---------------------------------------------------------------
H200_HOST = replace(
    H200_NVLINK,
    name="h200_host",
    link=Link(
        gbps=9.0,  # [M] stock step of 400 ms at T=16384 (9 collectives, X-bound); a faster host of the same kind: 12
        channel_gbps=10.5,  # [M] NC=1 takes as long as stock (30.0 against 30.4 ms on the faster host)
        half_chunk_bytes=20 << 10,  # [M] 256 KiB at NC 2..4 is as good as 512 KiB
        sharpness=4.0,  # [A]
        hop_ns=8000.0,  # [A]
        compute_drag=0.02,  # [A]
        hot_gain=1.50,  # [M] T=16384: step ratios 1.049 .. 1.396 follow NC x C alone
        hot_bytes=3.6 * (1 << 20),  # [M]
        hot_power=3.5,  # [M]
    ),
    ll128=False,
    built_channels=4,  # [M]
    p2p_channels=4,  # [M]
)

PRESETS = {machine.name: machine for machine in (A40_NVLINK, A40_PCIE, H200_NVLINK, H200_HOST)}
