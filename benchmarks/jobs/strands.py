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
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.jobs.arms import Clock, Data
from benchmarks.jobs.llama_blocks import MODELS, HandBlock, stack, strand_pieces
from benchmarks.jobs.paired_ratio import gain, told
from benchmarks.jobs.stack_steps import Arm, Job, NotUsed, difference, on_host, parser_of, prepared, run, timed
from lagom import parallel
from lagom.parallel.strands import SCHEDULES, StrandChoice, Strands

#: Steps until a schedule that is named runs as it will: of the first one shapes are learnt.
FIRST_STEPS = 2
#: Schedules that are measured with collective matmul as well.
WITH_MATMUL = ("turns", "turns_abreast", "turns_copies", "turns_abreast_copies")


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

    def leaves(self) -> list[Tensor]:
        """Of all micro-batches."""
        return [*self._batches, *self.model.parameters()]

    def choice(self) -> StrandChoice:
        """With what activations need. Raises :class:`NotUsed` if it is another schedule."""
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
    blocks, plain, both = [*model.children()], strand_pieces(model), strand_pieces(model, matmul=True)
    found = {"plain": (plain, "sequential"), "matmul": (blocks, "sequential")}
    found |= {schedule: (plain, schedule) for schedule in SCHEDULES if schedule != "sequential"}
    found |= {f"{schedule}+matmul": (both, schedule) for schedule in WITH_MATMUL}
    wanted = {"plain", *options.arms.split(",")} if options.arms else found.keys()
    made = {arm: (pieces, schedule) for arm, (pieces, schedule) in found.items() if arm in wanted}
    return {arm: StrandArm(model, pieces, batches, grad, schedule) for arm, (pieces, schedule) in made.items()}


def kind(options: argparse.Namespace) -> str:
    """Of the rows."""
    return f"{options.micro} micro-batches{', graphs' if options.graphs else ''}"


def measured(options: argparse.Namespace, about: Data, clock: Clock) -> Data:
    """All arms of a stack."""
    arms, since = strand_arms(options, about["model"], about["tokens"], clock.device), len(parallel.choices())
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
    before = on_host(arms["plain"].gradients())
    twice = difference(arms["plain"].gradients(), before)
    checked: dict[str, Arm] = dict(arms)
    ready = prepared(checked, clock, options.graphs)
    ready["failed"] |= refused
    memory = {name: choice.activation_bytes[choice.chosen] for name, choice in choices.items()}
    ready["plain_twice_error"] = clock.agree([twice])[0]
    operators = [str(choice) for choice in parallel.choices()[since:]]
    return {**ready, **timed(checked, clock, options), "activation_bytes": memory, "operators": operators}


def more_lines(row: Data) -> list[str]:
    """What activations need, errors, and ratios over weight gradients moved."""
    memory = (f"{arm} {size / 2**20:.1f} MiB" for arm, size in row["activation_bytes"].items())
    errors = (f"{arm} {error:.2g}" for arm, error in row["errors"].items())
    samples, base = row["samples_ns"], "weights_moved"
    arms = [arm for arm in samples if arm not in ("plain", "plain_again", base)] if base in samples else []
    over = "; ".join(f"{arm} {told(gain(samples, arm, base))}" for arm in arms)
    return [
        f"activations of a rank: {', '.join(memory)}",
        f"gradients differ by, of their norm: plain twice {row['plain_twice_error']:.2g}, {', '.join(errors)}",
        f"over weight gradients moved: {over or 'not run'}",
    ]


def main() -> None:
    """Starts the ranks, or prints the table of a file."""
    parser = parser_of(
        "Steps of a tensor-parallel stack: each schedule in turns.", "strands.json", "of a micro-batch and all ranks"
    )
    parser.add_argument("--micro", type=int, default=8, help="micro-batches of a step")
    parser.add_argument("--arms", default="", help="of the table, commas between; plain is always there")
    run(parser, Job(kind, measured, more_lines))


if __name__ == "__main__":
    main()
