# SPDX-License-Identifier: Apache-2.0
"""Schedules that split the batch into two halves, so that one half's communication runs beside the other's compute.

Tensor parallelism as DeepSpeed-Domino's released code schedules it: an AllReduce after each half's attention and MLP.
Forward: attn 0, AR, attn 1, AR, (wait) mlp 0, AR, (wait) mlp 1, AR: the last one has nothing to hide behind.
Backward: each half's gradients by input, AR, its gradients by weight beside it.

Expert parallelism, the schedule of vLLM's dual-batch overlap. Each AlltoAll runs beside the other half's compute:

    compute  attn 0, attn 1, experts 0, experts 1, (next layer) attn 0 ...
    comm             dispatch 0, dispatch 1, combine 0, combine 1 ...

AlltoAll never reaches NCCL's tuner: these sites can be tuned only by the paper's fork, and rows made from them are
labelled so. Routing is balanced.
"""

from __future__ import annotations

from enum import IntEnum
from typing import cast

from lagom.records import Function
from lagom.sim.layers import (
    Experts,
    Kernels,
    Shape,
    Split,
    attention_backward,
    attention_forward,
    gemm,
    mlp_backward,
    mlp_forward,
    stream,
)
from lagom.sim.machine import MachineModel
from lagom.sim.operations import Collective, CommOp, ComputeOp, OverlapGroup, Segment, SiteShape

_AR = Function.ALL_REDUCE
_OPTIMIZER_BYTES = 26.0  # an element: AdamW reads and writes master, two moments, gradient


def domino_sites(shape: Shape, tensor: int, replicas: int, tokens: int, backward: bool) -> tuple[SiteShape, ...]:
    """Hidden and exposed AllReduces of the forward, hidden of the backward, the gradients' own if ``replicas`` > 1."""
    size = tokens // 2 * shape.hidden * 2
    sites = [SiteShape("ar_forward", _AR, size, tensor, "hidden"), SiteShape("ar_last", _AR, size, tensor, "exposed")]
    if backward:
        sites.append(SiteShape("ar_backward", _AR, size, tensor, "hidden"))
    if replicas > 1:
        gradients = 2 * (shape.layers * shape.layer_parameters + shape.root_parameters) // tensor
        sites.append(SiteShape("ar_gradients", _AR, gradients, replicas, "exposed", reach="none"))
    return tuple(sites)


def domino_groups(
    machine: MachineModel,
    shape: Shape,
    tensor: int,
    replicas: int,
    tokens: int,
    micro_batches: int,
    layers: int,
    backward: bool,
) -> tuple[OverlapGroup, ...]:
    """``micro_batches`` forward and backward passes, then the gradients' AllReduce over replicas and the optimizer."""
    sites = domino_sites(shape, tensor, replicas, tokens, backward)
    sharers = {"ar_gradients": tensor}
    calls = {s.name: Collective(i, _AR, s.bytes, s.ranks, sharers.get(s.name, 0)) for i, s in enumerate(sites)}
    half = Split(tokens // 2, min(tokens // 2, shape.sequence), tensor)
    groups = [OverlapGroup("tp forward", _forward(machine, shape, half, layers, calls, backward), micro_batches)]
    if backward:
        groups.append(OverlapGroup("tp backward", _backward(machine, shape, half, layers, calls), micro_batches))
        groups.append(OverlapGroup("tp step", _step(shape, tensor, layers, calls)))
    return tuple(groups)


def _forward(
    machine: MachineModel, shape: Shape, half: Split, layers: int, calls: dict[str, Collective], head: bool
) -> tuple[Segment, ...]:
    attention, mlp = attention_forward(machine, shape, half), mlp_forward(machine, shape, half)
    compute = _waiting(-1, attention) + _waiting(None, attention) + _waiting(0, mlp) + _waiting(1, mlp)
    ends = _ends(attention, attention, mlp, mlp)
    hidden = tuple(CommOp(calls["ar_forward"], end) for end in ends[:3])
    layer = Segment(compute, (*hidden, CommOp(calls["ar_last"], ends[3])), repeats=layers)
    if not head:
        return (layer,)
    return (layer, Segment(_waiting(-1, _head(machine, shape, half, "")), ()))


def _backward(
    machine: MachineModel, shape: Shape, half: Split, layers: int, calls: dict[str, Collective]
) -> tuple[Segment, ...]:
    mlp, attention = (
        _by_input_first(mlp_backward(machine, shape, half)),
        _by_input_first(attention_backward(machine, shape, half)),
    )
    parts = (mlp, mlp, attention, attention)
    waits = (-2, -1, 0, 1)  # this half's last AllReduce: the layer above for the MLP, the MLP's for the attention
    compute: tuple[ComputeOp, ...] = ()
    comm: list[CommOp] = []
    for (by_input, by_weight), wait in zip(parts, waits, strict=True):
        compute += _waiting(wait, by_input)
        comm.append(CommOp(calls["ar_backward"], len(compute) - 1))
        compute += _waiting(None, by_weight)
    layer = Segment(compute, tuple(comm), repeats=layers)
    return (
        Segment(_waiting(None, _head(machine, shape, half, "_dgrad") + _head(machine, shape, half, "_wgrad")), ()),
        layer,
    )


def _step(shape: Shape, tensor: int, layers: int, calls: dict[str, Collective]) -> tuple[Segment, ...]:
    parameters = (layers * shape.layer_parameters + shape.root_parameters) / tensor
    optimizer = stream("optimizer", _OPTIMIZER_BYTES * parameters)
    if "ar_gradients" not in calls:
        return (Segment((ComputeOp(optimizer),), ()),)
    return (Segment((ComputeOp(optimizer, 0),), (CommOp(calls["ar_gradients"]),)),)


def _head(machine: MachineModel, shape: Shape, half: Split, suffix: str) -> Kernels:
    t, v = 2 * half.tokens, shape.vocabulary // half.tensor
    return (gemm(machine, f"head{suffix}", t, v, shape.hidden), stream(f"loss{suffix}", 4.0 * t * v))


def _by_input_first(kernels: Kernels) -> tuple[Kernels, Kernels]:
    """Domino delays the gradients by weight so that the AllReduce of the gradients by input can start."""
    weights = tuple(k for k in kernels if k.name.endswith("_wgrad"))
    return tuple(k for k in kernels if k not in weights), weights


def _waiting(after_comm: int | None, kernels: Kernels) -> tuple[ComputeOp, ...]:
    """The kernels in order, the first of them after a collective."""
    return tuple(ComputeOp(kernel, after_comm if n == 0 else None) for n, kernel in enumerate(kernels))


def _ends(*parts: Kernels) -> tuple[int, ...]:
    """Index of the last kernel of each part when they follow each other."""
    return tuple(sum(len(p) for p in parts[: n + 1]) - 1 for n in range(len(parts)))


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
    machine: MachineModel, shape: Shape, ranks: int, tokens: int, layers: int, backward: bool = True
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
    shared = _shared(machine, shape, half, "_dgrad") + _shared(machine, shape, half, "_wgrad")
    dense = attention_backward(machine, shape, half) + shared
    routed = _routed(machine, shape, ranks, half, "_dgrad") + _routed(machine, shape, ranks, half, "_wgrad")
    return (*groups, OverlapGroup("ep backward", (_layer(dense, routed, back, layers),)))


def _layer(dense: Kernels, routed: Kernels, call: Collective, layers: int) -> Segment:
    compute = _waiting(-2, dense) + _waiting(-1, dense) + _waiting(0, routed) + _waiting(1, routed)
    comm = tuple(CommOp(call, end) for end in _ends(dense, dense, routed, routed))
    return Segment(compute, comm, repeats=layers)


def _routed(machine: MachineModel, shape: Shape, ranks: int, half: Split, suffix: str) -> Kernels:
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


def _shared(machine: MachineModel, shape: Shape, half: Split, suffix: str) -> Kernels:
    e = _experts(shape)
    if not e.shared:
        return ()
    width = e.ffn * e.shared
    return (
        gemm(machine, f"shared_up{suffix}", half.tokens, 2 * width, shape.hidden),
        gemm(machine, f"shared_down{suffix}", half.tokens, shape.hidden, width),
    )


def _experts(shape: Shape) -> Experts:
    if shape.experts is None:
        raise ValueError(f"{shape.name} has no experts; use domino or fsdp for it")
    return shape.experts
