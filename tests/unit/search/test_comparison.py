# SPDX-License-Identifier: Apache-2.0
"""Named arms beside stock: shuffled cycles, all pairs kept, slow arms spared, nothing promoted."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from lagom.records import Assignment, CommConfig, Sample
from lagom.search.comparison import MISSING_LIMIT, PAIRS, SLOW_CYCLES, Arm, ComparisonSession
from lagom.search.moves import WindowResult

SITES = 2


def arm(name: str, channels: int | None = None) -> Arm:
    return Arm(name, Assignment((CommConfig(channels=channels),) * SITES))


ARMS = (arm("stock"), arm("two", 2), arm("three", 3), arm("slow", 1))
TRUTH = {None: 1.0, 2: 0.9, 3: 1.02, 1: 2.0}


def measure(session: ComparisonSession, draw: random.Random) -> list[str]:
    """Drives a session to its end; the arms in the order measured."""
    order = []
    while (request := session.request()) is not None:
        order.append(request.why.removeprefix("arm "))
        factor = TRUTH[request.candidate[0].channels]
        assert request.incumbent.is_stock
        assert request.pairs == PAIRS
        pairs = tuple(
            (Sample(1e8 * draw.gauss(1, 0.01)), Sample(1e8 * factor * draw.gauss(1, 0.01))) for _ in range(PAIRS)
        )
        move = session.report(WindowResult(pairs))
        assert move.samples == pairs
    return order


def test_every_cycle_measures_every_arm_in_an_order_of_its_own() -> None:
    session = ComparisonSession(ARMS[:3], SITES, cycles=6, seed=1)
    order = measure(session, random.Random(1))
    cycles = [tuple(order[at : at + 3]) for at in range(0, 18, 3)]
    assert all(sorted(cycle) == ["stock", "three", "two"] for cycle in cycles)
    assert len(set(cycles)) > 2
    assert measure(ComparisonSession(ARMS[:3], SITES, cycles=6, seed=1), random.Random(2)) == order, "by seed"
    assert session.outcome is not None
    assert session.outcome.assignment.is_stock
    assert session.outcome.verdict == "compared"


def test_ratios_are_of_all_pairs_so_far_and_a_slow_arm_is_spared() -> None:
    session = ComparisonSession(ARMS, SITES, cycles=8)
    order = measure(session, random.Random(3))
    assert order.count("slow") == SLOW_CYCLES
    assert order.count("two") == 8
    last = {move.arm: move for move in session.moves}
    assert last["two"].ratio == pytest.approx(0.9, rel=0.02)
    assert last["two"].ratio_low is not None
    assert last["two"].ratio_low < 0.9 < (last["two"].ratio_high or 0)
    assert {move.purpose for move in session.moves if move.arm == "stock"} == {"baseline"}
    assert session.outcome is not None
    assert "slow" in session.outcome.reason
    assert session.outcome.regret_iterations > SLOW_CYCLES


def test_of_a_sweep_what_is_surely_not_the_best_is_not_measured_to_the_end() -> None:
    """10 % lies between the two, far beyond 1 % of noise. An arm by itself is measured whatever another one shows."""
    swept = [replace(one, sweep="static") for one in ARMS[1:3]]
    session = ComparisonSession([ARMS[0], *swept], SITES, cycles=8)
    order = measure(session, random.Random(3))
    assert (order.count("stock"), order.count("two"), order.count("three")) == (8, 8, SLOW_CYCLES)
    assert session.outcome is not None
    assert session.outcome.reason.endswith("surely faster: three")
    assert measure(ComparisonSession(ARMS[:3], SITES, cycles=8), random.Random(3)).count("three") == 8


def test_what_was_left_out_of_a_sweep_rules_out_no_other() -> None:
    """The first is surely behind after three cycles; from then on the machine is such that the second looks slower than
    the first ever did. One of a sweep is measured to the end, whatever happens."""
    first, second = (replace(arm(name, channels), sweep="static") for name, channels in (("a", 2), ("b", 3)))
    session = ComparisonSession([first, second], SITES, cycles=12)
    seen = []
    while (request := session.request()) is not None:
        seen.append(request.why.removeprefix("arm "))
        factor = 1.1 if seen[-1] == "a" else 1.05 if len(seen) <= 2 * SLOW_CYCLES else 1.2
        session.report(WindowResult(((Sample(1e8), Sample(1e8 * factor)),) * PAIRS))
    assert seen.count("a") == SLOW_CYCLES
    assert seen.count("b") == 12


def test_the_best_of_a_sweep_is_measured_to_the_end() -> None:
    """Two equal settings, 1.4 % of noise a pair: one of the two leaves in very few of 200 comparisons."""
    equal = [Arm(name, Assignment((CommConfig(channels=3),) * SITES), "static") for name in ("one", "other")]
    counts = [
        min(measure(ComparisonSession([ARMS[0], *equal], SITES, cycles=8, seed=seed), random.Random(seed)).count(name)
            for name in ("one", "other"))
        for seed in range(200)
    ]  # fmt: skip
    assert sum(count < 8 for count in counts) <= 10


def test_a_comparison_that_sees_nothing_gives_up_and_one_that_is_wrapped_up_keeps_its_pairs() -> None:
    blind = ComparisonSession(ARMS, SITES, cycles=100)
    for _ in range(MISSING_LIMIT):
        assert blind.report(WindowResult(())).verdict == "missing"
    assert blind.request() is None
    assert blind.outcome is not None
    assert "could not be measured" in blind.outcome.reason
    hurried = ComparisonSession(ARMS, SITES, cycles=100)
    hurried.wrap_up("time is over")
    hurried.report(WindowResult(((Sample(1.0), Sample(1.0)),)))
    assert hurried.request() is None
    assert hurried.outcome is not None
    assert hurried.outcome.reason == "time is over"
    with pytest.raises(RuntimeError):
        hurried.report(WindowResult(()))
