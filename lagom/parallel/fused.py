# SPDX-License-Identifier: Apache-2.0
"""torch's own fused operators. No CUDA graph is captured with them (choosing.NEVER_CAPTURED): their workspace is
torch's, and a later call of a larger shape replaces it, while the graph holds the address of the old one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lagom.parallel.matmul_call import SCATTER, MatmulCall, all_can_prepare
from lagom.parallel.rank_group import RankGroup
from lagom.parallel.torch_gate import fused_operators, symmetric_refusal


class Fused:
    """Needs what symmetric memory needs: one host, peer access."""

    name = "fused"

    def refusal(self, call: MatmulCall, group: RankGroup, device: torch.device) -> str:
        if call.operator == SCATTER and len(call.inner) > 1:
            return "torch's fused operator takes one product"
        return symmetric_refusal() or group.no_peer_access(device)

    def prepare(self, call: MatmulCall, group: RankGroup, device: torch.device) -> None:
        reason = ""
        try:
            fused_operators(group.name)
        except Exception as error:  # noqa: BLE001 - other ranks wait for what this one says
            reason = str(error) or type(error).__name__
        all_can_prepare(group, reason, "torch's fused operators failed on another rank", device)

    def all_gather_matmul(self, x: Tensor, weights: Sequence[Tensor], group: RankGroup) -> tuple[Tensor, list[Tensor]]:
        gather, _ = fused_operators(group.name)
        # Without return_A, torch takes a kernel of multicast where the machine has it.
        gathered, products = gather(x, list(weights), 0, group.name, return_A=True)
        return gathered, products

    def matmul_reduce_scatter(self, xs: Sequence[Tensor], weights: Sequence[Tensor], group: RankGroup) -> Tensor:
        _, scatter = fused_operators(group.name)
        return scatter(xs[0], weights[0], "sum", 0, group.name)
