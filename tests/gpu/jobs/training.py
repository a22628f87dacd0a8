# SPDX-License-Identifier: Apache-2.0
"""Trains a small Llama-like model with FSDP2: enough of a job that gathers, computes and scatters. Knows no tuner.

    torchrun --nproc-per-node 8 training.py --steps 200
    torchrun --nproc-per-node 8 training.py --until FILE        # until FILE exists

Rank 0 prints one JSON line a step with its loss, and one at the end. A loss that is not finite ends every rank with
code 3. The same seed gives the same data and weights, so two runs can be compared step by step.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from world import any_rank_says, join

GO_ON, STOP, NOT_FINITE = 0, 1, 2
EXIT_NOT_FINITE = 3
VOCABULARY = 8192


class Block(nn.Module):
    """Attention and a gated feed-forward, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_feed = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.before_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        normed = self.before_feed(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Model(nn.Module):
    """Tokens in, the mean loss of guessing each next one out."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.blocks = nn.ModuleList(Block(width, max(1, width // 128)) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        guesses = self.head(self.norm(x))[:, :-1]
        return F.cross_entropy(guesses.flatten(0, 1).float(), tokens[:, 1:].flatten())


def sharded(arguments: argparse.Namespace, device: torch.device) -> Model:
    """The model, a shard on each rank: bf16 to compute with, sums in float32."""
    torch.manual_seed(arguments.seed)
    with device:
        model = Model(arguments.width, arguments.layers)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    return model


def say(**words: object) -> None:
    """One write for a line and its end: print() makes two where output is not buffered, and ranks share the pipe."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def train(model: Model, arguments: argparse.Namespace, device: torch.device) -> tuple[int, int]:
    """Steps until all ranks agree to stop; how many there were, and why they stopped."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    dice = torch.Generator().manual_seed(1000 * arguments.seed + dist.get_rank())
    step, verdict = 0, GO_ON
    while verdict == GO_ON:
        tokens = torch.randint(VOCABULARY // 8, (1, arguments.tokens), generator=dice).to(device)
        loss = model(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()
        if dist.get_rank() == 0:
            say(step=step, loss=value, time=round(time.time(), 3))
        step += 1
        enough = step >= arguments.steps or (arguments.until is not None and arguments.until.exists())
        verdict = any_rank_says(NOT_FINITE if not math.isfinite(value) else STOP if enough else GO_ON, device)
    return step, verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--until", type=Path, help="stop when this file exists")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=4096, help="per GPU and step")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    device = join()
    say(rank=dist.get_rank(), pid=os.getpid())
    steps, verdict = train(sharded(arguments, device), arguments, device)
    if dist.get_rank() == 0:
        say(steps=steps, world=dist.get_world_size(), finite=verdict != NOT_FINITE)
    time.sleep(1)  # whoever watches from outside has seen the last call before the communicator goes
    dist.destroy_process_group()
    sys.exit(EXIT_NOT_FINITE if verdict == NOT_FINITE else 0)


if __name__ == "__main__":
    main()
