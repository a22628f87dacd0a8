# SPDX-License-Identifier: Apache-2.0
"""Trains mixture-of-experts layers, experts split over ranks, two micro-batches in turn. Knows nothing of any tuner.

    torchrun --nproc-per-node 8 ep_two_batch.py --shape olmoe_1b_7b --layers 4 --tokens 16384

While one micro-batch's tokens travel to their experts and back, the other one computes::

    attention 0 | attention 1 | shared 0, experts 0 | shared 1, experts 1 |
                  dispatch 0    dispatch 1            combine 0             combine 1

and the same backwards. The router is a fixed permutation that loads all experts alike: patterns are what is measured,
not learning. Everything but the experts is held by all ranks, so its gradients are all-reduced, a layer at a time.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from common import add_options, finish, start
from segments import Exchange, GradientSum, Segment, attend, half_batches, train
from torch import nn

#: hidden, heads, experts, active a token, an expert's width, shared experts, sequence.
SHAPES = {
    "olmoe_1b_7b": (2048, 16, 64, 8, 1024, 0, 4096),
    "deepseek_moe_16b": (2048, 16, 64, 6, 1408, 2, 4096),
    "tiny": (128, 4, 8, 2, 64, 1, 64),
}


class Layer(nn.Module):
    """Attention and shared experts, whole; of the routed experts only this rank's."""

    def __init__(self, shape: str, ranks: int) -> None:
        super().__init__()
        hidden, heads, experts, self.active, width, shared, _ = SHAPES[shape]
        self.head, self.local = hidden // heads, experts // ranks
        self.first, self.second = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.shared_up = nn.Linear(hidden, 2 * shared * width, bias=False) if shared else None
        self.shared_down = nn.Linear(shared * width, hidden, bias=False) if shared else None
        self.up = nn.Parameter(torch.randn(self.local, hidden, 2 * width) / hidden**0.5)
        self.down = nn.Parameter(torch.randn(self.local, width, hidden) / width**0.5)

    def held_by_all(self) -> list[nn.Parameter]:
        """What every rank has a copy of."""
        return [p for name, p in self.named_parameters() if name not in ("up", "down")]

    def attention(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The residual after attention, and its norm."""
        q, k, v = self.qkv(self.first(x)).chunk(3, -1)
        residual = x + self.out(attend(q, k, v, self.head))
        return residual, self.second(residual)

    def routed(self, normed: torch.Tensor) -> torch.Tensor:
        """Every token once for each expert it goes to, sorted by expert: (active x tokens, hidden)."""
        tokens = normed.reshape(-1, normed.shape[-1])
        return tokens.repeat(self.active, 1)[self._order(len(tokens) * self.active, normed.device)]

    def returned(self, back: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        """What came back from the experts, averaged over each token's experts, on top of the rest."""
        order = self._order(len(back), back.device)
        unsorted = torch.empty_like(back).index_copy(0, order, back)
        summed = unsorted.view(self.active, -1, back.shape[-1]).mean(0)
        return sum(rest) + summed.view_as(rest[0])

    @staticmethod
    def _order(rows: int, device: torch.device) -> torch.Tensor:
        """A fixed permutation: neighbours go to experts far apart."""
        columns = 64 if rows % 64 == 0 else 1
        return torch.arange(rows, device=device).view(-1, columns).t().reshape(-1)

    def mix(self, normed: torch.Tensor) -> torch.Tensor:
        """The shared experts."""
        assert self.shared_up is not None
        assert self.shared_down is not None
        gate, wide = self.shared_up(normed).chunk(2, -1)
        return self.shared_down(nn.functional.silu(gate) * wide)

    def experts(self, arrived: torch.Tensor) -> torch.Tensor:
        """This rank's experts on the rows that came for them: an equal share each."""
        rows = arrived.view(self.local, -1, arrived.shape[-1])
        gate, wide = torch.bmm(rows, self.up).chunk(2, -1)
        return torch.bmm(nn.functional.silu(gate) * wide, self.down).view_as(arrived)


class Micro:
    """One micro-batch on its way through one layer, and back."""

    def __init__(self, layer: Layer, x: torch.Tensor) -> None:
        self._layer, self._x = layer, x

    def attention(self) -> None:
        self._attention = Segment(self._layer.attention, self._x)
        self._residual, self._normed = self._attention.values
        self._routed = Segment(self._layer.routed, self._normed)
        self._pending = Exchange(self._routed.value)

    def experts(self) -> None:
        self._shared = [Segment(self._layer.mix, self._normed)] if self._layer.shared_up is not None else []
        self._experts = Segment(self._layer.experts, self._pending.wait())
        self._pending = Exchange(self._experts.value)

    def result(self) -> torch.Tensor:
        back = self._pending.wait()
        shared = [segment.value for segment in self._shared]
        self._returned = Segment(self._layer.returned, back, self._residual, *shared)
        return self._returned.value

    def start_back(self, gradient: torch.Tensor) -> None:
        back, self._residual_back, *self._shared_back = self._returned.back(gradient)
        self._pending = Exchange(back)

    def experts_back(self) -> None:
        (arrived,) = self._experts.back(self._pending.wait())
        self._pending = Exchange(arrived)
        self._normed_back = [
            segment.back(back)[0] for segment, back in zip(self._shared, self._shared_back, strict=True)
        ]

    def gradient(self) -> torch.Tensor:
        (normed,) = self._routed.back(self._pending.wait())
        normed = sum(self._normed_back, normed)
        (before,) = self._attention.back(self._residual_back, normed)
        return before


def step(layers: nn.ModuleList, batches: list[torch.Tensor]) -> torch.Tensor:
    """Forward and backward of both micro-batches; the loss."""
    passed: list[list[Micro]] = []
    states = batches
    for layer in layers:
        micros = [Micro(layer, x) for x in states]
        for micro in micros:
            micro.attention()
        for micro in micros:
            micro.experts()
        states = [micro.result() for micro in micros]
        passed.append(micros)
    ends = [Segment(lambda x: x.float().square().mean(), state) for state in states]
    gradients = [end.back(torch.ones_like(end.value))[0] for end in ends]
    summed = GradientSum(None)
    for layer, micros in zip(reversed(layers), reversed(passed), strict=True):
        for micro, gradient in zip(micros, gradients, strict=True):
            micro.start_back(gradient)
        for micro in micros:
            micro.experts_back()
        gradients = [micro.gradient() for micro in micros]
        summed.start(layer.held_by_all())
    summed.finish()
    return torch.stack([end.value for end in ends]).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--shape", choices=SHAPES, default="olmoe_1b_7b")
    arguments = parser.parse_args()
    device = start()
    ranks = dist.get_world_size()
    layers = nn.ModuleList(Layer(arguments.shape, ranks) for _ in range(arguments.layers)).to(device, torch.bfloat16)
    batches = half_batches(arguments.tokens, SHAPES[arguments.shape][-1], SHAPES[arguments.shape][0], device)
    train(arguments, device, lambda: step(layers, batches), layers.parameters())
    finish()


if __name__ == "__main__":
    main()
