# SPDX-License-Identifier: Apache-2.0
"""AllGather then matmul, and matmul then ReduceScatter, of tensor parallelism: what users call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.distributed import ProcessGroup

from lagom.errors import UsageError
from lagom.parallel.choosing import check_named
from lagom.parallel.eager import gather_products, is_eager, scattered_product
from lagom.parallel.matmul_call import GATHER, SCATTER
from lagom.parallel.rank_group import KnownCall, group_named
from lagom.parallel.registered import gather_op, scatter_op
from lagom.parallel.said_once import say_once
from lagom.parallel.torch_gate import constant_for_compilers

#: What was found out about arguments that were seen before, and for how many different ones that is kept.
_known: dict[tuple[Any, ...], tuple[Facts, KnownCall]] = {}
MOST_KNOWN = 4096


class Facts(NamedTuple):
    """Of arguments that were checked. ``named``: the implementation that was asked for; ``whole``: rows along dim of
    all ranks; ``chunk``, ``most``: those of this rank, and of the first one; ``uneven``: ranks do not divide them."""

    group: str
    rank: int
    ranks: int
    named: str
    whole: int
    chunk: int
    most: int
    uneven: bool


def all_gather_matmul(
    x: Tensor,
    weights: Sequence[Tensor],
    group: Any,
    dim: int = 0,
    *,
    implementation: str | None = None,
    keep_gathered: bool = True,
    size: int | None = None,
) -> list[Tensor]:
    """Gather ``x`` from all ranks along ``dim`` and multiply it with each weight: ``[gathered @ w for w in weights]``.

    A collective, and so is its backward, which is :func:`matmul_reduce_scatter`. The first call of a shape measures
    how to do it best, half a second at most (:func:`choices`). Calls of one group are made on one stream.

    :param x: this rank's shard, ``[rows, K]`` or ``[batch, rows, K]`` or with more dimensions, of the same shape on
        every rank (but see ``size``); in bfloat16, float16 or float32 (others: by the plain way only).
    :param weights: matrices ``[K, n]``, this rank's columns; of an ``nn.Linear`` pass ``weight.t()``.
    :param group: a process group or its name.
    :param dim: 0 or 1, which is not the last one of ``x``; 0 needs no copy, nor does 1 with a batch of 1.
    :param implementation: ``plain``, ``fused``, ``copies``, ``copies_two_streams`` or ``looped`` instead of the best;
        where it cannot be used, plain. Default: the variable ``LAGOM_PARALLEL``, else the best.
    :param keep_gathered: for the gradients of the weights the gathered ``x`` is needed: ``ranks`` times the memory of
        ``x``, kept until the backward. False: only ``x`` is kept and gathered again then. If no weight needs a
        gradient, neither is done.
    :param size: rows of the whole along ``dim`` where ranks do not divide them: rank r has the r-th chunk of
        ``torch.chunk``, as DTensor's ``Shard``. By the plain way only.
    :returns: for each weight the product ``[ranks * rows, n]``, or the same with the batch; with ``dim`` 1 and a batch
        it may not be contiguous.
    :raises UsageError: shapes, dtypes or devices do not fit; no rank has communicated then.
    :raises SettingError: there is no implementation of that name.
    """
    if torch.is_autocast_enabled(x.device.type):
        x, *weights = _as_autocast([x, *weights])
    facts, known = _facts(GATHER, x, weights, group, dim, implementation, size)
    if facts.ranks == 1:
        return [x @ weight for weight in weights]
    matrix, rest = _to_matrix(_padded(x, dim, facts.most) if facts.uneven else x, dim)
    keep = keep_gathered and _weights_learn(weights)
    if known is None:
        found = gather_op(matrix, list(weights), facts.group, facts.named, dim, keep)
    else:
        found = gather_products(matrix, weights, known, keep)
    return [_from_matrix(product, dim, rest, facts.whole) for product in found[1:]]


def gathered_and_products(
    x: Tensor, weights: Sequence[Tensor], group: str, dim: int
) -> tuple[Tensor, Sequence[Tensor]]:
    """:func:`all_gather_matmul`, and the gathered ``x`` with it, which has no gradient: for more than one rank, rows
    that ranks divide, and no autocast."""
    facts, known = _facts(GATHER, x, weights, group, dim, None, None)
    matrix, rest = _to_matrix(x, dim)
    if known is None:
        found = gather_op(matrix, list(weights), facts.group, facts.named, dim, True)
    else:
        found = gather_products(matrix, weights, known, _weights_learn(weights))
    gathered, *products = [_from_matrix(one, dim, rest, facts.whole) for one in found]
    return gathered, products


def _weights_learn(weights: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(weight.requires_grad for weight in weights)


def matmul_reduce_scatter(
    x: Tensor, weight: Tensor, group: Any, dim: int = 0, *, implementation: str | None = None
) -> Tensor:
    """Multiply, sum the products over all ranks, and keep this rank's part along ``dim``.

    A collective, and so is its backward, which is :func:`all_gather_matmul`. Arguments as there.

    :param x: ``[rows, k]`` or ``[batch, rows, k]`` or with more dimensions, of the same shape on every rank.
    :param weight: ``[k, N]``, this rank's rows.
    :returns: ``[rows / ranks, N]``, or the same with the batch. Where ranks do not divide the rows: the chunk that
        ``torch.chunk`` gives this rank, which may have no rows, by the plain way only.
    :raises UsageError: shapes, dtypes or devices do not fit; no rank has communicated then.
    :raises SettingError: there is no implementation of that name.
    """
    if torch.is_autocast_enabled(x.device.type):
        x, weight = _as_autocast([x, weight])
    facts, known = _facts(SCATTER, x, [weight], group, dim, implementation, None)
    if facts.ranks == 1:
        return x @ weight
    matrix, rest = _to_matrix(_padded(x, dim, facts.ranks * facts.most) if facts.uneven else x, dim)
    if known is None:
        own = scatter_op([matrix], [weight], facts.group, facts.named, dim)
    else:
        own = scattered_product(matrix, weight, known)
    return _from_matrix(own, dim, rest, facts.chunk)


def _as_autocast(tensors: Sequence[Tensor]) -> list[Tensor]:
    """As torch.autocast changes the arguments of a product: every implementation returns the same dtype then."""
    dtype = torch.get_autocast_dtype(tensors[0].device.type)
    return [one.to(dtype) if one.is_floating_point() and one.dtype != torch.float64 else one for one in tensors]


def _facts(
    operator: str,
    x: Tensor,
    weights: Sequence[Tensor],
    group: Any,
    dim: int,
    implementation: str | None,
    size: int | None,
) -> tuple[Facts, KnownCall | None]:
    """What the call is; the second is None where a compiler or a subclass of Tensor needs the registered operator. The
    same arguments' next call is one look into a dictionary: small products take no longer than the checks."""
    if not is_eager(x, *weights):
        return _checked(operator, x, weights, group, dim, implementation, size), None
    place = group_named(group) if type(group) is str else group
    about = [(weight.shape, weight.stride(), weight.dtype, weight.device) for weight in weights]
    key = (operator, place, dim, implementation, size, x.shape, x.stride(), x.dtype, x.device, *about)
    found = _known.get(key)
    if found is None:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        facts = _checked(operator, x, weights, group, dim, implementation, size)
        found = _known[key] = facts, KnownCall(group_named(facts.group), facts.named, dim)
    return found


def _checked(
    operator: str,
    x: Tensor,
    weights: Sequence[Tensor],
    group: Any,
    dim: int,
    implementation: str | None,
    size: int | None,
) -> Facts:
    wrong = _wrong_dimensions(x, weights, dim) or _wrong_sizes(x, weights, dim, size) or _wrong_kinds([x, *weights])
    if wrong:
        raise UsageError(f"{operator}: {wrong}.")
    name, rank, ranks = _group(group)
    named, rows = check_named(implementation), x.shape[dim]
    whole = size if size is not None else rows * ranks if operator == GATHER else rows
    chunk, uneven = _chunk(whole, rank, ranks), whole % ranks != 0
    if operator == GATHER and rows != chunk:
        raise UsageError(
            f"{GATHER}: x has {rows} rows along dim {dim}, and of {whole} rows rank {rank} of {ranks} has "
            f"{chunk}; pass the chunk of torch.chunk, or another size."
        )
    if ranks == 1:
        _say(f"{operator}: the group has one rank, so nothing is communicated.", "one rank")
    if uneven:
        _say(f"{operator}: {ranks} ranks do not divide {whole} rows, so plain is used.", "uneven")
    return Facts(name, rank, ranks, "plain" if uneven else named, whole, chunk, _chunk(whole, 0, ranks), uneven)


def _wrong_dimensions(x: Tensor, weights: Sequence[Tensor], dim: int) -> str:
    if not weights:
        return "there is no weight; pass at least one"
    if x.dim() < 2 or any(weight.dim() != 2 for weight in weights):
        return f"x has {x.dim()} dimensions and the weights {[w.dim() for w in weights]}; x needs 2 or more, weights 2"
    if dim not in (0, 1) or dim > x.dim() - 2:
        return f"dim {dim} of {x.dim()} dimensions; it can be 0 or 1, and not the last one, which is multiplied"
    return ""


def _wrong_sizes(x: Tensor, weights: Sequence[Tensor], dim: int, whole: int | None) -> str:
    if any(weight.shape[0] != x.shape[-1] for weight in weights):
        rows = [weight.shape[0] for weight in weights]
        return f"x has {x.shape[-1]} columns and the weights {rows} rows; they must be equal (nn.Linear: weight.t())"
    others = (*x.shape[:dim], *x.shape[dim + 1 :], *(weight.shape[1] for weight in weights))
    if 0 in others or (whole or x.shape[dim]) < 1:
        return f"x is {list(x.shape)} and the weights {[list(w.shape) for w in weights]}; no size can be 0"
    return ""


def _wrong_kinds(tensors: Sequence[Tensor]) -> str:
    if any(tensor.dtype != tensors[0].dtype for tensor in tensors):
        return f"the dtypes are {', '.join(str(tensor.dtype) for tensor in tensors)}; convert all to one"
    if any(tensor.device != tensors[0].device for tensor in tensors):
        return f"the devices are {', '.join(str(tensor.device) for tensor in tensors)}; move all to one"
    return ""


def _group(group: Any) -> tuple[str, int, int]:
    """Name, rank of this process, ranks."""
    if isinstance(group, str):
        return (group, *_place_in(group))
    if not isinstance(group, ProcessGroup):
        raise UsageError(
            f"group is {group!r}, which is no process group that this rank is in; pass one, or its name (of a "
            "DeviceMesh: mesh.get_group())."
        )
    return group.group_name, group.rank(), group.size()


@constant_for_compilers
def _place_in(name: str) -> tuple[int, int]:
    found = group_named(name)
    return found.rank, found.size


def _chunk(whole: int, rank: int, ranks: int) -> int:
    """How many rows torch.chunk gives a rank."""
    most = -(-whole // ranks)
    return max(0, min(most, whole - rank * most))


def _padded(x: Tensor, dim: int, rows: int) -> Tensor:
    missing = rows - x.shape[dim]
    return F.pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, missing)) if missing else x


def _to_matrix(x: Tensor, dim: int) -> tuple[Tensor, list[int]]:
    """Rows of ``dim`` first, then the other dimensions, as one; and those others. A matrix stays as it is: every view
    costs time of the host."""
    if x.dim() == 2:
        return x, []
    moved = x.movedim(dim, 0)
    return moved.reshape(-1, x.shape[-1]), list(moved.shape[1:-1])


def _from_matrix(matrix: Tensor, dim: int, rest: list[int], rows: int) -> Tensor:
    found = matrix.view(-1, *rest, matrix.shape[1]).movedim(0, dim) if rest else matrix
    return found if found.shape[dim] == rows else found.narrow(dim, 0, rows)


def _say(sentence: str, cause: str) -> None:
    """Not while a compiler reads this: a log is nothing for its graph."""
    if not torch.compiler.is_compiling():
        say_once(sentence, cause)
