# SPDX-License-Identifier: Apache-2.0
"""In which order the operators of several micro-batches run. An order is a list; schedules differ in nothing else.

A micro-batch runs its pieces forward, then backward. A collective is started by its operator and finished before the
next operator of its micro-batch that is not a weight gradient: whatever stands between runs beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

FORWARD, BACKWARD, WEIGHTS = "forward", "backward", "weights"


class StrandOperator(NamedTuple):
    """``phase``: FORWARD, BACKWARD, or WEIGHTS: the gradients of weights that BACKWARD has put off; ``piece``: its
    place in the block list."""

    micro_batch: int
    phase: str
    piece: int


Order = list[StrandOperator]
#: Which pieces are collectives.
Kinds = Sequence[bool]


def forward_of(micro_batch: int, kinds: Kinds) -> Order:
    """The forward pass of a micro-batch."""
    return [StrandOperator(micro_batch, FORWARD, piece) for piece in range(len(kinds))]


def backward_of(micro_batch: int, kinds: Kinds, moved: bool = True) -> Order:
    """Its backward pass. ``moved``: weight gradients run beside the collective that follows, where there is one."""
    order: Order = []
    waiting: StrandOperator | None = None
    for piece in reversed(range(len(kinds))):
        order.append(StrandOperator(micro_batch, BACKWARD, piece))
        if waiting is not None:
            order.append(waiting)
            waiting = None
        if kinds[piece]:
            continue
        weights = StrandOperator(micro_batch, WEIGHTS, piece)
        if moved and piece and kinds[piece - 1]:
            waiting = weights
        else:
            order.append(weights)
    return order


def in_turns(first: Sequence[StrandOperator], second: Sequence[StrandOperator], kinds: Kinds) -> Order:
    """One strand up to the start of its next collective, then the other one, until both are done."""
    order: Order = []
    sides = [list(reversed(first)), list(reversed(second))]
    while any(sides):
        for side in sides:
            while side:
                order.append(side.pop())
                if starts_collective(order[-1], kinds):
                    break
    return order


def starts_collective(operator: StrandOperator, kinds: Kinds) -> bool:
    """Whether ranks must meet in it."""
    return kinds[operator.piece] and operator.phase != WEIGHTS


def one_after_the_other(count: int, kinds: Kinds, moved: bool, trains: bool = True) -> Order:
    """Each micro-batch by itself."""
    order: Order = []
    for one in range(count):
        order += forward_of(one, kinds) + (backward_of(one, kinds, moved) if trains else [])
    return order


def forward_beside_backward(count: int, kinds: Kinds) -> Order:
    """The backward of each micro-batch beside the forward of the next one."""
    order = forward_of(0, kinds)
    for one in range(count - 1):
        order += in_turns(backward_of(one, kinds), forward_of(one + 1, kinds), kinds)
    return order + backward_of(count - 1, kinds)


def abreast(count: int, kinds: Kinds, trains: bool = True) -> Order:
    """Two micro-batches at a time, forward beside forward and backward beside backward; a last odd one alone."""
    order: Order = []
    for one in range(0, count - 1, 2):
        order += in_turns(forward_of(one, kinds), forward_of(one + 1, kinds), kinds)
        if trains:
            order += in_turns(backward_of(one, kinds), backward_of(one + 1, kinds), kinds)
    if count % 2:
        order += forward_of(count - 1, kinds) + (backward_of(count - 1, kinds) if trains else [])
    return order


def peak_bytes(order: Iterable[StrandOperator], saved: Mapping[tuple[int, int], int]) -> int:
    """The most that activations hold at once. ``saved``: bytes that a piece of a micro-batch keeps for its backward, by
    (micro-batch, piece)."""
    held = most = 0
    for operator in order:
        size = saved.get((operator.micro_batch, operator.piece), 0)
        if operator.phase == FORWARD:
            held += size
            most = max(most, held)
        elif operator.phase == WEIGHTS:
            held -= size
    return most
