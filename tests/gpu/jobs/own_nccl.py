# SPDX-License-Identifier: Apache-2.0
"""A libnccl of any release, driven without torch.distributed: one process, every GPU a rank.

    python own_nccl.py /path/to/libnccl.so.2 --gpus 2 --iterations 20

Torch only lends memory, streams and its profiler. Each iteration gathers and sums integer-valued data and checks every
element. Prints one JSON line: version, wrong elements, and the grids of each collective's kernels, in launch order.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

FLOAT32, SUM = 7, 0
COUNT = 4 << 20  # of one rank: 16 MiB
VALUES = 8


class Nccl:
    """The few functions of the library that are needed."""

    def __init__(self, path: str, gpus: int) -> None:
        self.library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_DEEPBIND)  # torch has brought one of its own
        self.comms = (ctypes.c_void_p * gpus)()
        devices = (ctypes.c_int * gpus)(*range(gpus))
        self.check("ncclCommInitAll", self.comms, gpus, devices)

    def check(self, name: str, *arguments: Any) -> None:
        """Calls a function; anything but success ends the job with its name."""
        result = getattr(self.library, name)(*arguments)
        if result != 0:
            raise SystemExit(f"{name} returned {result}")

    def version(self) -> int:
        """23007 is 2.30.7."""
        found = ctypes.c_int()
        self.check("ncclGetVersion", ctypes.byref(found))
        return found.value

    def all_ranks(self, name: str, send: list[torch.Tensor], receive: list[torch.Tensor], *reduction: int) -> None:
        """One collective on every GPU's own stream, in one group."""
        self.check("ncclGroupStart")
        for rank, (source, target) in enumerate(zip(send, receive, strict=True)):
            stream = ctypes.c_void_p(torch.cuda.current_stream(rank).cuda_stream)
            pointers = ctypes.c_void_p(source.data_ptr()), ctypes.c_void_p(target.data_ptr())
            comm = ctypes.c_void_p(self.comms[rank])
            self.check(name, *pointers, ctypes.c_size_t(COUNT), FLOAT32, *reduction, comm, stream)
        self.check("ncclGroupEnd")


def iterate(nccl: Nccl, gpus: int) -> int:
    """One AllGather and one AllReduce; how many elements came out wrong."""
    values = [(torch.arange(COUNT, device=f"cuda:{rank}") + rank) % VALUES for rank in range(gpus)]
    mine = [value.float() for value in values]
    gathered = [torch.full((COUNT * gpus,), -1.0, device=f"cuda:{rank}") for rank in range(gpus)]
    summed = [torch.full((COUNT,), -1.0, device=f"cuda:{rank}") for rank in range(gpus)]
    nccl.all_ranks("ncclAllGather", mine, gathered)
    nccl.all_ranks("ncclAllReduce", mine, summed, SUM)
    for rank in range(gpus):
        torch.cuda.synchronize(rank)
    everything = torch.cat([part.cpu() for part in mine])
    total = torch.stack([part.cpu() for part in mine]).sum(0)
    return int(
        sum((g.cpu() != everything).sum() + (s.cpu() != total).sum() for g, s in zip(gathered, summed, strict=True))
    )


def grids(trace: Path) -> dict[str, list[int]]:
    """Blocks of NCCL's kernels by collective, in the order they began."""
    events = json.loads(trace.read_text())["traceEvents"]
    kernels = sorted((e for e in events if e.get("cat") == "kernel" and "nccl" in e["name"]), key=lambda e: e["ts"])
    words = ("AllGather", "AllReduce")
    return {word: [int(e["args"]["grid"][0]) for e in kernels if word in e["name"]] for word in words}


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser()
    parser.add_argument("library")
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=20)
    asked = parser.parse_args()
    nccl = Nccl(asked.library, asked.gpus)
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        wrong = sum(iterate(nccl, asked.gpus) for _ in range(asked.iterations))
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.json")
        recorded.export_chrome_trace(str(trace))
        print(json.dumps({"version": nccl.version(), "wrong": wrong, "grids": grids(trace)}), flush=True)


if __name__ == "__main__":
    main()
