# SPDX-License-Identifier: Apache-2.0
"""Trains layers split over tensor ranks, two half batches in turn, as Domino does. Knows nothing of any tuner.

    torchrun --nproc-per-node 8 tp_domino.py --shape llama3_8b --layers 8 --tokens 8192
    torchrun --nproc-per-node 8 tp_domino.py --data 2          # TP-4 x DP-2

While the all-reduce of one half is under way the other half computes::

    attention 0 | attention 1 | mlp 0     | mlp 1     |
                  reduce 0      reduce 1    reduce 0'   reduce 1'

and the same backwards. With ``--data`` gradients are summed over data ranks too, a layer at a time. The last all-reduce
of a pass stays exposed, as in the published code.
"""

from __future__ import annotations

import argparse

import torch
import torch.distributed as dist
from common import add_options, finish, start
from segments import GradientSum, Reduction, Segment, attend, half_batches, train
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

#: hidden, inner, heads, key heads, matrices that widen (2 = gated), sequence.
SHAPES = {
    "llama3_8b": (4096, 14336, 32, 8, 2, 4096),
    "phi2_2b": (2560, 10240, 32, 32, 1, 2048),
    "mpt_7b": (4096, 16384, 32, 32, 1, 2048),
    "tiny": (256, 512, 8, 8, 2, 64),
}


class Layer(nn.Module):
    """One rank's share of a transformer layer. Whatever it computes is a part of a sum over tensor ranks."""

    def __init__(self, shape: str, ranks: int) -> None:
        super().__init__()
        hidden, inner, heads, key_heads, widening, _ = SHAPES[shape]
        self.head = hidden // heads
        mine, keys = hidden // ranks, max(1, key_heads // ranks) * self.head
        self.split = [mine, keys, keys]
        self.widening = widening
        self.first, self.second = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.qkv = nn.Linear(hidden, sum(self.split), bias=False)
        self.out = nn.Linear(mine, hidden, bias=False)
        self.up = nn.Linear(hidden, widening * inner // ranks, bias=False)
        self.down = nn.Linear(inner // ranks, hidden, bias=False)

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        """Of the normed input: our heads' part."""
        return self.out(attend(*self.qkv(x).split(self.split, -1), self.head))

    def mlp(self, x: torch.Tensor) -> torch.Tensor:
        """Of the normed input: our columns' part."""
        wide = self.up(x)
        if self.widening == 2:
            gate, wide = wide.chunk(2, -1)
            return self.down(nn.functional.silu(gate) * wide)
        return self.down(nn.functional.gelu(wide))

    def between(self, x: torch.Tensor, attended: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The residual after attention, and its norm."""
        residual = x + attended
        return residual, self.second(residual)


class Half:
    """One half batch on its way through one layer, and back."""

    def __init__(self, layer: Layer, x: torch.Tensor, group: dist.ProcessGroup) -> None:
        self._layer, self._x, self._group = layer, x, group

    # -- forward: each returns with its all-reduce under way

    def attention(self) -> None:
        self._norm = Segment(self._layer.first, self._x)
        self._attention = Segment(self._layer.attention, self._norm.value)
        self._pending = Reduction(self._attention.value, self._group)

    def mlp(self) -> None:
        self._between = Segment(self._layer.between, self._x, self._pending.wait())
        self._residual, normed = self._between.values
        self._mlp = Segment(self._layer.mlp, normed)
        self._pending = Reduction(self._mlp.value, self._group)

    def result(self) -> torch.Tensor:
        return self._residual + self._pending.wait()

    # -- backward, in the opposite order

    def mlp_back(self, gradient: torch.Tensor) -> None:
        self._gradient = gradient
        (normed,) = self._mlp.back(gradient)
        self._pending = Reduction(normed, self._group)

    def attention_back(self) -> None:
        self._through, attended = self._between.back(self._gradient, self._pending.wait())
        (normed,) = self._attention.back(attended)
        self._pending = Reduction(normed, self._group)

    def gradient(self) -> torch.Tensor:
        (before,) = self._norm.back(self._pending.wait())
        return self._through + before


class Domino:
    """The schedule over all layers."""

    def __init__(self, layers: nn.ModuleList, tensor: dist.ProcessGroup, data: dist.ProcessGroup | None) -> None:
        self._layers, self._tensor, self._data = layers, tensor, data

    def step(self, batches: list[torch.Tensor]) -> torch.Tensor:
        """Forward and backward of both halves; the loss."""
        passed: list[list[Half]] = []
        states = batches
        for layer in self._layers:
            halves = [Half(layer, x, self._tensor) for x in states]
            for half in halves:
                half.attention()
            for half in halves:
                half.mlp()
            states = [half.result() for half in halves]
            passed.append(halves)
        ends = [Segment(lambda x: x.float().square().mean(), state) for state in states]
        self._back(passed, [end.back(torch.ones_like(end.value))[0] for end in ends])
        return torch.stack([end.value for end in ends]).mean()

    def _back(self, passed: list[list[Half]], gradients: list[torch.Tensor]) -> None:
        summed = GradientSum(self._data) if self._data is not None else None
        for layer, halves in zip(reversed(self._layers), reversed(passed), strict=True):
            for half, gradient in zip(reversed(halves), reversed(gradients), strict=True):
                half.mlp_back(gradient)
            for half in reversed(halves):
                half.attention_back()
            gradients = [half.gradient() for half in halves]
            if summed is not None:
                summed.start(layer.parameters())
        if summed is not None:
            summed.finish()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--shape", choices=SHAPES, default="llama3_8b")
    parser.add_argument("--data", type=int, default=1, help="data-parallel replicas; the rest is tensor parallel")
    arguments = parser.parse_args()
    device = start()
    ranks = dist.get_world_size() // arguments.data
    mesh = init_device_mesh(device.type, (arguments.data, ranks), mesh_dim_names=("data", "tensor"))
    layers = nn.ModuleList(Layer(arguments.shape, ranks) for _ in range(arguments.layers)).to(device, torch.bfloat16)
    hidden, sequence = SHAPES[arguments.shape][0], SHAPES[arguments.shape][-1]
    batches = half_batches(arguments.tokens, sequence, hidden, device)
    schedule = Domino(layers, mesh.get_group("tensor"), mesh.get_group("data") if arguments.data > 1 else None)
    train(arguments, device, lambda: schedule.step(batches), layers.parameters())
    finish()


if __name__ == "__main__":
    main()
