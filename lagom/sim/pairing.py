# SPDX-License-Identifier: Apache-2.0
"""Which operators of two strands run beside each other: dynamic programming over pairs (DHelix, arXiv 2411.15871,
section 4.2, equation 2): a predictor. `lagom.parallel.strands` goes by turns: on GPUs plans gained less than 1 % more.

A plan is a list of groups. A group is one compute operator alone, or one collective with compute operators beside it:
those of its own strand that follow and do not wait for it (weight gradients), then those at the head of the other
strand. Between groups stands a barrier, which the plan's time counts and the execution does not need.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

#: Compute operators of the other strand beside one collective, at most: a layer has no more between two collectives.
MOST_BESIDE = 7


class TimedOperator(NamedTuple):
    """``time``: alone; ``is_collective``; ``is_free``: does not wait for the collective directly before it in its own
    strand; ``hidden``: of a collective: the share of the shorter one that overlap hides where compute runs beside it
    (the paper's OEF, equation 1): 0 = nothing, 1 = all."""

    time: float
    is_collective: bool = False
    is_free: bool = False
    hidden: float = 0.0


class PairingStep(NamedTuple):
    """So many operators of each strand; ``first_leads``: the first strand's are launched first."""

    of_first: int
    of_second: int
    first_leads: bool


class PairingPlan(NamedTuple):
    """``makespan``: in the unit of the operators' times."""

    makespan: float
    steps: list[PairingStep]


Strand = Sequence[TimedOperator]


def beside(collective: TimedOperator, compute: float) -> float:
    """Time of a collective and of compute that takes ``compute`` alone, begun together."""
    return collective.time + compute - collective.hidden * min(collective.time, compute)


def groups_at(first: Strand, second: Strand, i: int, j: int) -> Iterator[tuple[PairingStep, float]]:
    """Every group that can come next, with its time, where ``i`` and ``j`` operators are done."""
    for own, other, at, there, leads in ((first, second, i, j, True), (second, first, j, i, False)):
        if at == len(own):
            continue
        if not own[at].is_collective:
            yield _step(1, 0, leads), own[at].time
            continue
        for riders in range(_run(own, at + 1, True) + 1):
            compute = sum(one.time for one in own[at + 1 : at + 1 + riders])
            yield _step(1 + riders, 0, leads), beside(own[at], compute)
            for count in range(1, _run(other, there, False) + 1):
                compute += other[there + count - 1].time
                yield _step(1 + riders, count, leads), beside(own[at], compute)


def _step(own: int, other: int, leads: bool) -> PairingStep:
    return PairingStep(own, other, True) if leads else PairingStep(other, own, False)


def _run(strand: Strand, at: int, free: bool) -> int:
    """How many compute operators stand there that can run beside a collective."""
    count = 0
    for one in strand[at : at + MOST_BESIDE]:
        if one.is_collective or (free and not one.is_free):
            break
        count += 1
    return count


def pair(first: Strand, second: Strand) -> PairingPlan:
    """The plan of the shortest time. The same arguments give the same plan, whatever the machine."""
    columns = len(second) + 1
    best = [float("inf")] * ((len(first) + 1) * columns)
    came_by: list[PairingStep | None] = [None] * len(best)
    best[0] = 0.0
    for place, done in enumerate(best):
        i, j = divmod(place, columns)
        for step, took in groups_at(first, second, i, j):
            to = place + step.of_first * columns + step.of_second
            if done + took < best[to]:
                best[to], came_by[to] = done + took, step
    steps: list[PairingStep] = []
    place = len(best) - 1
    while (last := came_by[place]) is not None:
        steps.append(last)
        place -= last.of_first * columns + last.of_second
    return PairingPlan(best[-1], steps[::-1])


def predicted_step(backward: Strand, forward: Strand, micro_batches: int) -> float:
    """Time of a step by such a plan: the forward of the first micro-batch, the backward of each beside the forward of
    the next one, and the backward of the last."""
    alone = sum(one.time for one in [*backward, *forward])
    return (micro_batches - 1) * pair(backward, forward).makespan + alone
