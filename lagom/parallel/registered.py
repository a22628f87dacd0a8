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
from lagom.parallel.rank_group import RankGroup, group_named
from lagom.parallel.symmetric_pool import find_pooled

_library = torch.library.Library("lagom", "FRAGMENT")
# -> gathered x (no rows where it is not kept), then a product for each weight
_library.define(f"{GATHER}(Tensor x, Tensor[] weights, str group, str implementation, int dim, bool keep) -> Tensor[]")
_library.define(f"{SCATTER}(Tensor[] xs, Tensor[] weights, str group, str implementation, int dim) -> Tensor")
gather_op = getattr(torch.ops.lagom, GATHER)
scatter_op = getattr(torch.ops.lagom, SCATTER)


def gather_matmul(
    x: Tensor, weights: list[Tensor], group: str, implementation: str, dim: int, keep: bool
) -> list[Tensor]:
    """The operator on real tensors: x [m, K], weights [K, n]; without weights only the AllGather."""
    ranks = group_named(group)
    x = x.contiguous()

    def run(one: Implementation) -> tuple[Tensor, list[Tensor]]:
        return one.all_gather_matmul(x, weights, ranks)

    one = _implementation(GATHER, [x], weights, ranks, implementation, dim, run) if weights else PLAIN
    gathered, products = run(one)
    return [gathered if keep else x.new_empty(0, x.shape[1]), *products]


def matmul_scatter(xs: list[Tensor], weights: list[Tensor], group: str, implementation: str, dim: int) -> Tensor:
    """The operator on real tensors: xs [M, k], weights [k, N]."""
    ranks = group_named(group)

    def run(one: Implementation) -> Tensor:
        return one.matmul_reduce_scatter(xs, weights, ranks)

    return run(_implementation(SCATTER, xs, weights, ranks, implementation, dim, run))


def _implementation(
    operator: str,
    xs: Sequence[Tensor],
    weights: Sequence[Tensor],
    ranks: RankGroup,
    named: str,
    dim: int,
    run: RunWith,
) -> Implementation:
    """What was chosen. The same tensors' next call is one look into a dictionary: small products take no longer."""
    x = xs[0]
    pooled = operator == GATHER and find_pooled(x, ranks) is not None
    key = (operator, named, dim, pooled, x.dtype, x.device, *[(t.shape, t.stride()) for t in (*xs, *weights)])
    known = ranks.ready.get(key)
    if known is None:
        inner = tuple(weight.shape[0] for weight in weights)
        gathers = operator == GATHER
        rows = ranks.size * x.shape[0] if gathers else x.shape[0]
        columns = tuple(weight.shape[1] for weight in (weights if gathers else weights[:1]))
        about = str(x.dtype).removeprefix("torch."), dim, ranks.size, _kind(x.device), layouts_of([*xs, *weights])
        known = choose(MatmulCall(operator, rows, inner, columns, *about, pooled), ranks, x.device, named, run)
        if known is None:
            return PLAIN
        ranks.ready[key] = known
    return known.now(x.device)


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
    operators: tuple[Callable[..., Any], Callable[..., Any]],
    arguments: tuple[str, str, int],
    needs: tuple[bool, Sequence[bool]],
    saved: tuple[bool, Tensor, Sequence[Tensor]],
    grads: Sequence[Tensor | None],
) -> tuple[Tensor | None, list[Tensor | None]]:
    """Of x and of the weights. ``operators``: both, registered or direct; ``arguments``: group, implementation, dim;
    ``needs``: of x, of each weight; ``saved``: whether x is gathered, x, weights; ``grads``: of each product."""
    gather, scatter = operators
    kept, x, weights = saved
    pairs = [(grad, weight.t()) for grad, weight in zip(grads, weights, strict=True) if grad is not None]
    dx = None
    if needs[0] and pairs:
        dx = scatter([grad for grad, _ in pairs], [weight for _, weight in pairs], *arguments)
    if not any(needs[1]) or not pairs:
        return dx, [None] * len(weights)
    gathered = x if kept else gather(x, [], arguments[0], "plain", arguments[2], True)[0]
    return dx, _weight_gradients(needs[1], [gathered] * len(weights), grads)


def scatter_gradients(
    gather: Callable[..., Any],
    arguments: tuple[str, str, int],
    needs: tuple[Sequence[bool], Sequence[bool]],
    saved: tuple[Sequence[Tensor], Sequence[Tensor]],
    grad: Tensor,
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Of each x and of each weight. ``saved``: these; the others as in :func:`gather_gradients`."""
    xs, weights = saved
    wanted = [weight.t() for weight, needed in zip(weights, needs[0], strict=True) if needed]
    gathered, *products = gather(grad, wanted, *arguments, any(needs[1]))
    found = iter(products)
    dxs = [next(found) if needed else None for needed in needs[0]]
    return dxs, _weight_gradients(needs[1], xs, [gathered] * len(xs))


def _weight_gradients(
    needs: Sequence[bool], xs: Sequence[Tensor], grads: Sequence[Tensor | None]
) -> list[Tensor | None]:
    triples = zip(needs, xs, grads, strict=True)
    return [x.t() @ grad if needed and grad is not None else None for needed, x, grad in triples]


def _save_gather(ctx: Any, inputs: tuple[Any, ...], output: list[Tensor]) -> None:
    x, weights, *ctx.arguments, ctx.kept = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(output[0] if ctx.kept else x, *weights)


def _gather_backward(ctx: Any, grads: Sequence[Tensor | None]) -> tuple[Any, ...]:
    x, *weights = ctx.saved_tensors
    operators, saved = (gather_op, scatter_op), (ctx.kept, x, weights)
    found = gather_gradients(operators, tuple(ctx.arguments), ctx.needs_input_grad[:2], saved, grads[1:])
    return (*found, None, None, None, None)


def _save_scatter(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    xs, weights, *ctx.arguments = inputs
    ctx.save_for_backward(*xs, *weights)


def _scatter_backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    half = len(ctx.saved_tensors) // 2
    saved = ctx.saved_tensors[:half], ctx.saved_tensors[half:]
    found = scatter_gradients(gather_op, tuple(ctx.arguments), ctx.needs_input_grad[:2], saved, grad)
    return (*found, None, None, None)


for _name, _real, _fake, _save, _backward in (
    (GATHER, gather_matmul, _gather_fake, _save_gather, _gather_backward),
    (SCATTER, matmul_scatter, _scatter_fake, _save_scatter, _scatter_backward),
):
    _library.impl(_name, _real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"lagom::{_name}", _fake, lib=_library)
    torch.library.register_autograd(f"lagom::{_name}", _backward, setup_context=_save, lib=_library)
