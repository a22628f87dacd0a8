# SPDX-License-Identifier: Apache-2.0
"""Communication beside computation, over and over: how long does each take? Knows nothing of any tuner.

    torchrun --nproc-per-node 8 contention.py --pattern ffn        # an AllReduce of 32 MB beside a feed-forward layer
    torchrun --nproc-per-node 8 contention.py --pattern two        # two AllReduces beside seven products

One JSON line an iteration on rank 0: communication x (each collective's, ms; the rank that waited least), computation y
and all of it z (the slowest rank). Collectives run on a stream of their own, timed by events around them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import torch
import torch.distributed as dist
from common import clocks, finish, start
from gemms import product

Timed = list[tuple["Mark", "Mark"]]


class Mark:
    """A moment on the current stream; on a machine without a GPU, of the host."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        self._host = clocks()["at_ns"]
        if self._event is not None:
            self._event.record()

    def until(self, later: Mark) -> float:
        """Milliseconds; both must have happened."""
        if self._event is not None and later._event is not None:
            return self._event.elapsed_time(later._event)
        return (later._host - self._host) / 1e6


class Pattern:
    """Collectives and products of one iteration, started together."""

    def __init__(self, arguments: argparse.Namespace, device: torch.device) -> None:
        self._device, self._repeat = device, arguments.repeat
        self._multiply = product(arguments.gemm)
        self._stream = torch.cuda.Stream(device, priority=-1) if device.type == "cuda" else None
        sizes = [arguments.bytes] if arguments.pattern == "ffn" else [arguments.bytes, arguments.bytes * 4]
        self._buffers = [torch.ones(size // 2, device=device, dtype=torch.bfloat16) for size in sizes]
        width, inner = arguments.width, arguments.inner
        random: Callable[[int, int], torch.Tensor] = lambda m, n: torch.randn(m, n, device=device, dtype=torch.bfloat16)  # noqa: E731
        self._x, self._up, self._down = random(arguments.tokens, width), random(width, inner), random(inner, width)
        self._products = 2 if arguments.pattern == "ffn" else 7

    def run(self) -> tuple[list[float], float, float]:
        """(x of each collective, y, z), ms, of this rank."""
        begin = Mark(self._device)
        collectives = self._communicate()
        compute = self._compute()
        if self._stream is not None:
            torch.cuda.current_stream().wait_stream(self._stream)
        end = Mark(self._device)
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        each = [before.until(after) for before, after in collectives]
        count = len(self._buffers)
        return [sum(each[i::count]) for i in range(count)], compute[0].until(compute[1]), begin.until(end)

    def _communicate(self) -> Timed:
        if self._stream is None:
            return [self._reduce(buffer) for _ in range(self._repeat) for buffer in self._buffers]
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            return [self._reduce(buffer) for _ in range(self._repeat) for buffer in self._buffers]

    def _reduce(self, buffer: torch.Tensor) -> tuple[Mark, Mark]:
        before = Mark(self._device)
        dist.all_reduce(buffer, op=dist.ReduceOp.MAX)
        return before, Mark(self._device)

    def _compute(self) -> tuple[Mark, Mark]:
        before, narrow, wide = Mark(self._device), self._x, self._x
        for _ in range(self._repeat):
            for number in range(self._products):
                if number % 2 == 0:
                    wide = self._multiply(narrow, self._up)
                else:
                    narrow = self._multiply(wide, self._down)
        return before, Mark(self._device)


def over_ranks(own: tuple[list[float], float, float], device: torch.device) -> tuple[list[float], float, float]:
    """x of the rank that waited least, y and z of the slowest."""
    x, y, z = own
    least, most = torch.tensor(x, device=device), torch.tensor([y, z], device=device)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    slowest = most.tolist()
    return least.tolist(), slowest[0], slowest[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pattern", choices=("ffn", "two"), default="ffn")
    parser.add_argument("--gemm", choices=("library", "waves"), default="library")
    parser.add_argument("--bytes", type=int, default=32 << 20, help="of a collective; of the other of two, four times")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--inner", type=int, default=14336)
    parser.add_argument("--repeat", type=int, default=4, help="of everything, within an iteration")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    device = start()
    pattern = Pattern(arguments, device)
    for step in range(arguments.steps):
        x, y, z = over_ranks(pattern.run(), device)
        if dist.get_rank() == 0:
            line = {"step": step, "ms": round(z, 4), "x_ms": [round(v, 4) for v in x], "y_ms": round(y, 4), **clocks()}
            print(json.dumps(line), flush=True)
    finish()


if __name__ == "__main__":
    main()
