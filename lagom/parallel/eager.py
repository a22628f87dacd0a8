# SPDX-License-Identifier: Apache-2.0
"""Both operators for eager mode: the functions and gradients of ``registered.py``, past torch's dispatcher, which takes
0.1 ms of the host's time for a registered operator with a list of tensors and a gradient (torch 2.13)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Parameter

from lagom.parallel.rank_group import KnownCall
from lagom.parallel.registered import gather_gradients, gather_matmul, matmul_scatter, scatter_gradients
from lagom.parallel.torch_gate import dispatch_modes_counter

DISPATCH_MODES = dispatch_modes_counter()


class AllGatherMatmul(torch.autograd.Function):
    """Arguments: the call; whether the gathered x is kept; x; weights."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, call: KnownCall, keep: bool, x: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        gathered, products = gather_matmul(x, weights, call, call)
        ctx.call, ctx.kept = call, keep
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(gathered)
        ctx.save_for_backward(gathered if keep else x, *weights)
        return (gathered, *products)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:  # type: ignore[override]
        x, *weights = ctx.saved_tensors
        call: KnownCall = ctx.call

        def gather(shard: Tensor) -> Tensor:
            return gather_matmul(shard, (), call)[0]

        def scatter(xs: list[Tensor], others: list[Tensor]) -> Tensor:
            return matmul_scatter(xs, others, call)

        needs = ctx.needs_input_grad[2], ctx.needs_input_grad[3:]
        dx, dweights = gather_gradients(gather, scatter, needs, (ctx.kept, x, weights), grads[1:])
        return (None, None, dx, *dweights)


class MatmulReduceScatter(torch.autograd.Function):
    """Arguments: the call; x; weight."""

    @staticmethod
    def forward(ctx: Any, call: KnownCall, x: Tensor, weight: Tensor) -> Tensor:  # type: ignore[override]
        ctx.call = call
        ctx.save_for_backward(x, weight)
        return matmul_scatter((x,), (weight,), call, call)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        call: KnownCall = ctx.call

        def gather(shard: Tensor, weights: list[Tensor], keep: bool) -> tuple[Tensor, Sequence[Tensor]]:
            return gather_matmul(shard, weights, call)

        needs = ctx.needs_input_grad[1:2], ctx.needs_input_grad[2:3]
        (dx,), (dweight,) = scatter_gradients(gather, needs, ([x], [weight]), grad)
        return None, dx, dweight


def gather_products(x: Tensor, weights: Sequence[Tensor], call: KnownCall, keep: bool) -> Sequence[Tensor]:
    """The gathered x, which has no gradient, and the products; without a gradient past autograd, too."""
    if torch.is_grad_enabled() and (x.requires_grad or any(weight.requires_grad for weight in weights)):
        return AllGatherMatmul.apply(call, keep, x, *weights)
    gathered, products = gather_matmul(x, weights, call, call)
    return (gathered, *products)


def scattered_product(x: Tensor, weight: Tensor, call: KnownCall) -> Tensor:
    """The same for this rank's rows of the sum."""
    if torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad):
        return MatmulReduceScatter.apply(call, x, weight)
    return matmul_scatter((x,), (weight,), call, call)


def is_eager(*tensors: Tensor) -> bool:
    """Whether they hold numbers, and nobody looks at each operator: a compiler does, and selective activation
    checkpointing, which would take a product that was measured for the one that is recomputed."""
    if torch.compiler.is_compiling() or DISPATCH_MODES():
        return False
    for one in tensors:  # a generator takes a microsecond more  # noqa: SIM110
        if type(one) is not Tensor and type(one) is not Parameter:
            return False
    return True
