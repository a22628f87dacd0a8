"""The kernels of one transformer layer, forward and backward, for a machine and a split."""

from __future__ import annotations

from dataclasses import dataclass

from lagom.sim.kernels import attention, gemm, stream
from lagom.sim.machine import Machine
from lagom.sim.operations import ComputeKernel
from lagom.sim.shapes import Shape

Kernels = tuple[ComputeKernel, ...]


@dataclass(frozen=True, slots=True)
class Split:
    """What one GPU does of a layer: ``tokens``, in sequences of ``sequence``, and 1/``tensor`` of each matrix."""

    tokens: int
    sequence: int
    tensor: int = 1


def attention_forward(machine: Machine, shape: Shape, split: Split) -> Kernels:
    """Norm, QKV, attention, output projection."""
    t, h, p = split.tokens, shape.hidden, split.tensor
    return (
        stream("norm", 4.0 * t * h),
        gemm(machine, "qkv", t, (h + 2 * shape.kv_width) // p, h),
        attention(machine, "attention", t, split.sequence, h // p),
        gemm(machine, "attn_out", t, h, h // p),
    )


def mlp_forward(machine: Machine, shape: Shape, split: Split) -> Kernels:
    """Residual and norm, up (and gate), activation, down."""
    t, h, f = split.tokens, shape.hidden, shape.ffn // split.tensor
    ups = tuple(gemm(machine, name, t, f, h) for name in (("gate", "up") if shape.gated else ("up",)))
    return (
        stream("residual_norm", 8.0 * t * h),
        *ups,
        stream("activation", 2.0 * t * f * (3 if shape.gated else 2)),
        gemm(machine, "down", t, h, f),
    )


def attention_backward(machine: Machine, shape: Shape, split: Split) -> Kernels:
    """Gradients of the attention half, by input and by weight."""
    t, h, p = split.tokens, shape.hidden, split.tensor
    qkv = (h + 2 * shape.kv_width) // p
    return (
        *_backward_gemm(machine, "attn_out", t, h, h // p),
        attention(machine, "attention_bwd", t, split.sequence, h // p, backward=True),
        *_backward_gemm(machine, "qkv", t, qkv, h),
        stream("norm_bwd", 8.0 * t * h),
    )


def mlp_backward(machine: Machine, shape: Shape, split: Split) -> Kernels:
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


def _backward_gemm(machine: Machine, name: str, t: int, n: int, k: int) -> Kernels:
    """A forward (t, k) x (k, n) has two backward products of the same work."""
    return (gemm(machine, f"{name}_dgrad", t, k, n), gemm(machine, f"{name}_wgrad", k, n, t))
