# SPDX-License-Identifier: Apache-2.0
"""The operators of lagom.parallel on one GPU a rank, without torchrun: `python parallel_operators.py --ranks 4 --calls
1000`. Numbers are small integers, so each result is exact; random delays on the caller's stream and on those of copies
bring ranks out of step, so that a buffer that is read too early or written too soon shows. It ends with a line of
JSON."""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import lagom.parallel as parallel
from lagom.parallel import symmetric_pool

#: Rows of all ranks for each of them, inner size, columns: a copy that is longer than its product, and the reverse.
SHAPES = ((64, 2048, 128), (128, 1024, 2048), (512, 512, 256))
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
LONGEST_CYCLES = 400_000  # 0.2 ms
NAMES = ("plain", "looped", "fused", "copies", "copies_two_streams")


class Case:
    """One call with its expected result. Inputs differ from call to call: ``number`` is added to some of them."""

    def __init__(self, name: str, shape: tuple[int, int, int], dtype: torch.dtype, pooled: bool) -> None:
        self.name, self.group = name, dist.group.WORLD
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        rows, inner, columns = shape
        draw = torch.Generator(device="cuda").manual_seed(rows)  # the same on all ranks

        def integers(*size: int) -> Tensor:
            return (torch.rand(size, generator=draw, device="cuda") < 0.02).to(dtype)

        self.everything = integers(self.ranks * rows, inner)
        self.weights = [integers(inner, columns) for _ in range(self.ranks)]
        self.parts = [integers(self.ranks * rows, inner) for _ in range(self.ranks)]
        shape_of_x = (rows, inner)
        self.x = (
            parallel.empty(shape_of_x, dtype, self.group) if pooled else torch.empty(shape_of_x, dtype=dtype).cuda()
        )
        self.shift = torch.zeros((), dtype=dtype, device="cuda")

    def expected(self, number: int) -> tuple[Tensor, Tensor]:
        """Of both operators: small numbers of ones, exact in every dtype."""
        gathered = (self.everything.float() + number) @ self.weights[self.rank].float()
        total = sum(part.float() @ weight.float() for part, weight in zip(self.parts, self.weights, strict=True))
        return gathered, (number + 1) * total.chunk(self.ranks)[self.rank]

    def run(self) -> tuple[Tensor, Tensor]:
        """Both operators with what ``shift`` holds."""
        torch.add(self.everything.chunk(self.ranks)[self.rank], self.shift, out=self.x)
        (product,) = parallel.all_gather_matmul(self.x, [self.weights[self.rank]], self.group, implementation=self.name)
        self.x.fill_(-100)  # what a slow peer must have read by now
        part = self.parts[self.rank] * (self.shift + 1)
        own = parallel.matmul_reduce_scatter(part, self.weights[self.rank], self.group, implementation=self.name)
        part.fill_(-100)
        return product, own


def delay(chance: random.Random) -> None:
    """On the caller's stream, and on those that copies use."""
    spaces = symmetric_pool._workspaces.values()
    for stream in [torch.cuda.current_stream(), *(s for space in spaces for s in (space.copier, space.second))]:
        if chance.random() < 0.5:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(chance.randrange(LONGEST_CYCLES))


def wrong_calls(case: Case, calls: int, chance: random.Random, run: Callable[[], tuple[Tensor, Tensor]]) -> int:
    """How many of so many calls gave a wrong number. The host does not wait between calls."""
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    expected = [case.expected(number) for number in (0, 1)]
    for call in range(calls):
        delay(chance)
        case.shift.fill_(call % 2)
        for found, right in zip(run(), expected[call % 2], strict=True):
            wrong += (found.float() != right).any()
    return int(wrong)


def captured(case: Case) -> Callable[[], tuple[Tensor, Tensor]]:
    """The same as a CUDA graph, which holds two calls of each operator, after the choice was made."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        case.run()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        case.run()
        results = case.run()

    def replay() -> tuple[Tensor, Tensor]:
        graph.replay()
        return results

    return replay


def work(rank: int, options: argparse.Namespace, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), LAGOM_CACHE="off")
    torch.cuda.set_device(rank)
    device = torch.device("cuda", rank)
    limit = timedelta(seconds=60)
    dist.init_process_group("nccl", rank=rank, world_size=options.ranks, device_id=device, timeout=limit)
    chance = random.Random(rank)  # every rank is late at other calls
    wrong: dict[str, int] = {}
    for number, name in enumerate(options.names.split(",")):
        for place, shape in enumerate(SHAPES):
            dtype, pooled = DTYPES[(number + place) % len(DTYPES)], place == 1
            case = Case(name, shape, dtype, pooled)
            about = f"{name} {shape} {str(dtype).removeprefix('torch.')}{' pooled' if pooled else ''}"
            wrong[about] = wrong_calls(case, options.calls // len(SHAPES), chance, case.run)
            print(f"rank {rank}: {about}: {wrong[about]} wrong", file=sys.stderr, flush=True)
            wrong[f"{about} graph"] = wrong_calls(case, options.calls // 10, chance, captured(case))
    case = Case("auto", SHAPES[0], torch.bfloat16, False)
    wrong["auto"] = wrong_calls(case, 10, chance, case.run)
    torch.cuda.synchronize()
    every = [None] * options.ranks
    dist.all_gather_object(every, wrong)
    chosen = [(choice.chosen, choice.source, choice.refusals, choice.times_ns) for choice in parallel.choices()]
    held = parallel.memory()
    parallel.release()
    if rank == 0:
        print(json.dumps({"wrong": every, "choices": chosen, "held": held, "after": parallel.memory()}), flush=True)
    dist.barrier()
    os._exit(0)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--ranks", type=int, default=torch.cuda.device_count())
    options.add_argument("--calls", type=int, default=1000)
    options.add_argument("--names", default=",".join(NAMES), help="of implementations, commas between")
    options.add_argument("--port", type=int, default=29531)
    chosen = options.parse_args()
    mp.spawn(work, (chosen, chosen.port), nprocs=chosen.ranks)


if __name__ == "__main__":
    main()
