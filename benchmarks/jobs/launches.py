# SPDX-License-Identifier: Apache-2.0
"""Launches tiny kernels and nothing else: a step's time is the host's cost of that many launches.

torchrun --nproc-per-node 2 launches.py --tokens 4096 --steps 400

One small all-reduce a step, so that NCCL is at work in the process as in any job; the rest is bound by the CPU. What a
profiler leaves in the way of a launch shows here first: a step of N launches that takes N x 100 ns longer.
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
    arguments = parser.parse_args()
    device = start()
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
        tiny[0].item()
        took = (time.perf_counter() - began) * 1e3
        if dist.get_rank() == 0:
            print(json.dumps({"step": step, "ms": round(took, 4), **clocks(), "loss": value}), flush=True)
    finish()


if __name__ == "__main__":
    main()
