# SPDX-License-Identifier: Apache-2.0
"""The pairing of two strands against every plan there is."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from lagom.sim.pairing import MOST_BESIDE, Strand, TimedOperator, beside, pair, predicted_step


def strand(numbers: random.Random, count: int) -> list[TimedOperator]:
    """Like a block's: collectives among compute, of which some waits for nothing."""
    found = []
    for _ in range(count):
        time_alone = float(numbers.randint(1, 9))
        if numbers.random() < 0.4:
            found.append(TimedOperator(time_alone, True, hidden=numbers.choice((0.0, 0.25, 0.5, 1.0))))
        else:
            found.append(TimedOperator(time_alone, is_free=numbers.random() < 0.4))
    return found


def every_makespan(first: Strand, second: Strand) -> Iterator[float]:
    """Of all plans, written without the planner's groups: which strand is next, and how much runs beside."""
    if not first and not second:
        yield 0.0
    for own, other, swapped in ((first, second, False), (second, first, True)):
        if not own:
            continue
        head, *rest = own
        for riders in range(len(rest) + 1) if head.is_collective else (0,):
            if any(one.is_collective or not one.is_free for one in rest[:riders]):
                break
            for count in range(len(other) + 1) if head.is_collective else (0,):
                if any(one.is_collective for one in other[:count]):
                    break
                compute = sum(one.time for one in [*rest[:riders], *other[:count]])
                took = beside(head, compute) if head.is_collective else head.time
                left = rest[riders:], other[count:]
                for more in every_makespan(*(reversed(left) if swapped else left)):
                    yield took + more


def test_equals_exhaustive_search() -> None:
    numbers = random.Random(1)
    gained = 0
    for _ in range(1200):
        first, second = strand(numbers, numbers.randint(0, 4)), strand(numbers, numbers.randint(0, 4))
        found = pair(first, second)
        assert found.makespan == pytest.approx(min(every_makespan(first, second)), abs=1e-9)
        gained += found.makespan < sum(one.time for one in [*first, *second])
    assert gained > 300, "most cases have something to gain, or nothing is tested"


def test_the_steps_take_the_time_that_the_plan_says() -> None:
    numbers = random.Random(2)
    for _ in range(200):
        first, second = strand(numbers, 18), strand(numbers, 14)
        found, sides, took = pair(first, second), (list(first), list(second)), 0.0
        for of_first, of_second, first_leads in found.steps:
            parts = [sides[0][:of_first], sides[1][:of_second]]
            del sides[0][:of_first], sides[1][:of_second]
            head, *others = [one for part in (parts if first_leads else parts[::-1]) for one in part]
            assert not any(one.is_collective for one in others)
            took += beside(head, sum(one.time for one in others)) if head.is_collective else head.time
        assert sides == ([], [])
        assert found.makespan == pytest.approx(took)


def test_a_block_of_the_paper_takes_milliseconds() -> None:
    numbers = random.Random(3)
    cases = [(strand(numbers, 18), strand(numbers, 14)) for _ in range(10)]
    began = time.process_time()
    for first, second in cases:
        pair(first, second)
    assert time.process_time() - began < 10, "one second for each at most; it takes a few milliseconds"


def test_nothing_hidden_is_one_after_the_other() -> None:
    first = [TimedOperator(2.0), TimedOperator(3.0, True), TimedOperator(1.0, is_free=True)]
    assert pair(first, first).makespan == 12.0
    hidden = [TimedOperator(2.0), TimedOperator(3.0, True, hidden=1.0), TimedOperator(2.0)]
    assert pair(hidden, hidden).makespan == 10.0, "7 each, and each collective hides 2 of the other"
    assert MOST_BESIDE >= 7
    assert [predicted_step(hidden, hidden, count) for count in (1, 3)] == [14.0, 34.0]
