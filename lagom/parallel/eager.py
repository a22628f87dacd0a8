# SPDX-License-Identifier: Apache-2.0
"""Both operators for eager mode: the functions and gradients of ``registered.py``, past torch's dispatcher, which takes
0.1 ms of the host's time for a registered operator with a list of tensors and a gradient (torch 2.13)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Parameter

from lagom.parallel.registered import (
    gather_gradients,
    gather_matmul,
    gather_op,
    matmul_scatter,
    scatter_gradients,
    scatter_op,
)


class AllGatherMatmul(torch.autograd.Function):
    """Arguments: group, implementation, dim; whether the gathered x is kept; x; weights."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, arguments: tuple[str, str, int], keep: bool, x: Tensor, *weights: Tensor
    ) -> tuple[Tensor, ...]:
        gathered, *products = gather_matmul(x, list(weights), *arguments, keep)
        ctx.arguments, ctx.kept = arguments, keep
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(gathered if keep else x, *weights)
        return tuple(products)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:  # type: ignore[override]
        x, *weights = ctx.saved_tensors
        needs = ctx.needs_input_grad[2], ctx.needs_input_grad[3:]
        operators, saved = (gather_matmul, matmul_scatter), (ctx.kept, x, weights)
        dx, dweights = gather_gradients(operators, ctx.arguments, needs, saved, grads)
        return (None, None, dx, *dweights)


class MatmulReduceScatter(torch.autograd.Function):
    """Arguments: group, implementation, dim; x; weight."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, arguments: tuple[str, str, int], x: Tensor, weight: Tensor
    ) -> Tensor:
        ctx.arguments = arguments
        ctx.save_for_backward(x, weight)
        return matmul_scatter([x], [weight], *arguments)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:  # type: ignore[override]
        x, weight = ctx.saved_tensors
        needs = ctx.needs_input_grad[1:2], ctx.needs_input_grad[2:3]
        (dx,), (dweight,) = scatter_gradients(gather_matmul, ctx.arguments, needs, ([x], [weight]), grad)
        return None, dx, dweight


def gather_products(
    x: Tensor, weights: list[Tensor], group: str, implementation: str, dim: int, keep: bool
) -> list[Tensor]:
    """The products, in the way that fits: compilers and fake tensors get the registered operator."""
    if is_eager(x, *weights):
        if not torch.is_grad_enabled() or not any(tensor.requires_grad for tensor in (x, *weights)):
            return gather_matmul(x, weights, group, implementation, dim, False)[1:]
        return list(AllGatherMatmul.apply((group, implementation, dim), keep, x, *weights))
    return gather_op(x, weights, group, implementation, dim, keep)[1:]


def scattered_product(x: Tensor, weight: Tensor, group: str, implementation: str, dim: int) -> Tensor:
    """The same for this rank's rows of the sum."""
    if is_eager(x, weight):
        if not torch.is_grad_enabled() or not (x.requires_grad or weight.requires_grad):
            return matmul_scatter([x], [weight], group, implementation, dim)
        return MatmulReduceScatter.apply((group, implementation, dim), x, weight)
    return scatter_op([x], [weight], group, implementation, dim)


def is_eager(*tensors: Tensor) -> bool:
    """Whether they hold numbers, and no compiler reads this."""
    return not torch.compiler.is_compiling() and all(type(tensor) in (Tensor, Parameter) for tensor in tensors)
