# SPDX-License-Identifier: Apache-2.0
"""A block of lagom.parallel's operators beside what jobs do: CUDA graphs, torch.compile, checkpointing, memory, and a
rank that is killed; and every schedule of strands. `python parallel_blocks.py --ranks 4 --parts graph,killed`; `--gloo`
rehearses it on the CPU. Each part has processes of its own, without an agent, so one that fails hides no other. Numbers
are small integers in float32, so each result is exact. It ends with a line of JSON: by part, exit codes and
seconds."""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import lagom.parallel as parallel
from lagom.parallel import choosing, host_lead, symmetric_pool
from lagom.parallel.strands import SCHEDULES, AllGather, ReduceScatter, Strands, linear

ROWS, HIDDEN, MLP = 64, 64, 32  # of a rank
REPLAYS = 6
LATEST_CYCLES, BUSY_CYCLES = 400_000, 10_000_000  # 0.2 ms, 5 ms
STEPS_LOOKED = 210  # of four calls
LIMIT_S, KILLED_LIMIT_S = 90, 20  # of the process group
VICTIM, PATIENCE_S = 1, 60.0
PARTS: dict[str, Callable[[Rank], None]] = {}


def part(function: Callable[[Rank], None]) -> Callable[[Rank], None]:
    PARTS[function.__name__] = function
    return function


def block(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, way: str) -> Tensor:
    first, second = parallel.all_gather_matmul(x, [gate, up], dist.group.WORLD, implementation=way)
    return parallel.matmul_reduce_scatter(torch.relu(first) * second, down, dist.group.WORLD, implementation=way)


class Rank:
    """One rank with its tensors. ``way``: what is tested, copies; plain where there is no GPU."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.ready = Path(options.folder) / f"ready{options.rank}"
        self.is_cuda = not options.gloo
        self.device = torch.device("cuda", options.rank) if self.is_cuda else torch.device("cpu")
        self.way = "copies" if self.is_cuda else "plain"
        if self.is_cuda:
            torch.cuda.set_device(self.device)
        limit = timedelta(seconds=KILLED_LIMIT_S if options.part == "killed" else LIMIT_S)
        backend, own = ("nccl", self.device) if self.is_cuda else ("gloo", None)
        place = {"rank": options.rank, "world_size": options.ranks}
        dist.init_process_group(backend, timeout=limit, device_id=own, **place)
        self.draw = torch.Generator().manual_seed(options.rank)
        shapes = ((ROWS, HIDDEN), (HIDDEN, MLP), (HIDDEN, MLP), (MLP, HIDDEN))
        self.leaves = [self.integers(*shape).requires_grad_() for shape in shapes]
        self.grad = self.integers(ROWS, HIDDEN)

    def integers(self, *shape: int) -> Tensor:
        return torch.randint(-1, 2, shape, generator=self.draw).float().to(self.device)

    def step(self, way: str, run: Callable[..., Tensor] = block) -> list[Tensor]:
        """Output and all gradients."""
        found = run(*self.leaves, way)
        return [found.detach(), *torch.autograd.grad(found, self.leaves, self.grad)]

    def change(self) -> list[Tensor]:
        """Other numbers in the same memory; what plain gives for them."""
        with torch.no_grad():
            for leaf in self.leaves:
                leaf.copy_(self.integers(*leaf.shape))
        return self.step("plain")

    def took_copies(self) -> None:
        """A CUDA graph holds the workspace, so it was captured with copies."""
        assert not self.is_cuda or any(space.captured for space in symmetric_pool._workspaces.values())


def same(found: list[Tensor], expected: list[Tensor]) -> None:
    for place, (one, right) in enumerate(zip(found, expected, strict=True)):
        assert torch.equal(one, right), f"result {place} differs by {(one - right).abs().max().item()}"


@part
def graph(rank: Rank) -> None:
    """Forward and backward, captured by torch.cuda.graph and replayed with other numbers."""

    def run() -> list[Tensor]:
        return rank.step(rank.way)

    if rank.is_cuda:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run()
        torch.cuda.current_stream().wait_stream(side)
        run = captured(run)
    for _ in range(REPLAYS):
        expected = rank.change()
        same(run(), expected)
    rank.took_copies()


@part
def reduce_overhead(rank: Rank) -> None:
    """torch.compile makes the CUDA graphs."""
    rank.step(rank.way)  # the choice
    how = {"mode": "reduce-overhead"} if rank.is_cuda else {"backend": "aot_eager"}
    compiled = torch.compile(block, fullgraph=True, dynamic=False, **how)  # type: ignore[call-overload]
    for _ in range(REPLAYS):
        expected = rank.change()
        torch.compiler.cudagraph_mark_step_begin()
        same(rank.step(rank.way, compiled), expected)
    rank.took_copies()


@part
def checkpointing(rank: Rank) -> None:
    """The forward runs again in the backward."""
    for reentrant in (False, True):
        expected = rank.change()
        for leaf in rank.leaves:
            leaf.grad = None
        found = checkpoint(block, *rank.leaves, rank.way, use_reentrant=reentrant)
        found.backward(rank.grad)  # torch.autograd.grad is not for the reentrant one
        same([found.detach(), *(leaf.grad for leaf in rank.leaves if leaf.grad is not None)], expected)


@part
def limited(rank: Rank) -> None:
    """Copies that were measured to be the fastest stay while the device is behind its host, and calls are plain once it
    waits for it."""
    calls = 4 * STEPS_LOOKED
    assert calls > host_lead.SKIPPED + host_lead.LAG + host_lead.LOOKED
    with mock.patch.object(choosing, "best_of", return_value=rank.way):
        for cycles in (BUSY_CYCLES, 0):
            parallel.release()  # and so the choices
            before, expected = len(parallel.choices()), rank.change()
            for _ in range(STEPS_LOOKED):
                if rank.is_cuda and cycles:
                    torch.cuda._sleep(cycles)
                found = rank.step("auto")
            same(found, expected)
            told = [one.limited for one in parallel.choices()[before:] if one.source == "measured"]
            assert not rank.is_cuda or (told and set(told) == {not cycles}), (cycles, told)


@part
def memory(rank: Rank) -> None:
    """What copies hold is counted, and given back."""
    rows, columns = 8192, 2048
    x, weight = torch.ones(rows, 8, device=rank.device), torch.ones(8, columns, device=rank.device)

    def free() -> int:
        dist.barrier()  # peers map this rank's memory, too
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]

    def call(way: str) -> None:
        parallel.matmul_reduce_scatter(x, weight, dist.group.WORLD, implementation=way)

    call("plain")
    call(rank.way)
    if not rank.is_cuda:
        assert parallel.memory() == 0
        return
    parallel.release()  # what is made once stays: streams, contexts of peers, kernels
    before, size = free(), rows * columns * 4
    call(rank.way)
    held = parallel.memory()
    assert held >= size, (held, size)
    assert before - free() >= size
    parallel.release()
    after = free()
    assert parallel.memory() == 0
    assert abs(before - after) < size // 8, (before, after)
    call(rank.way)
    assert parallel.memory() == held
    dist.barrier()


class Late(torch.autograd.Function):
    """What it is given, in both directions later by a random time, another one on each rank."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # type: ignore[override]
        Late.delay(x)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        Late.delay(grad)
        return grad

    most, draw = 0, random.Random(0)

    @staticmethod
    def delay(x: Tensor) -> None:
        if x.is_cuda and Late.most:
            torch.cuda._sleep(Late.draw.randrange(Late.most))


def strand_pieces(weights: list[Tensor]) -> list[Any]:
    """Two blocks. Numbers stay small: what enters a block is cut off at one."""

    def first(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(x), x

    def enter(found: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        x = (Late.apply(x) + found).clamp(-1, 1)
        return x, x

    def compute(rows: Tensor, x: Tensor, wide: Tensor, narrow: Tensor) -> tuple[Tensor, Tensor]:
        return linear(linear(Late.apply(rows), wide).relu().clamp(max=1), narrow), x

    blocks = [functools.partial(compute, wide=one, narrow=two) for one, two in zip(weights[::2], weights[1::2])]  # noqa: B905
    return [
        first,
        *(one for block in blocks for one in (enter, AllGather(), block, ReduceScatter())),
        lambda x, y: x + y,
    ]


@part
def strands(rank: Rank) -> None:
    """Every schedule gives what sequential gives while ranks and streams are late at random, eager and captured, and
    holds no more memory from step to step."""
    shapes = ((MLP, HIDDEN), (HIDDEN, MLP), (MLP, HIDDEN), (HIDDEN, MLP))
    weights = [rank.integers(*shape).requires_grad_() for shape in shapes]
    batches = [rank.integers(ROWS, HIDDEN).requires_grad_() for _ in range(5)]
    targets, leaves = [rank.integers(ROWS, HIDDEN) for _ in batches], [*weights, *batches]

    def made(schedule: str) -> Strands:
        return Strands(strand_pieces(weights), lambda x, target: (x * target).sum(), dist.group.WORLD, schedule)

    def step(of: Strands, run: Callable[[], list[Tensor]] | None = None) -> list[Tensor]:
        for leaf in leaves:
            leaf.grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.zero_()
        losses = of.step(batches, targets) if run is None else run()
        return [one.clone() for one in (*losses, *(leaf.grad for leaf in leaves if leaf.grad is not None))]

    plain = made("sequential")
    for schedule in SCHEDULES:
        one = made(schedule)
        for _ in range(4):  # shapes are learnt, operators and pairs timed
            step(one)
        (choice,) = one.choices()
        assert choice.chosen == schedule or not rank.is_cuda, choice
        held: list[int] = []
        replay = None
        for number in range(3 * REPLAYS):
            for tensor in (*batches, *targets):
                tensor.data.copy_(rank.integers(*tensor.shape))
            if rank.is_cuda and number == 2 * REPLAYS:
                replay = captured(lambda: one.step(batches, targets))  # noqa: B023
            Late.most = 0
            expected = step(plain)
            Late.most = LATEST_CYCLES
            same(step(one, replay), expected)
            if rank.is_cuda and replay is None:
                held.append(torch.cuda.memory_reserved())
        assert not held or held[-1] == held[REPLAYS], (schedule, held)


def captured(run: Callable[[], list[Tensor]]) -> Callable[[], list[Tensor]]:
    """A call as a CUDA graph; what it returned, again and again."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        results = run()

    def replay() -> list[Tensor]:
        graph.replay()
        return results

    return replay


@part
def killed(rank: Rank) -> None:
    """Goes on until this rank is killed, or finds out that another one was."""
    for call in range(10**9):
        rank.step(rank.way)
        if rank.is_cuda:
            torch.cuda.synchronize()
        if call == 10:
            rank.ready.touch()


def be_rank(options: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    rank = Rank(options)
    PARTS[options.part](rank)
    dist.barrier()
    if rank.is_cuda:
        torch.cuda.synchronize()
    os._exit(0)


def run_part(name: str, options: argparse.Namespace, port: int) -> dict[str, object]:
    """Exit code of each rank, None = it had to be ended, and seconds; of a killed rank's peers since it was killed."""
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LAGOM_CACHE": "off"}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--part", name, "--ranks", str(options.ranks), "--folder", folder]
        command += ["--gloo"] if options.gloo else []
        ranks = [subprocess.Popen([*command, "--rank", str(rank)], env=environment) for rank in range(options.ranks)]
        end = time.monotonic() + options.seconds
        if name == "killed":
            while len(list(Path(folder).iterdir())) < len(ranks) and time.monotonic() < end:
                time.sleep(0.1)
            ranks[VICTIM].send_signal(signal.SIGKILL)
            end = time.monotonic() + PATIENCE_S
        began = time.monotonic()
        codes = [_code(one, end) for one in ranks]
        return {"codes": codes, "seconds": round(time.monotonic() - began, 1)}


def _code(process: subprocess.Popen[bytes], end: float) -> int | None:
    try:
        return process.wait(max(0.1, end - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--parts", default=",".join(PARTS), help="commas between")
    parser.add_argument("--seconds", type=float, default=150, help="time limit of a part")
    parser.add_argument("--gloo", action="store_true", help="rehearsal on the CPU")
    parser.add_argument("--port", type=int, default=29561)
    for name, kind in (("--part", str), ("--rank", int), ("--folder", str)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)  # of one rank
    options = parser.parse_args()
    if options.part:
        be_rank(options)
    found = {}
    for number, name in enumerate(options.parts.split(",")):
        found[name] = run_part(name, options, options.port + number)
        print(f"{name}: {found[name]}", file=sys.stderr, flush=True)
    print(json.dumps({"parts": found}), flush=True)


if __name__ == "__main__":
    main()
