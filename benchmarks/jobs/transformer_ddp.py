# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer with DistributedDataParallel and gradient accumulation. Knows nothing of any tuner.

    torchrun --nproc-per-node 2 transformer_ddp.py --steps 1000

8 layers of width 768 and an embedding: AllReduce calls of 9 to 170 MB, once in four micro-batches. Prints one JSON line
a step.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time

import torch
import torch.distributed as dist
from common import finish, start
from torch import nn

WIDTH, HEADS, WORDS = 768, 12, 50_304


class Transformer(nn.Module):
    """Embedding, encoder layers, and the embedding again as the output layer."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        nn.init.normal_(self.embedding.weight, std=0.02)  # of size 1 the loss diverges
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

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
        value = loss.item()
        if dist.get_rank() == 0:
            took = (time.perf_counter() - began) * 1e3
            print(json.dumps({"step": step, "ms": round(took, 3), "loss": value}), flush=True)
    finish()


if __name__ == "__main__":
    main()
