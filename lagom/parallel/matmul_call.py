# SPDX-License-Identifier: Apache-2.0
"""What a choice depends on, and what every implementation offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lagom.parallel.rank_group import RankGroup

#: What the implementations are made for; other types are left to plain.
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
GATHER = "all_gather_matmul"
SCATTER = "matmul_reduce_scatter"


@dataclass(frozen=True, slots=True)
class MatmulCall:
    """A call as its choice sees it. ``rows``: of the whole, gathered or not yet scattered; ``inner`` and ``columns``:
    of each weight; ``dim``: along which the caller's tensors are split; ``layouts``: of each x and weight, ``t`` =
    transposed in memory; ``pooled``: x lies in symmetric memory."""

    operator: str
    rows: int
    inner: tuple[int, ...]
    columns: tuple[int, ...]
    dtype: str
    dim: int
    ranks: int
    device: str
    layouts: str
    pooled: bool = False

    @property
    def symmetric_bytes(self) -> int:
        """The symmetric memory that copies need: the shard that others read, or a slot for every rank."""
        elements = self.rows // self.ranks * self.inner[0] if self.operator == GATHER else self.rows * self.columns[0]
        return elements * getattr(torch, self.dtype).itemsize


class CannotPrepare(Exception):
    """An implementation cannot be used, as all ranks know now: one clause."""


def all_can_prepare(group: RankGroup, reason: str, elsewhere: str, device: torch.device) -> None:
    """Raise :class:`CannotPrepare` on every rank where one has a ``reason``: with it there, ``elsewhere`` on others."""
    if not group.all_say(not reason, device):
        raise CannotPrepare(reason or elsewhere)


class Implementation(Protocol):
    """One way to carry out both operators, on matrices: rows are gathered and scattered. The same on all ranks."""

    name: str

    def refusal(self, call: MatmulCall, group: RankGroup, device: torch.device) -> str:
        """Why this rank cannot use it for a call: one clause, empty = it can. No communication."""

    def prepare(self, call: MatmulCall, group: RankGroup, device: torch.device) -> None:
        """Make the buffers that calls need. A collective; on every rank it raises :class:`CannotPrepare`, or none."""

    def all_gather_matmul(self, x: Tensor, weights: Sequence[Tensor], group: RankGroup) -> tuple[Tensor, list[Tensor]]:
        """x [m, K] of every rank, weights [K, n]: gathered x [ranks m, K], products [ranks m, n]."""

    def matmul_reduce_scatter(self, xs: Sequence[Tensor], weights: Sequence[Tensor], group: RankGroup) -> Tensor:
        """xs [M, k], weights [k, N]: this rank's rows [M / ranks, N] of the sum over pairs and ranks of x @ weight."""


def multiply(xs: Sequence[Tensor], weights: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
    """The sum of the products of the pairs."""
    total = torch.mm(xs[0], weights[0]) if out is None else torch.mm(xs[0], weights[0], out=out)
    for x, weight in zip(xs[1:], weights[1:], strict=True):
        total.addmm_(x, weight)
    return total


def layouts_of(tensors: Sequence[Tensor]) -> str:
    """``n`` or ``t`` for each matrix: how its numbers lie in memory decides how fast its product is."""
    return "".join("t" if one.stride(0) == 1 < one.stride(1) else "n" for one in tensors)


def rows_of(xs: Sequence[Tensor], rank: int, size: int) -> list[Tensor]:
    """The rows of each that belong to a rank."""
    count = xs[0].shape[0] // size
    return [x[rank * count : (rank + 1) * count] for x in xs]
