# SPDX-License-Identifier: Apache-2.0
"""Both operators as torch knows them: ``torch.ops.lagom``, on matrices, with shapes for fake tensors and gradients, so
that torch.compile keeps each as one node. The group goes by its name, as in torch's functional collectives.

The gradient of AllGather-matmul is matmul-ReduceScatter, and the other way round.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lagom.parallel.choosing import PLAIN, RunWith, choose
from lagom.parallel.matmul_call import GATHER, SCATTER, Implementation, MatmulCall, layouts_of
from lagom.parallel.rank_group import KnownCall, group_named
from lagom.parallel.symmetric_pool import find_pooled

#: For how many different calls of a group the look into a dictionary is kept.
MOST_READY = 4096
_library = torch.library.Library("lagom", "FRAGMENT")
# -> gathered x (no rows where it is not kept), then a product for each weight
_library.define(f"{GATHER}(Tensor x, Tensor[] weights, str group, str implementation, int dim, bool keep) -> Tensor[]")
_library.define(f"{SCATTER}(Tensor[] xs, Tensor[] weights, str group, str implementation, int dim) -> Tensor")
gather_op = getattr(torch.ops.lagom, GATHER)
scatter_op = getattr(torch.ops.lagom, SCATTER)


def gather_matmul(
    x: Tensor, weights: Sequence[Tensor], call: KnownCall, key: object = None
) -> tuple[Tensor, list[Tensor]]:
    """On real tensors: x [m, K], weights [K, n]; gathered x, products. Without weights only the AllGather. ``key``: of
    tensors like these, where the caller has one."""
    x, ranks = x.contiguous(), call.group

    def run(one: Implementation) -> tuple[Tensor, list[Tensor]]:
        return one.all_gather_matmul(x, weights, ranks)

    return run(_implementation(GATHER, [x], weights, call, key, run) if weights else PLAIN)


def matmul_scatter(xs: Sequence[Tensor], weights: Sequence[Tensor], call: KnownCall, key: object = None) -> Tensor:
    """On real tensors: xs [M, k], weights [k, N]."""

    def run(one: Implementation) -> Tensor:
        return one.matmul_reduce_scatter(xs, weights, call.group)

    return run(_implementation(SCATTER, xs, weights, call, key, run))


def _gather_real(
    x: Tensor, weights: list[Tensor], group: str, implementation: str, dim: int, keep: bool
) -> list[Tensor]:
    gathered, products = gather_matmul(x, weights, KnownCall(group_named(group), implementation, dim))
    return [gathered if keep else x.new_empty(0, x.shape[1]), *products]


def _scatter_real(xs: list[Tensor], weights: list[Tensor], group: str, implementation: str, dim: int) -> Tensor:
    return matmul_scatter(xs, weights, KnownCall(group_named(group), implementation, dim))


def _implementation(
    operator: str, xs: Sequence[Tensor], weights: Sequence[Tensor], asked: KnownCall, key: object, run: RunWith
) -> Implementation:
    """What was chosen. The same tensors' next call is one look into a dictionary: small products take no longer."""
    x, ranks = xs[0], asked.group
    pooled = operator == GATHER and find_pooled(x, ranks) is not None
    if key is None:
        about = tuple([(t.shape, t.stride()) for t in (*xs, *weights)])
        key = operator, asked.named, asked.dim, x.dtype, x.device, about
    known = ranks.ready.get((key, pooled))
    if known is None:
        call = _call(operator, xs, weights, asked, pooled)
        known = choose(call, ranks, x.device, asked.named, run)
        if known is None:
            return PLAIN
        if len(ranks.ready) >= MOST_READY:
            ranks.ready.clear()
        ranks.ready[key, pooled] = known
    return known.now(ranks, x.device)


def _call(operator: str, xs: Sequence[Tensor], weights: Sequence[Tensor], asked: KnownCall, pooled: bool) -> MatmulCall:
    x, size, gathers = xs[0], asked.group.size, operator == GATHER
    inner = tuple(weight.shape[0] for weight in weights)
    columns = tuple(weight.shape[1] for weight in (weights if gathers else weights[:1]))
    dtype, layouts = str(x.dtype).removeprefix("torch."), layouts_of([*xs, *weights])
    rows = size * x.shape[0] if gathers else x.shape[0]
    return MatmulCall(operator, rows, inner, columns, dtype, asked.dim, size, _kind(x.device), layouts, pooled)


@functools.cache
def _kind(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _gather_fake(
    x: Tensor, weights: list[Tensor], group: str, implementation: str, dim: int, keep: bool
) -> list[Tensor]:
    rows = group_named(group).size * x.shape[0]
    return [x.new_empty(rows if keep else 0, x.shape[1]), *(x.new_empty(rows, one.shape[1]) for one in weights)]


def _scatter_fake(xs: list[Tensor], weights: list[Tensor], group: str, implementation: str, dim: int) -> Tensor:
    return xs[0].new_empty(xs[0].shape[0] // group_named(group).size, weights[0].shape[1])


def gather_gradients(
    gather: Callable[[Tensor], Tensor],
    scatter: Callable[[list[Tensor], list[Tensor]], Tensor],
    needs: tuple[bool, Sequence[bool]],
    saved: tuple[bool, Tensor, Sequence[Tensor]],
    grads: Sequence[Tensor | None],
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Of x and of the weights. ``gather``: the AllGather alone; ``scatter``: matmul-ReduceScatter; ``needs``: of x, of
    each weight; ``saved``: whether x is gathered, x, weights; ``grads``: of each product."""
    kept, x, weights = saved
    pairs = [(grad, weight.t()) for grad, weight in zip(grads, weights, strict=True) if grad is not None]
    dx = None
    if needs[0] and pairs:
        dx = scatter([grad for grad, _ in pairs], [weight for _, weight in pairs])
    if not any(needs[1]) or not pairs:
        return dx, [None] * len(weights)
    gathered = x if kept else gather(x)
    return dx, _weight_gradients(needs[1], [gathered] * len(weights), weights, grads)


def scatter_gradients(
    gather: Callable[[Tensor, list[Tensor], bool], tuple[Tensor, Sequence[Tensor]]],
    needs: tuple[Sequence[bool], Sequence[bool]],
    saved: tuple[Sequence[Tensor], Sequence[Tensor]],
    grad: Tensor,
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Of each x and of each weight. ``gather``: gathered x, products; ``saved``: these; otherwise as above."""
    xs, weights = saved
    wanted = [weight.t() for weight, needed in zip(weights, needs[0], strict=True) if needed]
    gathered, products = gather(grad, wanted, any(needs[1]))
    found = iter(products)
    dxs = [next(found) if needed else None for needed in needs[0]]
    return dxs, _weight_gradients(needs[1], xs, weights, [gathered] * len(xs))


def _weight_gradients(
    needs: Sequence[bool], xs: Sequence[Tensor], weights: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    every = zip(needs, xs, weights, grads, strict=True)
    return [_weight_gradient(x, w, grad) if needed and grad is not None else None for needed, x, w, grad in every]


def _weight_gradient(x: Tensor, weight: Tensor, grad: Tensor) -> Tensor:
    """In the layout of the weight, as torch's own products have it: another one is copied into the parameter's layout,
    or added up in strides, whenever it is accumulated."""
    return (grad.t() @ x).t() if weight.t().is_contiguous() else x.t() @ grad


def _save_gather(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, weights, *ctx.arguments, ctx.kept = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[0] if ctx.kept else x, *weights)


def _gather_backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    x, *weights = ctx.saved_tensors
    group, implementation, dim = ctx.arguments

    def scatter(xs: list[Tensor], others: list[Tensor]) -> Tensor:
        return scatter_op(xs, others, group, implementation, dim)

    saved = (ctx.kept, x, weights)
    gather = functools.partial(_gather_only, group=group, dim=dim)
    found = gather_gradients(gather, scatter, ctx.needs_input_grad[:2], saved, grads[1:])
    return (*found, None, None, None, None)


def _gather_only(x: Tensor, group: str, dim: int) -> Tensor:
    return gather_op(x, [], group, "plain", dim, True)[0]


def _save_scatter(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    xs, weights, *ctx.arguments = inputs
    ctx.save_for_backward(*xs, *weights)


def _scatter_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    tensors = ctx.saved_tensors  # once: each look unpacks them, which activation checkpointing allows no second time
    half = len(tensors) // 2
    saved = tensors[:half], tensors[half:]

    def gather(x: Tensor, weights: list[Tensor], keep: bool) -> tuple[Tensor, Sequence[Tensor]]:
        gathered, *products = gather_op(x, weights, *ctx.arguments, keep)
        return gathered, products

    found = scatter_gradients(gather, ctx.needs_input_grad[:2], saved, grad)
    return (*found, None, None, None)


for _name, _real, _fake, _save, _backward in (
    (GATHER, _gather_real, _gather_fake, _save_gather, _gather_backward),
    (SCATTER, _scatter_real, _scatter_fake, _save_scatter, _scatter_backward),
):
    _library.impl(_name, _real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"lagom::{_name}", _fake, lib=_library)
    torch.library.register_autograd(f"lagom::{_name}", _backward, setup_context=_save, lib=_library)
