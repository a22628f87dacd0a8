# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer with DistributedDataParallel and gradient accumulation. Knows nothing of any tuner.

    torchrun --nproc-per-node 2 transformer_ddp.py --steps 1000

8 layers of width 768 and an embedding: AllReduce calls of 9 to 170 MB, once in four micro-batches. Each layer is a CUDA
graph, because ranks that share a GPU are otherwise bound by the host (50 ms a step for one rank alone, with a standard
deviation of 5 ms). Prints one JSON line a step.
"""

from __future__ import annotations

import argparse
import contextlib
import time

import torch
from common import Turns, add_turns_option, finish, own_device, print_step, start
from torch import nn

WIDTH, HEADS, WORDS = 768, 12, 50_304


class Layer(nn.Module):
    """Attention and an MLP of a GPT's shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

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
    add_turns_option(parser)
    train(parser.parse_args())


def build(arguments: argparse.Namespace, device: torch.device) -> nn.Module:
    """The model; on a GPU its layers are graphs. Gradients exist from the start, so that the first step adds to them
    instead of taking over the graphs' own buffers."""
    torch.manual_seed(0)
    model = Transformer(arguments.layers).to(device)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    if device.type == "cuda":
        layers = tuple(model.layers)
        shape = (arguments.batch, arguments.length, WIDTH)
        samples = tuple((torch.randn(shape, device=device, requires_grad=True),) for _ in layers)
        with half(device):
            model.layers = nn.Sequential(*torch.cuda.make_graphed_callables(layers, samples))
    return model


def half(device: torch.device) -> torch.autocast:
    """Matrix products in bfloat16. What is cast inside a graph must not be kept for outside of it."""
    return torch.autocast(device.type, torch.bfloat16, cache_enabled=False)


def train(arguments: argparse.Namespace) -> None:
    """All steps; rank 0 prints."""
    device = own_device()
    model = build(arguments, device)  # before NCCL's threads exist: they may not call CUDA while a graph is recorded
    start()
    model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
    tokens = torch.randint(WORDS, (arguments.batch, arguments.length), device=device)
    turns = Turns(arguments.turns)
    for step in range(arguments.steps):
        turns.wait(step)
        began = time.perf_counter()
        for part in range(arguments.accumulate):
            is_last = part == arguments.accumulate - 1
            with contextlib.nullcontext() if is_last else model.no_sync():
                with half(device):
                    loss = model(tokens)
                loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        print_step(step, began, loss)
    finish()


if __name__ == "__main__":
    main()
