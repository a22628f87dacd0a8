# SPDX-License-Identifier: Apache-2.0
"""FSDP2's schedule.

Forward: AG(l+1) may start once layer l's parameters are copied out of AG(l)'s buffer, so it runs beside layer l.
Backward: AG(l-1) likewise; RS(l) follows layer l's gradients and runs beside layer l-1. One NCCL stream carries both in
the order of issue: AG(l-1) before RS(l), as FSDP2 prefetches before the layer's backward.
The first AllGather(s) of the forward and the last ReduceScatter(s) of the backward have nothing to hide behind.
"""

from __future__ import annotations

from lagom.records import Function
from lagom.sim.layers import (
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

_AG, _RS = Function.ALL_GATHER, Function.REDUCE_SCATTER
_OPTIMIZER_BYTES = 26.0  # an element of the local shard: AdamW reads and writes master, two moments, gradient


def fsdp_sites(shape: Shape, ranks: int, head: bool) -> tuple[SiteShape, ...]:
    """Sites in the order of first calls. Sizes are the whole gathered tensor in bf16."""
    layer, root = 2 * shape.layer_parameters, 2 * shape.root_parameters
    sites = (
        SiteShape("ag_first", _AG, layer, ranks, "exposed"),
        SiteShape("ag_forward", _AG, layer, ranks, "hidden"),
        SiteShape("ag_backward", _AG, layer, ranks, "hidden"),
        SiteShape("rs_backward", _RS, layer, ranks, "hidden"),
    )
    if not head:
        return sites
    return (
        SiteShape("ag_root", _AG, root, ranks, "exposed"),
        *sites,
        SiteShape("rs_root", _RS, root, ranks, "exposed"),
    )


def fsdp_groups(
    machine: MachineModel, shape: Shape, ranks: int, tokens: int, layers: int, head: bool, sequence: int
) -> tuple[OverlapGroup, ...]:
    """One micro-batch with optimizer step, as two groups: the queue of collectives is empty between them."""
    sites = fsdp_sites(shape, ranks, head)
    calls = {s.name: Collective(i, s.function, s.bytes, s.ranks) for i, s in enumerate(sites)}
    split = Split(tokens, sequence)
    forward = _forward(machine, shape, split, layers, head, calls)
    backward = _backward(machine, shape, split, layers, head, calls, ranks)
    return (OverlapGroup("fsdp forward", forward), OverlapGroup("fsdp backward", backward))


def _forward(
    machine: MachineModel, shape: Shape, split: Split, layers: int, head: bool, calls: dict[str, Collective]
) -> tuple[Segment, ...]:
    copy_out = stream("copy_out", 2.0 * calls["ag_forward"].bytes)
    layer = attention_forward(machine, shape, split) + mlp_forward(machine, shape, split)
    segments = [_forward_start(shape, split, head, calls)]
    segments.append(
        Segment((ComputeOp(copy_out, -1), *_plain(layer)), (CommOp(calls["ag_forward"], 0),), repeats=layers - 1)
    )
    tail = _head_forward(machine, shape, split) if head else ()
    segments.append(Segment((ComputeOp(copy_out, -1), *_plain(layer + tail)), ()))
    return tuple(segments)


def _forward_start(shape: Shape, split: Split, head: bool, calls: dict[str, Collective]) -> Segment:
    if not head:
        return Segment((), (CommOp(calls["ag_first"]),))
    root = calls["ag_root"]
    compute = (
        ComputeOp(stream("copy_out_root", 2.0 * root.bytes), 0),
        ComputeOp(stream("embedding", 4.0 * split.tokens * shape.hidden)),
    )
    return Segment(compute, (CommOp(root), CommOp(calls["ag_first"], 0)))


def _backward(
    machine: MachineModel, shape: Shape, split: Split, layers: int, head: bool, calls: dict[str, Collective], ranks: int
) -> tuple[Segment, ...]:
    ag, rs = calls["ag_backward"], calls["rs_backward"]
    layer = (
        ComputeOp(stream("copy_out", 2.0 * ag.bytes), -1),
        *_plain(mlp_backward(machine, shape, split) + attention_backward(machine, shape, split)),
        ComputeOp(stream("copy_in", 2.0 * rs.bytes)),
    )
    gather, scatter = CommOp(ag, 0), CommOp(rs, -1)
    start = _plain(_head_backward(machine, shape, split)) if head else ()
    return (
        Segment(start, (CommOp(ag),)),
        Segment(layer, (gather,)),
        Segment(layer, (scatter, gather), repeats=max(0, layers - 2)),
        Segment(layer, (scatter,)),
        *_backward_end(shape, split, layers, head, calls, ranks),
    )


def _backward_end(
    shape: Shape, split: Split, layers: int, head: bool, calls: dict[str, Collective], ranks: int
) -> tuple[Segment, ...]:
    """The last ReduceScatters, the embedding's gradient, and the optimizer, which waits for all."""
    parameters = layers * shape.layer_parameters + (shape.root_parameters if head else 0)
    optimizer = stream("optimizer", _OPTIMIZER_BYTES * parameters / ranks)
    last = CommOp(calls["rs_backward"], -1)
    if not head:
        return (Segment((ComputeOp(optimizer, 0),), (last,)),)
    embedding = stream("embedding_bwd", 6.0 * split.tokens * shape.hidden)
    root = CommOp(calls["rs_root"], 0)
    return (Segment((ComputeOp(embedding), ComputeOp(optimizer, 1)), (last, root)),)


def _head_forward(machine: MachineModel, shape: Shape, split: Split) -> Kernels:
    t, v = split.tokens, shape.vocabulary
    return (gemm(machine, "head", t, v, shape.hidden), stream("loss", 8.0 * t * v))


def _head_backward(machine: MachineModel, shape: Shape, split: Split) -> Kernels:
    t, v, h = split.tokens, shape.vocabulary, shape.hidden
    return (
        stream("loss_bwd", 8.0 * t * v),
        gemm(machine, "head_dgrad", t, h, v),
        gemm(machine, "head_wgrad", h, v, t),
    )


def _plain(kernels: Kernels) -> tuple[ComputeOp, ...]:
    return tuple(ComputeOp(kernel) for kernel in kernels)
