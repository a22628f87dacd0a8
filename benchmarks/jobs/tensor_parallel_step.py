# SPDX-License-Identifier: Apache-2.0
"""Whole steps, forward and backward, of a stack of Llama blocks under tensor and sequence parallelism: what is gained
by lagom.parallel beside plain NCCL, torch's fused operators, and torch.compile with `_micro_pipeline_tp`.

    python -m benchmarks.jobs.tensor_parallel_step --out FILE               # written by hand, eager; starts its ranks
    python -m benchmarks.jobs.tensor_parallel_step --out FILE --graphs      # each step as a CUDA graph
    python -m benchmarks.jobs.tensor_parallel_step --out FILE --dtensor     # DTensor's styles, compiled and eager
    python -m benchmarks.jobs.tensor_parallel_step --table FILE

A sample is the wall clock's time of several steps of the slowest rank; arms come once a cycle, in another order each
time (arms.py). Gradients add up, as over micro-batches. All arms of a stack by hand have the same weights; their output
and gradients are compared with plain's first. Memory: the allocator's peak of an eager step, and symmetric memory,
on the worst rank; torch's fused operators have a workspace that neither counts.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.tensor.parallel as torch_styles
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh

import lagom.parallel as parallel
from benchmarks.jobs.arms import Clock, Data, add_options, add_row, begin, cycles, gain, join, leave, read, told
from benchmarks.jobs.llama_blocks import MODELS, Block, HandBlock, split_block, stack
from lagom.parallel.torch_gate import fused_operators

SAMPLE_NS, MOST_STEPS = 1e8, 12
#: Of the norm of plain's gradients: copies add up in another order than NCCL, in bfloat16.
MOST_ERROR = 0.1
HAND = {"plain": "plain", "chosen": None, "fused": "fused", "copies": "copies"}


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
        output = output.to_local() if hasattr(output, "to_local") else output
        output.backward(self.grad)

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

    def gradients(self) -> list[Tensor]:
        """Of x and of this rank's weights, after one step from zero. On the host: what the device holds would count as
        memory of the next arm."""
        leaves = [self.x, *self.model.parameters()]
        for leaf in leaves:
            if leaf.grad is not None:
                leaf.grad.zero_()
        self()
        grads = [leaf.grad for leaf in leaves if leaf.grad is not None]
        return [(one.to_local() if hasattr(one, "to_local") else one).to("cpu", torch.float32) for one in grads]


def hand_arms(options: argparse.Namespace, name: str, tokens: int, device: torch.device) -> dict[str, Arm]:
    """Written with the two operators, one stack for all."""
    ranks = dist.get_world_size()
    x, grad = _input((tokens // ranks, MODELS[name].hidden), device)
    model = stack(lambda: HandBlock(MODELS[name], tokens, ranks), options.layers, device)
    return {arm: Arm(model, x, grad, way) for arm, way in HAND.items() if not (options.graphs and arm == "fused")}


def dtensor_arms(options: argparse.Namespace, name: str, tokens: int, device: torch.device) -> dict[str, Arm]:
    """With styles, a model for each. `plain` is torch's, compiled block by block."""
    ranks, sizes = dist.get_world_size(), MODELS[name]
    mesh = init_device_mesh(device.type, (ranks,), mesh_dim_names=("tp",))
    length = min(tokens, 2 * sizes.sequence)
    x, grad = _input((tokens // length, length // ranks, sizes.hidden), device)
    if device.type == "cuda":
        fused_operators(mesh.get_group().group_name)  # what the compiler's pass needs

    def made(styles: Any, compiled: bool, pipelined: bool = False) -> Arm:
        torch.manual_seed(1)
        model = stack(lambda: Block(sizes), options.layers, device)
        for block in model.children():
            split_block(block, mesh, styles)
            if compiled and device.type == "cuda":
                # by options: models of one code share what is compiled unless these differ
                block.compile(options={"_micro_pipeline_tp": pipelined}, fullgraph=True, dynamic=False)
            elif compiled:
                block.compile(backend="aot_eager", fullgraph=True, dynamic=False)
        return Arm(model, x, grad)

    arms = {"plain": made(torch_styles, True), "micro_pipeline": made(torch_styles, True, True)}
    arms["eager"] = made(torch_styles, False)
    return arms | {"chosen": made(parallel, True), "chosen_eager": made(parallel, False)}


def _input(shape: tuple[int, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Of this rank, and the gradient of the output."""
    x, grad = (torch.randn(shape, device=device).to(torch.bfloat16) for _ in range(2))
    return x.requires_grad_(), grad * 0.01


def prepared(arms: dict[str, Arm], clock: Clock, graphs: bool) -> Data:
    """Choices, compilation, capture, memory and gradients of each arm; what fails on a rank is taken out on all."""
    failed, errors, peaks, symmetric = {}, {}, {}, {}
    right: list[Tensor] = []
    for name, arm in list(arms.items()):
        reason, error, peak = "", 0.0, 0
        try:
            peak = first_steps(arm, clock, graphs)
            found = arm.gradients()
            right = right or found
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


def difference(found: list[Tensor], right: list[Tensor]) -> float:
    """The largest of all tensors, of its norm."""
    pairs = zip(found, right, strict=True)
    return float(torch.stack([(one - best).norm() / best.norm() for one, best in pairs]).max())


class NotUsed(Exception):
    """An implementation was asked for, and plain was taken: why."""


def first_steps(arm: Arm, clock: Clock, graphs: bool) -> int:
    """Bytes at the peak of the second one. With ``graphs`` the arm is captured then."""
    is_cuda, since = clock.device.type == "cuda", len(parallel.choices())
    arm()
    clock.wait()
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    arm()
    peak = torch.cuda.max_memory_allocated() if is_cuda else 0
    refused = {name: why for choice in parallel.choices()[since:] for name, why in choice.refusals.items()}
    if arm.way in refused:
        raise NotUsed(refused[arm.way])
    if graphs and is_cuda:
        arm.capture()
    return peak


def measured(options: argparse.Namespace, about: Data, clock: Clock) -> Data:
    """A row: all arms of a stack."""
    before = len(parallel.choices())
    make = dtensor_arms if options.dtensor else hand_arms
    arms = make(options, about["model"], about["tokens"], clock.device)
    ready = prepared(arms, clock, options.graphs)
    chosen = [dataclasses.asdict(one) for one in parallel.choices()[before:] if one.source == "measured"]
    once = clock.agree([clock.time_of(arms["plain"], 2)[0]])[0]
    steps = max(1, min(MOST_STEPS, int(SAMPLE_NS / once)))
    timed: dict[str, Callable[[], Any]] = {**arms, "plain_again": arms["plain"]}
    found = cycles(timed, clock, options.each, random.Random(1), steps)
    return {**about, "steps": steps, **ready, **found, "choices": chosen}


def work(rank: int, options: argparse.Namespace, ends_at: float) -> None:
    """One rank."""
    device = join(rank, options.ranks, options.port, options.gloo)
    file, clock = Path(options.out), Clock(device, ends_at)
    regime = "dtensor" if options.dtensor else "graphs" if options.graphs else "eager"
    for model in options.model.split(","):
        for tokens in map(int, options.tokens.split(",")):
            about = {"ranks": options.ranks, "model": model, "tokens": tokens, "layers": options.layers, "kind": regime}
            if clock.is_over() or any(about.items() <= row.items() for row in read(file)["rows"]):
                continue
            torch.manual_seed(rank)
            row = measured(options, about, clock)
            if rank == 0:
                add_row(file, {**row, "command": options.command})
                print("\n".join(lines(row)), flush=True)
            parallel.release()
            clock.agree([0.0])  # nobody goes on before all have read the file
    leave(clock)


def lines(row: Data) -> list[str]:
    """An arm each of the table."""
    samples, shape = row["samples_ns"], f"{row['model']} T={row['tokens']}, {row['layers']} layers"
    told_lines = []
    for arm in samples:
        base = "plain" if arm == "plain_again" else ""
        ratio = "1" if arm == "plain" else told(gain(samples, arm, base))
        times = (f"{np.median(row[kind][arm]) / 1e6:.2f}" for kind in ("samples_ns", "host_ns"))
        sizes = (row[kind].get(arm) for kind in ("peak_bytes", "symmetric_bytes"))
        shown = ("–" if size is None else f"{size / 2**20:.0f}" for size in sizes)
        told_lines.append(" | ".join([f"| {row['kind']}, {shape}", arm, *times, ratio, *shown]) + " |")
    failed = (f"| {row['kind']}, {shape} | {arm} | – | – | {why} | – | – |" for arm, why in row["failed"].items())
    return told_lines + [one.replace("\n", " ") for one in failed]


def table(data: Data) -> str:
    """All rows as Markdown."""
    head = ("stack", "arm", "step, ms", "of the host, ms", "speed-up over plain", "peak, MiB", "symmetric, MiB")
    every = [line for row in data["rows"] for line in lines(row)]
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *every])


def main() -> None:
    """Starts the ranks, or prints the table of a file."""
    parser = argparse.ArgumentParser(description="Steps of a tensor-parallel stack: each way in turns.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--model", default="8b,70b", help=f"of {', '.join(MODELS)}, commas between")
    parser.add_argument("--tokens", default="8192", help="of all ranks, commas between")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--graphs", action="store_true", help="each step as a CUDA graph")
    parser.add_argument("--dtensor", action="store_true", help="DTensor's styles instead of the operators")
    parser.add_argument("--each", type=float, default=40, help="time limit of the cycles of a stack, seconds")
    add_options(parser, "tensor_parallel_step.json")
    options = parser.parse_args()
    if options.table:
        print(table(read(Path(options.table))))
        return
    options.command = shlex.join(sys.argv)
    if reason := begin(Path(options.out), options.gloo):
        parser.error(reason)
    mp.spawn(work, (options, time.monotonic() + options.seconds), nprocs=options.ranks)
    print(table(read(Path(options.out))))


if __name__ == "__main__":
    main()
