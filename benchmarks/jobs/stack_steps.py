# SPDX-License-Identifier: Apache-2.0
"""What the jobs share that time whole steps of a stack of Llama blocks, each way to run them as an arm: the arms, what
is checked of each before it is timed, the rows of all stacks that the options name, and their table.

Memory: the allocator's peak of an eager step, without what other arms hold, and symmetric memory, on the worst rank;
torch's fused operators have a workspace that neither counts, and so has cuBLAS for each stream that multiplies.
"""

from __future__ import annotations

import argparse
import gc
import random
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import Tensor, nn

import lagom.parallel as parallel
from benchmarks.jobs.arms import Clock, Data, add_options, add_row, begin, cycles, join, leave, read
from benchmarks.jobs.llama_blocks import MODELS, HandBlock
from benchmarks.jobs.paired_ratio import gain, told

SAMPLE_NS, MOST_STEPS = 1e8, 12
#: Of the norm of plain's gradients: copies add up in another order than NCCL, in bfloat16.
MOST_ERROR = 0.1


class Arm:
    """A stack and a way to run it; a call is a step."""

    def __init__(self, model: nn.Module, x: Tensor, grad: Tensor, way: str | None = None) -> None:
        self.model, self.way = model, way
        self.x, self.grad = x, grad
        self._replay: Callable[[], None] | None = None

    def __call__(self) -> None:
        if self._replay is not None:
            self._replay()
        else:
            self.step()

    def step(self) -> None:
        """Forward and backward, by the host's own launches."""
        for block in self.model.children():
            if isinstance(block, HandBlock):
                block.way = self.way
        output = self.model(self.x)
        _local(output).backward(self.grad)

    def capture(self) -> None:
        """From now on a step is a CUDA graph. After two steps on another stream, as torch's guide has it."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self()
            self()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self()
        self._replay = graph.replay

    def leaves(self) -> list[Tensor]:
        """What has a gradient."""
        return [self.x, *self.model.parameters()]

    def held(self) -> int:
        """Bytes between two steps: of this rank's weights, its input, and all gradients."""
        grads = [leaf.grad for leaf in self.leaves() if leaf.grad is not None]
        return sum(_local(one).nbytes for one in (self.grad, *self.leaves(), *grads))

    def gradients(self) -> list[Tensor]:
        """Of x and of this rank's weights, after one step from zero; the next step changes them."""
        for leaf in self.leaves():
            if leaf.grad is not None:
                leaf.grad.zero_()
        self()
        return [_local(leaf.grad) for leaf in self.leaves() if leaf.grad is not None]


def _local(tensor: Any) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def prepared(arms: dict[str, Arm], clock: Clock, graphs: bool) -> Data:
    """Choices, compilation, capture, memory and gradients of each arm; what fails on a rank is taken out on all."""
    failed, errors, peaks, symmetric = {}, {}, {}, {}
    right: list[Tensor] = []
    for name, arm in list(arms.items()):
        reason, error, peak = "", 0.0, 0
        try:
            peak = first_steps(arm, clock, graphs)
            found = arm.gradients()
            right = right or on_host(found)
            error = difference(found, right)
        except Exception as raised:  # noqa: BLE001 - other ranks wait for what this one says
            reason = str(raised) if isinstance(raised, NotUsed) else f"{type(raised).__name__}: {str(raised)[:300]}"
        worst, most, held, raised_anywhere = clock.agree(
            [min(error, 1e9), peak, parallel.memory(), float(bool(reason))]
        )
        if raised_anywhere:
            failed[name] = reason or "it raised on another rank"
        elif not worst <= MOST_ERROR:
            failed[name] = f"its gradients differ from plain's by {worst:.3g} of their norm"
        else:
            errors[name], peaks[name], symmetric[name] = worst, int(most), int(held)
            continue
        del arms[name]
    if "plain" in failed:
        raise RuntimeError(f"plain failed: {failed}")
    return {"failed": failed, "errors": errors, "peak_bytes": peaks, "symmetric_bytes": symmetric}


def on_host(found: list[Tensor]) -> list[Tensor]:
    """Copies: what the device holds would count as memory of the next arm."""
    return [one.to("cpu", copy=True) for one in found]


def difference(found: list[Tensor], right: list[Tensor]) -> float:
    """The largest of all tensors, of its norm. ``right``: on the host."""

    def of(one: Tensor, best: Tensor) -> Tensor:
        expected = best.to(one.device).float()
        return (one.float() - expected).norm() / expected.norm()

    return float(torch.stack([of(one, best) for one, best in zip(found, right, strict=True)]).max())


class NotUsed(Exception):
    """An implementation was asked for, and plain was taken: why."""


def first_steps(arm: Arm, clock: Clock, graphs: bool) -> int:
    """Bytes at the peak of the second one. With ``graphs`` the arm is captured then."""
    is_cuda, since = clock.device.type == "cuda", len(parallel.choices())
    arm()
    clock.wait()
    peak = peak_of(arm) if is_cuda else 0
    refused = {name: why for choice in parallel.choices()[since:] for name, why in choice.refusals.items()}
    if arm.way in refused:
        raise NotUsed(refused[arm.way])
    if graphs and is_cuda:
        arm.capture()
    return peak


def peak_of(arm: Arm) -> int:
    """Bytes at the peak of one more step: what the arm holds itself, and what the step adds. Not what the device holds:
    models, gradients and CUDA graphs of other arms are there, too."""
    gc.collect()  # what failed in the first step may hold its activations, and would be freed within this one
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    arm()
    return arm.held() + torch.cuda.max_memory_allocated() - before


def _nothing(_: Data) -> list[str]:
    return []


class Job(NamedTuple):
    """``kind(options)``: what its rows are, in a word. ``measured(options, about, clock)``: what the row of one stack
    has beside ``about``. ``more_lines(row)``: what the table has no column for. Functions of modules: ranks are started
    with them."""

    kind: Callable[[argparse.Namespace], str]
    measured: Callable[[argparse.Namespace, Data, Clock], Data]
    more_lines: Callable[[Data], list[str]] = _nothing


def timed(arms: Mapping[str, Arm], clock: Clock, options: argparse.Namespace) -> Data:
    """The samples of all arms, plain twice; ``steps``: of a sample."""
    once = clock.agree([clock.time_of(arms["plain"], 2)[0]])[0]
    steps = max(1, min(MOST_STEPS, int(SAMPLE_NS / once)))
    every = {**arms, "plain_again": arms["plain"]}
    return {"steps": steps, **cycles(every, clock, options.each, random.Random(1), steps)}


def parser_of(description: str, out: str, tokens: str) -> argparse.ArgumentParser:
    """With the options that these jobs share. ``out``: the name of the results file; ``tokens``: what they count."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--model", default="8b,70b", help=f"of {', '.join(MODELS)}, commas between")
    parser.add_argument("--tokens", default="8192", help=f"{tokens}, commas between")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--graphs", action="store_true", help="each step as a CUDA graph")
    parser.add_argument("--each", type=float, default=60, help="time limit of the cycles of a stack, seconds")
    add_options(parser, out)
    return parser


def run(parser: argparse.ArgumentParser, job: Job) -> None:
    """Starts the ranks, or prints the table of a file."""
    options = parser.parse_args()
    if not options.table:
        options.command = shlex.join(sys.argv)
        if reason := begin(Path(options.out), options.gloo):
            parser.error(reason)
        mp.spawn(_work, (job, options, time.monotonic() + options.seconds), nprocs=options.ranks)
    print(table(read(Path(options.table or options.out)), job.more_lines))


def _work(rank: int, job: Job, options: argparse.Namespace, ends_at: float) -> None:
    """One rank."""
    device = join(rank, options.ranks, options.port, options.gloo)
    file, clock = Path(options.out), Clock(device, ends_at)
    about: Data = {"ranks": options.ranks, "layers": options.layers, "kind": job.kind(options)}
    for model in options.model.split(","):
        for tokens in map(int, options.tokens.split(",")):
            about |= {"model": model, "tokens": tokens}
            if clock.is_over() or any(about.items() <= row.items() for row in read(file)["rows"]):
                continue
            torch.manual_seed(rank)
            row = {**about, **job.measured(options, about, clock), "command": options.command}
            if rank == 0:
                add_row(file, row)
                print("\n".join([*lines(row), *job.more_lines(row)]), flush=True)
            parallel.release()
            clock.agree([0.0])  # nobody goes on before all have read the file
    leave(clock)


def stack_of(row: Data) -> str:
    """What the arms of a row ran."""
    return f"{row['kind']}, {row['model']} T={row['tokens']}, {row['layers']} layers"


def lines(row: Data) -> list[str]:
    """An arm each of the table."""
    samples, stack = row["samples_ns"], stack_of(row)
    told_lines = []
    for arm in samples:
        base = "plain" if arm == "plain_again" else ""
        ratio = "1" if arm == "plain" else told(gain(samples, arm, base))
        times = (f"{np.median(row[kind][arm]) / 1e6:.2f}" for kind in ("samples_ns", "host_ns"))
        sizes = (row[kind].get(arm) for kind in ("peak_bytes", "symmetric_bytes"))
        shown = ("–" if size is None else f"{size / 2**20:.0f}" for size in sizes)
        told_lines.append(" | ".join([f"| {stack}", arm, *times, ratio, *shown]) + " |")
    failed = (f"| {stack} | {arm} | – | – | {why} | – | – |" for arm, why in row["failed"].items())
    return told_lines + [one.replace("\n", " ") for one in failed]


def table(data: Data, more_lines: Callable[[Data], list[str]] = _nothing) -> str:
    """All rows as Markdown, then what the table has no column for."""
    head = ("stack", "arm", "step, ms", "of the host, ms", "speed-up over plain", "peak, MiB", "symmetric, MiB")
    every = [line for row in data["rows"] for line in lines(row)]
    more = [f"- {stack_of(row)}: {line}" for row in data["rows"] for line in more_lines(row)]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *every, *([""] * bool(more)), *more])
