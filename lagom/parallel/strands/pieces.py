# SPDX-License-Identifier: Apache-2.0
"""What a block is cut into: functions that compute, and the collectives between them in two halves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from lagom.errors import UsageError
from lagom.parallel.strands.lanes import CopyLane, Finish
from lagom.parallel.torch_gate import has_hooks, public_collectives

Compute = Callable[..., Any]


class StrandCollective(Protocol):
    """Of the first tensor that travels between pieces; the others pass by. Each half is called on every rank in the
    same order. ``start`` and ``start_backward`` return at once what waits for the result. ``takes_lanes``, if it is
    there and true: ``group`` may be a :class:`~lagom.parallel.strands.lanes.CopyLane` instead."""

    def start(self, x: Tensor, group: Any) -> Finish: ...

    def start_backward(self, grad: Tensor, group: Any) -> Finish: ...


class AllGather:
    """[rows, ...] of each rank to [ranks * rows, ...]; backward a ReduceScatter."""

    takes_lanes = True

    def start(self, x: Tensor, group: Any) -> Finish:
        return _gather(x, group)

    def start_backward(self, grad: Tensor, group: Any) -> Finish:
        return _scatter(grad, group)


class ReduceScatter:
    """[ranks * rows, ...], summed over ranks, to this rank's [rows, ...]; backward an AllGather."""

    takes_lanes = True

    def start(self, x: Tensor, group: Any) -> Finish:
        return _scatter(x, group)

    def start_backward(self, grad: Tensor, group: Any) -> Finish:
        return _gather(grad, group)


class AllToAll:
    """[ranks * rows, ...]: the r-th part goes to rank r; backward the same."""

    def start(self, x: Tensor, group: Any) -> Finish:
        return _finish(dist.all_to_all_single, x, x.shape[0], group)

    def start_backward(self, grad: Tensor, group: Any) -> Finish:
        return self.start(grad, group)


def _gather(x: Tensor, group: Any) -> Finish:
    if isinstance(group, CopyLane):
        return group.gather(x)
    return _finish(public_collectives()[0], x, x.shape[0] * group.size(), group)


def _scatter(x: Tensor, group: Any) -> Finish:
    if isinstance(group, CopyLane):
        return group.scatter(x)
    if x.shape[0] % group.size():
        raise UsageError(f"a ReduceScatter gets {x.shape[0]} rows, which {group.size()} ranks do not divide; pad them.")
    return _finish(public_collectives()[1], x, x.shape[0] // group.size(), group)


def _finish(collective: Callable[..., Any], x: Tensor, rows: int, group: Any) -> Finish:
    """What waits for a collective that is started here. It keeps the input until then."""
    x = x.contiguous()
    result = x.new_empty(rows, *x.shape[1:])
    work = collective(result, x, group=group, async_op=True)

    def finish(kept: Tensor = x) -> Tensor:
        work.wait()
        return result

    return finish


Piece = Compute | StrandCollective


def is_collective(piece: Piece) -> bool:
    """Whether ranks meet in it."""
    return hasattr(piece, "start_backward")


#: Gradients of weights that wait, while a piece runs its backward. One for the process: autograd calls backward
#: functions from threads of its own, and only one piece runs at a time.
_put_off: list[Callable[[], None]] | None = None


def put_off_weights(backward: Callable[[], None]) -> list[Callable[[], None]]:
    """Run the backward of a piece; what is left of it, for :func:`linear`."""
    global _put_off
    left: list[Callable[[], None]] = []
    _put_off = left
    try:
        backward()
    finally:
        _put_off = None
    return left


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``torch.nn.functional.linear`` whose weight's gradient can run beside the collective that follows in the
    backward: in the piece behind an AllGather. The same bits. A weight that is no leaf, as under autocast, or that has
    hooks, which would be called too early, has its gradient at once."""
    waits = weight.requires_grad and weight.is_leaf and not has_hooks(weight)
    if torch.is_autocast_enabled(x.device.type) or x.dim() < 2 or not waits:
        return F.linear(x, weight, bias)
    return LaterWeightGradient.apply(x, weight, bias)


class LaterWeightGradient(torch.autograd.Function):
    """x [..., k] times weight [n, k], plus bias [n] or None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(x, weight)
        ctx.leaf = weight  # activation checkpointing gives the backward a copy, which has a gradient of its own
        return F.linear(x, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        dx = grad @ weight if ctx.needs_input_grad[0] else None
        dbias = grad.flatten(0, -2).sum(0) if ctx.needs_input_grad[2] else None

        def weight_gradient() -> Tensor:
            return grad.flatten(0, -2).t() @ x.flatten(0, -2)

        def accumulate() -> None:
            with torch.no_grad():
                found = weight_gradient()
                ctx.leaf.grad = found if ctx.leaf.grad is None else ctx.leaf.grad.add_(found)

        if _put_off is None:
            return dx, weight_gradient(), dbias
        _put_off.append(accumulate)
        return dx, None, dbias
