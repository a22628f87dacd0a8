# SPDX-License-Identifier: Apache-2.0
"""A window's plan: it lasts as long as its pairs need and not an iteration less, and a bad candidate ends it early."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from lagom.controller.measure import Pacing, Tier, WindowMeter, kernel_starts
from lagom.controller.publication import Progress
from lagom.controller.record_feed import RecordFeed
from lagom.controller.window import LOOK_SECONDS, Window, lease
from lagom.records import Assignment
from lagom.search import WindowRequest, WindowResult
from lagom.wire.layout import KERNEL_SPAN, SPAN_COLLECTIVE
from tests.unit.controller.test_measure import CALLS as CALLS_OF_THE_PROGRAM
from tests.unit.controller.test_measure import EPOCH, call_records, kernel_spans

STOCK = Assignment.stock(1)


def tuned(calls: int) -> Any:
    """A program of ``calls`` calls at one site."""
    program = SimpleNamespace(calls_per_iteration=calls)
    return SimpleNamespace(program=program, sites=(), positions=(), tuned=1, widen=lambda assignment: assignment)


def request(pairs: int, purpose: str = "trial") -> WindowRequest:
    return WindowRequest(1, STOCK, STOCK, pairs, purpose, "")


@pytest.mark.parametrize("tier", list(Tier))
@pytest.mark.parametrize("pairs", [1, 2, 3, 8])
def test_a_lease_holds_every_block_and_one_iteration_that_ends_the_last(tier: Tier, pairs: int) -> None:
    """An iteration is over when the next one begins: without that one the last pair would be lost."""
    pacing, calls, start = Pacing.of(tier), 7, 1000
    plan = lease(tuned(calls), request(pairs), pacing, start)
    whole_rounds = pairs + pairs % 2
    assert plan.end_call == start + (2 * whole_rounds * pacing.block + 1) * calls
    assert plan.alternate_iterations == pacing.block
    iterations = (plan.end_call - start) // calls
    labels = [(iteration // pacing.block) % 4 in (1, 2) for iteration in range(iterations)]
    assert not labels[-1], "what ends the last block is the incumbent's, as is everything behind the lease"
    labels += [False, False]
    meter = WindowMeter(EPOCH, {0: 0}, 2, tier)
    times = np.arange(len(labels), dtype=np.int64) * 1_000_000
    meter.add_calls(0, call_records(labels, times))
    meter.add_spans(0, kernel_spans(0, times))
    assert len(meter.pairs()) == whole_rounds, "what ran under the lease is enough for every pair it was made for"


class Running:
    """A region whose ranks are in the middle of the lease."""

    def counters(self, communicator: int) -> tuple[int, int, int]:
        return 1, 10, 10


class Agreed:
    """An offer that every rank has taken."""

    failure, epoch = "", EPOCH

    def __init__(self, make: Any, purpose: str) -> None:
        self.plan, self.purpose = make(100), purpose

    def step(self, now: float) -> Progress:
        return Progress.COMMITTED


def test_a_window_is_cut_as_soon_as_the_search_says_so() -> None:
    """The incumbent's plan is offered at once, and what was measured until then is the result."""
    offers: list[Agreed] = []

    def offered(make: Any, purpose: str) -> Agreed:
        offers.append(Agreed(make, purpose))
        return offers[-1]

    asked: list[int] = []
    feed = RecordFeed()
    window = Window(
        region=cast(Any, Running()), communicator=0, slots={0: 0}, tuned=tuned(CALLS_OF_THE_PROGRAM),
        request=request(8), tier=Tier.TIMELINE, new_offer=cast(Any, offered),
        should_cut=lambda pairs: asked.append(len(pairs)) or len(pairs) >= 2, subscribe=feed.subscribe,
    )  # fmt: skip
    assert window.step(0.0) is None
    labels = [(iteration // 2) % 4 in (1, 2) for iteration in range(13)]
    times = np.arange(len(labels), dtype=np.int64) * 1_000_000
    feed.add_calls(0, call_records(labels, times))
    feed.add_spans(0, kernel_spans(0, times))
    results = [window.step(1.0 + look * 2 * LOOK_SECONDS) for look in range(3)]
    result = next((found for found in results if found is not None), None)
    assert asked, "the search was not asked"
    assert isinstance(result, WindowResult), "the window went on although the search had seen enough"
    assert result.ended_early
    assert len(result.pairs) >= 2
    assert [offer.purpose for offer in offers] == ["trial", "cut"]


def test_a_call_is_timed_by_the_kernel_of_its_own_communicator() -> None:
    """Two communicators of one process have calls of the same numbers at other times."""
    spans = np.zeros(6, KERNEL_SPAN)
    spans["kind"] = SPAN_COLLECTIVE
    spans["slot"] = [4, 5, 4, 5, 4, 5]
    spans["call"] = [10, 10, 11, 11, 12, 12]
    spans["start_ns"] = [100, 1, 200, 2, 300, 3]
    calls = np.asarray([10, 11, 12], dtype=np.uint64)
    for slot, wanted in ((4, [100, 200, 300]), (5, [1, 2, 3])):
        starts, seen = kernel_starts(spans, slot, calls)
        assert starts.tolist() == wanted
        assert seen.all()
    assert not kernel_starts(spans, 6, calls)[1].any()
