# SPDX-License-Identifier: Apache-2.0
"""The collective of the process group, then the product, or the other way round: what others are compared with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lagom.parallel.matmul_call import MatmulCall, multiply
from lagom.parallel.rank_group import RankGroup
from lagom.parallel.torch_gate import collectives

ALL_GATHER, REDUCE_SCATTER = collectives()


class PlainCollective:
    """Works wherever the process group works."""

    name = "plain"

    def refusal(self, call: MatmulCall, group: RankGroup, device: torch.device) -> str:
        return ""

    def prepare(self, call: MatmulCall, group: RankGroup, device: torch.device) -> None:
        return

    def all_gather_matmul(self, x: Tensor, weights: Sequence[Tensor], group: RankGroup) -> tuple[Tensor, list[Tensor]]:
        gathered = x.new_empty(group.size * x.shape[0], x.shape[1])
        ALL_GATHER(gathered, x, group=group.handle)
        return gathered, [torch.mm(gathered, weight) for weight in weights]

    def matmul_reduce_scatter(self, xs: Sequence[Tensor], weights: Sequence[Tensor], group: RankGroup) -> Tensor:
        total = multiply(xs, weights)
        own = total.new_empty(total.shape[0] // group.size, total.shape[1])
        REDUCE_SCATTER(own, total, group=group.handle)
        return own
