"""Expert parallelism with two half batches (the schedule of vLLM's dual-batch overlap).

    compute  attn 0, attn 1, experts 0, experts 1, (next layer) attn 0 ...
    comm             dispatch 0, dispatch 1, combine 0, combine 1 ...

Each AlltoAll runs beside the other half's compute. AlltoAll never reaches NCCL's tuner: these sites can be tuned only
by the paper's fork, and rows made from them are labelled so. Routing is balanced.
"""

from __future__ import annotations

from enum import IntEnum
from typing import cast

from lagom.records import Function
from lagom.sim.domino import _ends, _waiting
from lagom.sim.kernels import gemm, stream
from lagom.sim.layers import Kernels, Split, attention_backward, attention_forward
from lagom.sim.machine import Machine
from lagom.sim.operations import Collective, CommOp, OverlapGroup, Segment, SiteShape
from lagom.sim.shapes import Experts, Shape


class ForkFunction(IntEnum):
    """Functions that only the paper's fork tunes. The number is NCCL's for a send/receive task."""

    ALL_TO_ALL = 5

    @property
    def word(self) -> str:
        return "alltoall"


#: Typed as a :class:`Function` so that sites can carry it; no wire format ever sees it.
ALL_TO_ALL = cast(Function, ForkFunction.ALL_TO_ALL)


def expert_sites(shape: Shape, ranks: int, tokens: int) -> tuple[SiteShape, ...]:
    """One site a direction: dispatch and combine of a half batch move the same bytes behind similar compute."""
    size = tokens // 2 * _experts(shape).active * shape.hidden * 2
    return (
        SiteShape("a2a_forward", ALL_TO_ALL, size, ranks, "hidden", reach="fork"),
        SiteShape("a2a_backward", ALL_TO_ALL, size, ranks, "hidden", reach="fork"),
    )


def expert_groups(
    machine: Machine, shape: Shape, ranks: int, tokens: int, layers: int, backward: bool = True
) -> tuple[OverlapGroup, ...]:
    """Forward and backward of one micro-batch; attention is replicated, experts are spread over ``ranks``."""
    forward, back = (
        Collective(i, s.function, s.bytes, s.ranks) for i, s in enumerate(expert_sites(shape, ranks, tokens))
    )
    half = Split(tokens // 2, min(tokens // 2, shape.sequence))
    dense = attention_forward(machine, shape, half) + _shared(machine, shape, half, "")
    groups = [OverlapGroup("ep forward", (_layer(dense, _routed(machine, shape, ranks, half, ""), forward, layers),))]
    if not backward:
        return tuple(groups)
    dense = attention_backward(machine, shape, half) + _twice(machine, shape, half)
    routed = _routed(machine, shape, ranks, half, "_dgrad") + _routed(machine, shape, ranks, half, "_wgrad")
    return (*groups, OverlapGroup("ep backward", (_layer(dense, routed, back, layers),)))


def _layer(dense: Kernels, routed: Kernels, call: Collective, layers: int) -> Segment:
    compute = _waiting(-2, dense) + _waiting(-1, dense) + _waiting(0, routed) + _waiting(1, routed)
    comm = tuple(CommOp(call, end) for end in _ends(dense, dense, routed, routed))
    return Segment(compute, comm, repeats=layers)


def _routed(machine: Machine, shape: Shape, ranks: int, half: Split, suffix: str) -> Kernels:
    """This rank's experts as grouped products over the tokens that came in."""
    e = _experts(shape)
    local = e.count // ranks
    each = max(1, half.tokens * e.active // e.count * ranks)  # tokens an expert gets from all ranks
    moved = 4.0 * half.tokens * e.active * shape.hidden
    return (
        stream(f"permute{suffix}", moved),
        gemm(machine, f"experts_up{suffix}", each, 2 * e.ffn, shape.hidden, batch=local),
        stream(f"experts_act{suffix}", 6.0 * each * local * e.ffn),
        gemm(machine, f"experts_down{suffix}", each, shape.hidden, e.ffn, batch=local),
        stream(f"unpermute{suffix}", moved),
    )


def _shared(machine: Machine, shape: Shape, half: Split, suffix: str) -> Kernels:
    e = _experts(shape)
    if not e.shared:
        return ()
    width = e.ffn * e.shared
    return (
        gemm(machine, f"shared_up{suffix}", half.tokens, 2 * width, shape.hidden),
        gemm(machine, f"shared_down{suffix}", half.tokens, shape.hidden, width),
    )


def _twice(machine: Machine, shape: Shape, half: Split) -> Kernels:
    return _shared(machine, shape, half, "_dgrad") + _shared(machine, shape, half, "_wgrad")


def _experts(shape: Shape) -> Experts:
    if shape.experts is None:
        raise ValueError(f"{shape.name} has no experts; use domino or fsdp for it")
    return shape.experts
