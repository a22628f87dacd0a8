# SPDX-License-Identifier: Apache-2.0
"""From the published configurations of the paper's models to compute kernels: shapes, kernels, and the kernels of one
transformer layer, forward and backward. bf16 throughout: two bytes an element.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lagom.sim.machine import MachineModel
from lagom.sim.operations import ComputeKernel


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed part of a mixture-of-experts layer: ``count`` experts of width ``ffn``, ``active`` a token, and
    ``shared`` more that every token passes."""

    count: int
    active: int
    ffn: int
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder-only transformer. ``gated``: the MLP has three matrices (SwiGLU), else two. ``sequence`` is the context
    it was trained with, which the paper's runs are taken to use (it does not say)."""

    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    vocabulary: int
    gated: bool
    sequence: int
    tied: bool = False
    experts: Experts | None = None

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_size

    @property
    def mlp_matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def layer_parameters(self) -> int:
        """Of one dense layer: attention and MLP (norms and biases are below 0.1 %)."""
        attention = self.hidden * (2 * self.hidden + 2 * self.kv_width)
        return attention + self.mlp_matrices * self.hidden * self.ffn

    @property
    def root_parameters(self) -> int:
        """Embedding and head."""
        return self.vocabulary * self.hidden * (1 if self.tied else 2)


LLAMA3_8B = Shape("llama3_8b", 32, 4096, 14336, 32, 8, 128256, True, 4096)  # trained at 8192; 4096 fits 48 GB cards
PHI2_2B = Shape("phi2_2b", 32, 2560, 10240, 32, 32, 51200, False, 2048)
MPT_7B = Shape("mpt_7b", 32, 4096, 16384, 32, 32, 50432, False, 2048, tied=True)
DEEPSEEK_MOE_16B = Shape(
    "deepseek_moe_16b", 28, 2048, 10944, 16, 16, 102400, True, 4096, experts=Experts(64, 6, 1408, shared=2)
)
OLMOE_1B_7B = Shape("olmoe_1b_7b", 16, 2048, 1024, 16, 16, 50304, True, 4096, experts=Experts(64, 8, 1024))

SHAPES = {shape.name: shape for shape in (LLAMA3_8B, PHI2_2B, MPT_7B, DEEPSEEK_MOE_16B, OLMOE_1B_7B)}


#: A memory-bound kernel moves this much with one block; eight blocks of 256 threads fit an SM.
_STREAM_BLOCK_BYTES = 64 << 10
#: What a streaming kernel reaches of the data sheet's bandwidth. [M] H200 copy-out of 416 MB in 217 us = 0.83.
_STREAM_EFFICIENCY = 0.83


def gemm(machine: MachineModel, name: str, m: int, n: int, k: int, batch: int = 1) -> ComputeKernel:
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


def _resident_miss(machine: MachineModel, m: int, n: int, k: int) -> float:
    """Misses fall when a wave's operand panels fit the L2."""
    tile_m, tile_n = machine.gemm_tile
    side = math.sqrt(machine.sms)
    panel = side * (tile_m + tile_n) * min(k, 4096) * 2.0
    return min(1.0, panel / machine.l2_bytes) * 0.5


def attention(
    machine: MachineModel, name: str, tokens: int, sequence: int, width: int, backward: bool = False
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


Kernels = tuple[ComputeKernel, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """What one GPU does of a layer: ``tokens``, in sequences of ``sequence``, and 1/``tensor`` of each matrix."""

    tokens: int
    sequence: int
    tensor: int = 1


def attention_forward(machine: MachineModel, shape: Shape, split: Split) -> Kernels:
    """Norm, QKV, attention, output projection."""
    t, h, p = split.tokens, shape.hidden, split.tensor
    return (
        stream("norm", 4.0 * t * h),
        gemm(machine, "qkv", t, (h + 2 * shape.kv_width) // p, h),
        attention(machine, "attention", t, split.sequence, h // p),
        gemm(machine, "attn_out", t, h, h // p),
    )


def mlp_forward(machine: MachineModel, shape: Shape, split: Split) -> Kernels:
    """Residual and norm, up (and gate), activation, down."""
    t, h, f = split.tokens, shape.hidden, shape.ffn // split.tensor
    ups = tuple(gemm(machine, name, t, f, h) for name in (("gate", "up") if shape.gated else ("up",)))
    return (
        stream("residual_norm", 8.0 * t * h),
        *ups,
        stream("activation", 2.0 * t * f * (3 if shape.gated else 2)),
        gemm(machine, "down", t, h, f),
    )


def attention_backward(machine: MachineModel, shape: Shape, split: Split) -> Kernels:
    """Gradients of the attention half, by input and by weight."""
    t, h, p = split.tokens, shape.hidden, split.tensor
    qkv = (h + 2 * shape.kv_width) // p
    return (
        *_backward_gemm(machine, "attn_out", t, h, h // p),
        attention(machine, "attention_bwd", t, split.sequence, h // p, backward=True),
        *_backward_gemm(machine, "qkv", t, qkv, h),
        stream("norm_bwd", 8.0 * t * h),
    )


def mlp_backward(machine: MachineModel, shape: Shape, split: Split) -> Kernels:
    """Gradients of the MLP half."""
    t, h, f = split.tokens, shape.hidden, shape.ffn // split.tensor
    ups: Kernels = ()
    for name in ("gate", "up") if shape.gated else ("up",):
        ups += _backward_gemm(machine, name, t, f, h)
    return (
        *_backward_gemm(machine, "down", t, h, f),
        stream("activation_bwd", 2.0 * t * f * (5 if shape.gated else 3)),
        *ups,
        stream("residual_norm_bwd", 12.0 * t * h),
    )


def _backward_gemm(machine: MachineModel, name: str, t: int, n: int, k: int) -> Kernels:
    """A forward (t, k) x (k, n) has two backward products of the same work."""
    return (gemm(machine, f"{name}_dgrad", t, k, n), gemm(machine, f"{name}_wgrad", k, n, t))
