# SPDX-License-Identifier: Apache-2.0
"""All-gathers beside matrix products, about 20 ms an iteration: the bare bones of sharded training. Knows no tuner.

    torchrun --nproc-per-node 2 overlap.py --until FILE

Rank 0 prints the time of every iteration in milliseconds as one JSON line at the end.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from world import any_rank_says, join

#: What each layer gathers, in units of --megabytes. They differ as in a model, so that an iteration can be told.
LAYERS = (1.5, 1, 1, 1)


class Model:
    """Products of one layer, beside the gathering of the next layer's weights."""

    def __init__(self, device: torch.device, width: int, products: int, megabytes: int) -> None:
        dtype = torch.bfloat16
        self.products = products
        self.weight = torch.randn(width, width, device=device, dtype=dtype) / width**0.5
        self.activation = torch.randn(width, width, device=device, dtype=dtype)
        world = dist.get_world_size()
        shares = [int(layer * megabytes * 1024 * 1024) // 2 // world for layer in LAYERS]
        self.shards = [torch.zeros(count, device=device, dtype=dtype) for count in shares]
        self.gathered = [torch.zeros(count * world, device=device, dtype=dtype) for count in shares]

    def iterate(self) -> None:
        """Forward only; the gather of a layer hides behind the products of the one before."""
        value = self.activation
        for shard, gathered in zip(self.shards, self.gathered, strict=True):
            gather = dist.all_gather_into_tensor(gathered, shard, async_op=True)
            for _ in range(self.products):
                value = value @ self.weight
            gather.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--until", type=Path, required=True, help="stop when this file exists")
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--products", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=64, help="what most all-gathers fill")
    parser.add_argument("--most", type=int, default=20_000, help="iterations")
    arguments = parser.parse_args()
    device = join()
    model = Model(device, arguments.width, arguments.products, arguments.megabytes)
    times: list[float] = []
    began = time.perf_counter()
    while not any_rank_says(int(arguments.until.exists() or len(times) >= arguments.most), device):
        model.iterate()
        now = time.perf_counter()
        times.append(round((now - began) * 1e3, 3))
        began = now
    if dist.get_rank() == 0:
        print(json.dumps({"ms": times}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
