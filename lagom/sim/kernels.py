"""From layer shapes to compute kernels. bf16 throughout: two bytes an element."""

from __future__ import annotations

import math

from lagom.sim.machine import Machine
from lagom.sim.operations import ComputeKernel

#: A memory-bound kernel moves this much with one block; eight blocks of 256 threads fit an SM.
_STREAM_BLOCK_BYTES = 64 << 10
#: What a streaming kernel reaches of the data sheet's bandwidth. [M] H200 copy-out of 416 MB in 217 us = 0.83.
_STREAM_EFFICIENCY = 0.83


def gemm(machine: Machine, name: str, m: int, n: int, k: int, batch: int = 1) -> ComputeKernel:
    """``batch`` products of (m, k) by (k, n)."""
    tile_m, tile_n = machine.gemm_tile
    tiles = math.ceil(m / tile_m) * math.ceil(n / tile_n) * batch
    block_ns = 2.0 * tile_m * tile_n * k / machine.sm_flops_per_ns
    fetched = tiles * (tile_m + tile_n) * k * 2.0  # what the tiles ask of the L2
    least = batch * 2.0 * (m * k + k * n + m * n)
    missed = max(least, fetched * (1.0 - machine.gemm_reuse) * _resident_miss(machine, m, n, k))
    return ComputeKernel(
        name=name,
        blocks=tiles,
        block_ns=block_ns,
        memory_bytes=missed,
        reuse=min(1.0, max(0.0, fetched / missed - 1.0)),
        persistent=machine.persistent_gemm,
        pair=machine.paired_sms,
    )


def _resident_miss(machine: Machine, m: int, n: int, k: int) -> float:
    """Misses fall when a wave's operand panels fit the L2."""
    tile_m, tile_n = machine.gemm_tile
    side = math.sqrt(machine.sms)
    panel = side * (tile_m + tile_n) * min(k, 4096) * 2.0
    return min(1.0, panel / machine.l2_bytes) * 0.5


def attention(
    machine: Machine, name: str, tokens: int, sequence: int, width: int, backward: bool = False
) -> ComputeKernel:
    """Causal flash attention over ``tokens`` in sequences of ``sequence``; ``width`` = heads x head size.
    The backward pass does 2.5 times the work (five products for two)."""
    flops = 2.0 * tokens * sequence * width * (2.5 if backward else 1.0)
    per_sm = machine.sm_flops_per_ns * machine.attention_efficiency
    blocks = max(1, math.ceil(tokens / 128) * math.ceil(width / 128))
    moved = tokens * width * 2.0 * (8 if backward else 4)
    return ComputeKernel(
        name, blocks, flops / blocks / per_sm, threads=256, memory_bytes=moved, persistent=machine.persistent_gemm
    )


def stream(name: str, bytes_moved: float) -> ComputeKernel:
    """An elementwise, norm or copy kernel: ``bytes_moved`` read and written."""
    blocks = max(1, math.ceil(bytes_moved / _STREAM_BLOCK_BYTES))
    return ComputeKernel(name, blocks, 400.0, per_sm=6, threads=256, memory_bytes=bytes_moved / _STREAM_EFFICIENCY)
