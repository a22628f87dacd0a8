# SPDX-License-Identifier: Apache-2.0
"""A ring of send and receive, a shard at a time beside the product of the one before. With two ranks this is one
exchange beside half of the product; with more, each step is a small kernel of NCCL, and it rarely pays.

Source: overlap by decomposition (Wang et al., ASPLOS 2023), the loop of AllGather-Einsum and Einsum-ReduceScatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lagom.parallel.matmul_call import MatmulCall, multiply, rows_of
from lagom.parallel.rank_group import RankGroup


class Looped:
    """Works wherever the process group can send and receive."""

    name = "looped"

    def refusal(self, call: MatmulCall, group: RankGroup, device: torch.device) -> str:
        return ""

    def prepare(self, call: MatmulCall, group: RankGroup, device: torch.device) -> None:
        return

    def all_gather_matmul(self, x: Tensor, weights: Sequence[Tensor], group: RankGroup) -> tuple[Tensor, list[Tensor]]:
        size, rank = group.size, group.rank
        gathered = x.new_empty(size * x.shape[0], x.shape[1])
        products = [x.new_empty(size * x.shape[0], weight.shape[1]) for weight in weights]
        held = x
        for step in range(size):
            owner = (rank + step) % size
            (coming,) = rows_of([gathered], (owner + 1) % size, size)
            last = step == size - 1
            works = [] if last else group.exchange(held, (rank - 1) % size, coming, (rank + 1) % size)
            for weight, out in zip(weights, rows_of(products, owner, size) if products else [], strict=True):
                torch.mm(held, weight, out=out)
            _wait(works)
            held = held if last else coming
        rows_of([gathered], rank, size)[0].copy_(x)
        return gathered, products

    def matmul_reduce_scatter(self, xs: Sequence[Tensor], weights: Sequence[Tensor], group: RankGroup) -> Tensor:
        size, rank = group.size, group.rank
        count, columns = xs[0].shape[0] // size, weights[0].shape[1]
        sums = xs[0].new_empty(size, count, columns)
        received = xs[0].new_empty(size - 1, count, columns)
        works: list[Any] = []
        for step in range(size):
            multiply(rows_of(xs, (rank - 1 - step) % size, size), weights, sums[step])
            _wait(works)
            if step:
                sums[step].add_(received[step - 1])
            if step < size - 1:
                works = group.exchange(sums[step], (rank + 1) % size, received[step], (rank - 1) % size)
        return sums[size - 1].clone()


def _wait(works: Sequence[Any]) -> None:
    """On CUDA the stream waits, not the host."""
    for work in works:
        work.wait()
