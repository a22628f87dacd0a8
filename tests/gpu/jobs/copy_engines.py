# SPDX-License-Identifier: Apache-2.0
"""Gathers of parameters by copy engines beside products, as FSDP does them with symmetric memory, and AllReduces of
NCCL. The last steps are traced by torch.profiler: `--trace FOLDER`, one file a rank."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory
from torch import Tensor
from torch.profiler import ProfilerActivity, profile, schedule

HIDDEN, ROWS, LAYERS = 4096, 4096, 6
#: Bytes of a step's AllReduces: so many shapes that one step is no layer of tensor parallelism.
REDUCED = tuple(2 * (place << 18) for place in range(1, 11))
STEPS, TRACED = 700, 12


class Job:
    """One rank."""

    def __init__(self, device: torch.device) -> None:
        group, ranks = dist.group.WORLD, dist.get_world_size()
        self.name, bfloat16 = group.group_name, torch.bfloat16
        shape = (HIDDEN // ranks, HIDDEN)
        self.shards = [symmetric_memory.empty(*shape, device=device, dtype=bfloat16) for _ in range(LAYERS)]
        for shard in self.shards:
            symmetric_memory.rendezvous(shard, self.name)
            shard.normal_()
        self.x = torch.randn(ROWS, HIDDEN, device=device, dtype=bfloat16)
        self.reduced = [torch.ones(size // 2, device=device, dtype=bfloat16) for size in REDUCED]
        self.side = torch.cuda.Stream()

    def gather(self, layer: int) -> tuple[Tensor, torch.cuda.Event]:
        """A layer's parameters, on a stream of their own."""
        with torch.cuda.stream(self.side):
            self.side.wait_stream(torch.cuda.current_stream())
            weight = torch.ops.symm_mem._low_contention_all_gather(self.shards[layer], self.name)
            event = torch.cuda.Event()
            event.record(self.side)
        return weight, event

    def step(self) -> None:
        """Each layer's parameters come while the one before multiplies."""
        x, coming = self.x, self.gather(0)
        for layer in range(LAYERS):
            weight, event = coming
            torch.cuda.current_stream().wait_event(event)
            if layer + 1 < LAYERS:
                coming = self.gather(layer + 1)
            x = (x @ weight).mul_(0.01)
            x = (x @ weight).mul_(0.01)
        for one in self.reduced:
            dist.all_reduce(one)
            one.mul_(0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, required=True)
    options = parser.parse_args()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    job = Job(device)
    for number in range(STEPS):  # the same on all ranks
        job.step()
        if number % 20 == 0:
            torch.cuda.synchronize()
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    with profile(activities=activities, schedule=schedule(wait=1, warmup=3, active=TRACED)) as profiler:
        for _ in range(4 + TRACED):
            job.step()
            torch.cuda.synchronize()
            profiler.step()
    options.trace.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(options.trace / f"rank{dist.get_rank()}.json"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
