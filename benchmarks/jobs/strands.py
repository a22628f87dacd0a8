# SPDX-License-Identifier: Apache-2.0
"""Whole steps, forward and backward of several micro-batches, of a stack of Llama blocks under tensor and sequence
parallelism: every schedule of lagom.parallel.strands beside one micro-batch after the other, with and without
collective matmul in the attention's half; with --graphs each step is a CUDA graph.

    python -m benchmarks.jobs.strands --out FILE             # starts its ranks
    python -m benchmarks.jobs.strands --out FILE --gloo --model tiny --tokens 64     # rehearsal on the CPU
    python -m benchmarks.jobs.strands --table FILE

A sample is the wall clock's time of a step on the slowest rank; arms come once a cycle, in another order each time
(arms.py). All have the same weights; their gradients are compared with plain's first, which is `sequential`. `matmul`:
the whole block by lagom.parallel's operators, one micro-batch after the other.
"""

from __future__ import annotations

import argparse
import random
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

from benchmarks.jobs.arms import Clock, Data, add_options, add_row, begin, cycles, gain, join, leave, read, told
from benchmarks.jobs.llama_blocks import MODELS, HandBlock, stack
from benchmarks.jobs.tensor_parallel_step import Arm, NotUsed, difference, lines, prepared, table
from lagom.parallel.strands import SCHEDULES, StrandChoice, Strands

#: Steps until a schedule that is named runs as it will: shapes are learnt, operators and pairs timed for the plan.
FIRST_STEPS = 4
#: Schedules that are measured with collective matmul as well.
WITH_MATMUL = ("turns", "turns_abreast", "planned", "turns_copies", "turns_abreast_copies")


class StrandArm(Arm):
    """A stack in pieces with a schedule."""

    def __init__(
        self, model: nn.Module, pieces: Sequence[Any], batches: list[Tensor], grad: Tensor, schedule: str
    ) -> None:
        super().__init__(model, batches[0], grad)
        self._batches, self.schedule = batches, schedule
        self._strands = Strands(pieces, lambda found, target: (found * target).sum(), dist.group.WORLD, schedule)

    def step(self) -> None:
        """Of all micro-batches."""
        self._strands.step(self._batches, [self.grad] * len(self._batches))

    def choice(self) -> StrandChoice:
        """With what the plan predicts and what activations need. Raises :class:`NotUsed` if it is another schedule."""
        (choice,) = self._strands.choices()
        if choice.chosen != self.schedule:
            raise NotUsed(choice.refusals[self.schedule])
        return choice


def strand_arms(options: argparse.Namespace, name: str, tokens: int, device: torch.device) -> dict[str, StrandArm]:
    """One stack for all. A micro-batch has ``tokens`` tokens of all ranks."""
    ranks, sizes = dist.get_world_size(), MODELS[name]
    shape = tokens // ranks, sizes.hidden
    batches = [torch.randn(shape, device=device).to(torch.bfloat16).requires_grad_() for _ in range(options.micro)]
    grad = torch.randn(shape, device=device).to(torch.bfloat16) * 0.01
    model = stack(lambda: HandBlock(sizes, tokens, ranks), options.layers, device)
    blocks = [block for block in model.children() if isinstance(block, HandBlock)]

    def first(x: Tensor) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(x), x

    def last(found: Tensor, x: Tensor) -> Tensor:
        return x + found

    plain = [first, *(piece for block in blocks for piece in block.pieces()), last]
    both = [first, *(piece for block in blocks for piece in block.matmul_pieces()), last]
    found = {"plain": (plain, "sequential"), "matmul": (blocks, "sequential")}
    found |= {schedule: (plain, schedule) for schedule in SCHEDULES if schedule != "sequential"}
    found |= {f"{schedule}+matmul": (both, schedule) for schedule in WITH_MATMUL}
    wanted = {"plain", *options.arms.split(",")} if options.arms else found.keys()
    made = {arm: (pieces, schedule) for arm, (pieces, schedule) in found.items() if arm in wanted}
    return {arm: StrandArm(model, pieces, batches, grad, schedule) for arm, (pieces, schedule) in made.items()}


def measured(options: argparse.Namespace, about: Data, clock: Clock) -> Data:
    """A row: all arms of a stack."""
    arms = strand_arms(options, about["model"], about["tokens"], clock.device)
    choices: dict[str, StrandChoice] = {}
    refused: dict[str, str] = {}
    for name, arm in list(arms.items()):
        for _ in range(FIRST_STEPS):
            arm()
        try:  # every rank finds the same
            choices[name] = arm.choice()
        except NotUsed as reason:
            refused[name] = str(reason)
            del arms[name]
    twice = difference(arms["plain"].gradients(), arms["plain"].gradients())
    checked: dict[str, Arm] = dict(arms)
    ready = prepared(checked, clock, options.graphs)
    ready["failed"] |= refused
    found = cycles({**checked, "plain_again": arms["plain"]}, clock, options.each, random.Random(1), 1)
    memory = {name: choice.activation_bytes[choice.chosen] for name, choice in choices.items()}
    predicted = {name: choice.predicted_ns for name, choice in choices.items() if choice.predicted_ns is not None}
    ready["plain_twice_error"] = clock.agree([twice])[0]
    return {**about, **ready, **found, "activation_bytes": memory, "predicted_ns": predicted}


def more_lines(row: Data) -> str:
    """What the table has no column for."""
    plans = (f"{arm} {took / 1e6:.2f} ms" for arm, took in row["predicted_ns"].items())
    memory = (f"{arm} {size / 2**20:.1f} MiB" for arm, size in row["activation_bytes"].items())
    errors = (f"{arm} {error:.2g}" for arm, error in row["errors"].items())
    samples, base = row["samples_ns"], "weights_moved"
    arms = [arm for arm in samples if arm not in ("plain", "plain_again", base)] if base in samples else []
    over = "; ".join(f"{arm} {told(gain(samples, arm, base))}" for arm in arms)
    return "\n".join(
        [
            f"predicted: {', '.join(plans) or 'nothing'}",
            f"activations of a rank: {', '.join(memory)}",
            f"gradients differ by, of their norm: plain twice {row['plain_twice_error']:.2g}, {', '.join(errors)}",
            f"over weight gradients moved: {over or 'not run'}",
        ]
    )


def work(rank: int, options: argparse.Namespace, ends_at: float) -> None:
    """One rank."""
    device = join(rank, options.ranks, options.port, options.gloo)
    file, clock = Path(options.out), Clock(device, ends_at)
    for model in options.model.split(","):
        for tokens in map(int, options.tokens.split(",")):
            about = {"ranks": options.ranks, "model": model, "tokens": tokens, "layers": options.layers}
            about |= {"kind": f"{options.micro} micro-batches{', graphs' if options.graphs else ''}"}
            if clock.is_over() or any(about.items() <= row.items() for row in read(file)["rows"]):
                continue
            torch.manual_seed(rank)
            row = measured(options, about, clock)
            if rank == 0:
                add_row(file, {**row, "command": options.command})
                print("\n".join([*lines(row), more_lines(row)]), flush=True)
            clock.agree([0.0])  # nobody goes on before all have read the file
    leave(clock)


def main() -> None:
    """Starts the ranks, or prints the table of a file."""
    parser = argparse.ArgumentParser(description="Steps of a tensor-parallel stack: each schedule in turns.")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--model", default="8b,70b", help=f"of {', '.join(MODELS)}, commas between")
    parser.add_argument("--tokens", default="8192", help="of a micro-batch and all ranks, commas between")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--micro", type=int, default=8, help="micro-batches of a step")
    parser.add_argument("--each", type=float, default=60, help="time limit of the cycles of a stack, seconds")
    parser.add_argument("--graphs", action="store_true", help="each step as a CUDA graph")
    parser.add_argument("--arms", default="", help="of the table, commas between; plain is always there")
    add_options(parser, "strands.json")
    options = parser.parse_args()
    if options.table:
        kept = read(Path(options.table))
        print("\n".join([table(kept), *(more_lines(row) for row in kept["rows"])]))
        return
    options.command = shlex.join(sys.argv)
    if reason := begin(Path(options.out), options.gloo):
        parser.error(reason)
    mp.spawn(work, (options, time.monotonic() + options.seconds), nprocs=options.ranks)


if __name__ == "__main__":
    main()
