# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer with DistributedDataParallel and gradient accumulation. Knows nothing of any tuner.

    torchrun --nproc-per-node 2 transformer_ddp.py --steps 1000

8 layers of width 768 and an embedding: AllReduce calls of 9 to 170 MB, once in four micro-batches. Prints one JSON line
a step.
"""

from __future__ import annotations

import argparse
import contextlib
import time

import torch
from common import finish, print_step, start
from torch import nn

WIDTH, HEADS, WORDS = 768, 12, 50_304


class Layer(nn.Module):
    """Attention and an MLP of a GPT's shape. Few operations: PyTorch's own encoder layer is bound by the host here."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, width) to the same."""
        parts = self.qkv(self.first(x)).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Transformer(nn.Module):
    """Embedding, layers, and the embedding again as the output layer."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.02)  # of size 1 the loss diverges
        self.layers = nn.Sequential(*(Layer() for _ in range(layers)))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, length) to one number."""
        out = self.layers(self.embedding(tokens))
        return (out @ self.embedding.weight[:1024].T).float().square().mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--accumulate", type=int, default=4)
    parser.add_argument("--steps", type=int, default=1000)
    train(parser.parse_args())


def train(arguments: argparse.Namespace) -> None:
    """All steps; rank 0 prints."""
    device = start()
    model = nn.parallel.DistributedDataParallel(
        Transformer(arguments.layers).to(device), gradient_as_bucket_view=True
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    tokens = torch.randint(WORDS, (arguments.batch, arguments.length), device=device)
    for step in range(arguments.steps):
        began = time.perf_counter()
        for part in range(arguments.accumulate):
            is_last = part == arguments.accumulate - 1
            with contextlib.nullcontext() if is_last else model.no_sync():
                with torch.autocast(device.type, torch.bfloat16):
                    loss = model(tokens)
                loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print_step(step, began, loss)
    finish()


if __name__ == "__main__":
    main()
