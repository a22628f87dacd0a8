# SPDX-License-Identifier: Apache-2.0
"""Launches and nothing else: a step's time is the host's cost of that many launches.

torchrun --nproc-per-node 2 launches.py --tokens 4096 --steps 400
torchrun --nproc-per-node 2 launches.py --tokens 0 --collectives 64 --steps 2000

One small all-reduce a step, so that NCCL is at work in the process as in any job; the rest is bound by the CPU: tiny
kernels, or collectives of 4 MB on two communicators, ``launched_ms`` until the last one is launched. What a profiler
leaves in the way of a launch shows here first: a step of N launches that takes N x 100 ns longer.
"""

from __future__ import annotations

import argparse
import json
import time

import torch
import torch.distributed as dist
from common import Profiles, Turns, add_options, clocks, finish, start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--collectives", type=int, default=0, help="a step, beside --tokens tiny kernels")
    arguments = parser.parse_args()
    device = start()
    collectives = Collectives(device) if arguments.collectives else None
    profiles, turns = Profiles(arguments, device), Turns(arguments.turns)
    tiny, total = torch.zeros(8, device=device), torch.ones(1, device=device)
    for step in range(arguments.steps):
        turns.wait(step)
        profiles.step(step)
        dist.all_reduce(total)
        value = total.fill_(1).item()
        began = time.perf_counter()
        for _ in range(arguments.tokens):
            tiny.add_(1)
        if collectives is not None:
            collectives.launch(arguments.collectives)
        launched = (time.perf_counter() - began) * 1e3
        tiny[0].item()  # the stream waits for its collectives
        took = (time.perf_counter() - began) * 1e3
        if dist.get_rank() == 0:
            times = {"ms": round(took, 4), "launched_ms": round(launched, 4)}
            print(json.dumps({"step": step, **times, **clocks(), "loss": value}), flush=True)
    finish()


class Collectives:
    """An AllGather and a ReduceScatter on one communicator, an AllReduce on another after each: 4 MB each."""

    def __init__(self, device: torch.device) -> None:
        ranks, elements = dist.get_world_size(), 2 << 20
        self._second = dist.new_group(list(range(ranks)))
        self._whole = torch.zeros(elements - elements % ranks, dtype=torch.bfloat16, device=device)
        self._part = self._whole[: len(self._whole) // ranks].clone()
        self._reduced = self._whole.clone()

    def launch(self, count: int) -> None:
        """So many calls; nothing is waited for."""
        for number in range(count):
            if number % 2:
                dist.all_reduce(self._reduced, group=self._second)
            elif number % 4:
                dist.reduce_scatter_tensor(self._part, self._whole)
            else:
                dist.all_gather_into_tensor(self._whole, self._part)


if __name__ == "__main__":
    main()
