# SPDX-License-Identifier: Apache-2.0
"""Every collective that has a tuner, on integer-valued data, each result compared with what it must be.

    torchrun --nproc-per-node 2 mixed.py --iterations 200
    torchrun --nproc-per-node 2 mixed.py --until FILE        # until FILE exists

Rank 0 prints a JSON line every 50 iterations and one at the end. A wrong element ends every rank with code 3 and a line
that names it. Knows nothing of any tuner.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from operations import OPERATIONS, VALUES, Operation, shift
from world import any_rank_says, join, traced

GO_ON, STOP, WRONG = 0, 1, 2
EXIT_WRONG = 3


class Checker:
    """Runs the operations of one iteration after another and counts the elements that are not what they must be."""

    def __init__(self, device: torch.device) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.wrong = torch.zeros(len(OPERATIONS), dtype=torch.int64, device=device)
        longest = max(op.count for op in OPERATIONS) * self.world + VALUES
        sequence = torch.arange(longest, device=device) % VALUES
        self.sequence = {dtype: sequence.to(getattr(torch, dtype)) for dtype in ("bfloat16", "float32")}

    def data(self, op: Operation, start: int, count: int) -> torch.Tensor:
        """``count`` values of 0, 1, ... 7, 0, ... from place ``start`` on."""
        return self.sequence[op.dtype][start % VALUES : start % VALUES + count]

    def total(self, op: Operation, index: int, iteration: int, offset: int = 0) -> torch.Tensor:
        """The sum over the ranks' data."""
        parts = [self.data(op, shift(index, rank, iteration) + offset, op.count) for rank in range(self.world)]
        return torch.stack(parts).float().sum(0).to(parts[0].dtype)

    def iterate(self, iteration: int) -> None:
        """Every operation but the last, which tells the ranks whether to go on."""
        for index, op in enumerate(OPERATIONS[:-1]):
            result, expected = getattr(self, op.function)(op, index, iteration)
            self.wrong[index] += (result != expected).sum()

    def own(self, op: Operation, index: int, iteration: int, count: int) -> torch.Tensor:
        """This rank's data."""
        return self.data(op, shift(index, self.rank, iteration), count)

    # Each returns (what came, what must come).

    def allgather(self, op: Operation, index: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
        mine = self.own(op, index, iteration, op.count)
        result = torch.full((op.count * self.world,), -1, dtype=mine.dtype, device=mine.device)
        dist.all_gather_into_tensor(result, mine)
        return result, torch.cat([self.data(op, shift(index, r, iteration), op.count) for r in range(self.world)])

    def reducescatter(self, op: Operation, index: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
        mine = self.own(op, index, iteration, op.count * self.world)
        result = torch.full((op.count,), -1, dtype=mine.dtype, device=mine.device)
        dist.reduce_scatter_tensor(result, mine)
        return result, self.total(op, index, iteration, offset=self.rank * op.count)

    def allreduce(self, op: Operation, index: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
        result = self.own(op, index, iteration, op.count).clone()
        dist.all_reduce(result)
        return result, self.total(op, index, iteration)

    def broadcast(self, op: Operation, index: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
        root = iteration % self.world
        result = self.own(op, index, iteration, op.count).clone()
        dist.broadcast(result, root)
        return result, self.data(op, shift(index, root, iteration), op.count)

    def reduce(self, op: Operation, index: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
        root = iteration % self.world
        result = self.own(op, index, iteration, op.count).clone()
        dist.reduce(result, root)
        return (result, self.total(op, index, iteration)) if self.rank == root else (result, result)

    def mistakes(self) -> dict[str, int]:
        """How many elements of which operations were wrong so far, on this rank."""
        counts = self.wrong.tolist()
        return {f"{op.function} #{i}": counts[i] for i, op in enumerate(OPERATIONS) if counts[i]}


def say(**words: object) -> None:
    """One write for a line and its end: print() makes two where output is not buffered, and ranks share the pipe."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def run(checker: Checker, arguments: argparse.Namespace, device: torch.device) -> tuple[int, int]:
    """Iterations until all ranks agree to stop; returns how many there were, and why they stopped."""
    iteration, verdict = 0, GO_ON
    while verdict == GO_ON:
        checker.iterate(iteration)
        mistakes = checker.mistakes()
        enough = iteration + 1 >= arguments.iterations or (arguments.until is not None and arguments.until.exists())
        verdict = any_rank_says(WRONG if mistakes else STOP if enough else GO_ON, device)
        if mistakes:
            first_call = iteration * len(OPERATIONS)
            say(wrong=mistakes, rank=checker.rank, iteration=iteration, first_call=first_call)
        iteration += 1
        if checker.rank == 0 and iteration % 50 == 0:
            say(iteration=iteration, time=time.time())
        time.sleep(arguments.pause_ms / 1e3)
    return iteration, verdict


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=1_000_000)
    parser.add_argument("--until", type=Path, help="stop when this file exists")
    parser.add_argument("--pause-ms", type=float, default=0.0, help="after each iteration")
    parser.add_argument("--trace", type=Path, help="folder for torch.profiler traces, one a rank")
    arguments = parser.parse_args()
    device = join()
    checker = Checker(device)
    say(rank=checker.rank, pid=os.getpid())
    with traced(arguments.trace):
        iterations, verdict = run(checker, arguments, device)
    if checker.rank == 0:
        calls = iterations * len(OPERATIONS)
        say(iterations=iterations, calls=calls, world=checker.world, exact=verdict != WRONG)
    time.sleep(1)  # whoever watches from outside has seen the last call before the communicator goes
    dist.destroy_process_group()
    sys.exit(EXIT_WRONG if verdict == WRONG else 0)


if __name__ == "__main__":
    main()
