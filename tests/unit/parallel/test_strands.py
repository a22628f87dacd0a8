# SPDX-License-Identifier: Apache-2.0
"""Strands on ranks of gloo: the cases of strands_job.py; and which schedule is taken."""

from __future__ import annotations

import random

import pytest

from tests.unit.parallel.gloo_jobs import Outcomes, check_case, names_in

pytest.importorskip("torch")

import torch

from lagom.parallel.strands import orders, stepping, trying
from lagom.parallel.strands.orders import BACKWARD, FORWARD, WEIGHTS, Order, peak_bytes
from lagom.parallel.strands.trying import (
    ABREAST,
    MOVED,
    SCHEDULES,
    SEQUENTIAL,
    TURNS,
    TURNS_COPIES,
    TWO_STREAMS,
)

#: A Llama block and its loss.
KINDS = (False, True, False, True, False, True, False, True, False)
SAVED = {(one, piece): 10 for one in range(8) for piece in range(len(KINDS))}


@pytest.mark.parametrize("name", names_in("strands"))
def test_case(outcomes: dict[str, Outcomes], name: str) -> None:
    check_case(outcomes["strands"], name)


def wrong_order(order: Order, count: int) -> str:
    """Why gradients could differ from those of one after the other; empty = they cannot."""
    for one in range(count):
        own = [(operator.phase, operator.piece) for operator in order if operator.micro_batch == one]
        chain = [each for each in own if each[0] != WEIGHTS]
        pieces = range(len(KINDS))
        if chain != [(FORWARD, piece) for piece in pieces] + [(BACKWARD, piece) for piece in reversed(pieces)]:
            return f"micro-batch {one} runs its pieces in another order"
        for piece in pieces:
            if not KINDS[piece] and own.index((WEIGHTS, piece)) < own.index((BACKWARD, piece)):
                return f"weight gradients of piece {piece} come before their backward"
    for phase in (BACKWARD, WEIGHTS):
        for piece in range(len(KINDS)):
            sums = [one.micro_batch for one in order if (one.phase, one.piece) == (phase, piece)]
            if sums != sorted(sums):
                return f"micro-batches are added in another order in piece {piece}"
    return ""


def trial(count: int = 4, room: float = 1e9, named: str | None = None, trains: bool = True) -> trying.ScheduleTrial:
    return trying.ScheduleTrial(KINDS, count, trains, SAVED, room, named, 1, True, "")


def settled(found: trying.ScheduleTrial, **took: float) -> trying.StrandChoice:
    """What is chosen where steps take so long; every order on the way must be right."""
    for _ in range(100):
        now = found.now
        if found._trains:
            assert wrong_order(now.order, found._count) == "", now.schedule
        if found.choice is not None:
            return found.choice
        found.add(took.get(now.schedule, 100.0))
    raise AssertionError("no choice was made")


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7])
def test_every_order_keeps_the_sums(count: int) -> None:
    kept = settled(trial(count))
    assert kept.chosen == SEQUENTIAL
    assert kept.times_ns.keys() == ({SEQUENTIAL, MOVED} if count == 1 else set(SCHEDULES))


def test_the_fastest_is_taken_if_it_stays_so() -> None:
    assert settled(trial(), sequential=100.0, turns=90.0, turns_abreast=80.0).chosen == ABREAST
    assert settled(trial(), two_streams=50.0).chosen == TWO_STREAMS
    assert settled(trial(), turns_copies=50.0).chosen == TURNS_COPIES
    assert settled(trial(1), weights_moved=50.0).chosen == MOVED
    lucky = trial()
    steps = 0
    while lucky.choice is None:
        steps += lucky.now.schedule == TURNS
        lucky.add(50.0 if lucky.now.schedule == TURNS and steps <= 5 else 100.0)
    assert (lucky.choice.chosen, steps) == (SEQUENTIAL, 10), "it was faster only while it was tried"


def test_what_is_named_is_taken_and_not_measured() -> None:
    for name in SCHEDULES:
        choice = settled(trial(named=name))
        assert (choice.chosen, choice.times_ns, choice.gain) == (name, {}, None)
    assert settled(trial(1, named=TURNS)).chosen == SEQUENTIAL
    assert "it needs a collective" in settled(trial(1, named=TURNS)).refusals[TURNS]
    assert settled(trial(named=TURNS, trains=False)).chosen == SEQUENTIAL
    assert settled(trial(named=ABREAST, trains=False)).chosen == ABREAST


def test_activations_are_counted_and_kept_within_the_room() -> None:
    choice = settled(trial(room=40.0), turns_abreast=1.0)
    alone = 10 * KINDS.count(False)
    assert choice.activation_bytes[ABREAST] - choice.activation_bytes[SEQUENTIAL] >= alone
    assert choice.activation_bytes[TURNS] - choice.activation_bytes[SEQUENTIAL] < alone
    assert choice.chosen == SEQUENTIAL
    assert "MiB more than is free" in choice.refusals[ABREAST]


def test_peak_of_random_orders() -> None:
    numbers = random.Random(1)
    saved = {(one, piece): numbers.randint(1, 9) for one in range(3) for piece, kind in enumerate(KINDS) if not kind}
    one_by_one = orders.one_after_the_other(3, KINDS, True)
    assert peak_bytes(one_by_one, saved) == max(sum(v for (m, _), v in saved.items() if m == one) for one in range(3))
    assert peak_bytes(orders.abreast(2, KINDS), saved) == sum(v for (m, _), v in saved.items() if m < 2)


def test_the_device_is_that_of_the_parameters_where_tokens_are_on_the_host() -> None:
    tokens, weight = torch.zeros(1, dtype=torch.int64), torch.zeros(1, device="meta")
    assert stepping._device_of([tokens, 3, weight]).type == "meta"
    assert stepping._device_of([tokens, None]).type == "cpu"
