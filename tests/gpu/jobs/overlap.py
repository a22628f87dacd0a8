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

LAYERS = 4


class Model:
    """``LAYERS`` products, each beside the gathering of the next layer's weights."""

    def __init__(self, device: torch.device, width: int, products: int, megabytes: int) -> None:
        dtype = torch.bfloat16
        self.products = products
        self.weight = torch.randn(width, width, device=device, dtype=dtype) / width**0.5
        self.activation = torch.randn(width, width, device=device, dtype=dtype)
        whole = megabytes * 1024 * 1024 // 2
        self.shard = torch.zeros(whole // dist.get_world_size(), device=device, dtype=dtype)
        self.gathered = torch.zeros(self.shard.numel() * dist.get_world_size(), device=device, dtype=dtype)

    def iterate(self) -> None:
        """Forward only; the gather of a layer hides behind the products of the one before."""
        value = self.activation
        for _ in range(LAYERS):
            gather = dist.all_gather_into_tensor(self.gathered, self.shard, async_op=True)
            for _ in range(self.products):
                value = value @ self.weight
            gather.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--until", type=Path, required=True, help="stop when this file exists")
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--products", type=int, default=3)
    parser.add_argument("--megabytes", type=int, default=64, help="what one all-gather fills")
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
