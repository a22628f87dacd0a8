# SPDX-License-Identifier: Apache-2.0
"""Offers: retried with more room, withdrawn in silence, never past what the region refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lagom.controller.publication import DIFFERENT_CALLS, MAX_ATTEMPTS, OFFER_SECONDS, Margin, Offer, Progress
from lagom.wire.plan import Plan
from lagom.wire.region import Publication, Refusal, Verdict


class FakeRegion:
    """What an offer sees of a region: verdicts and results played from lists."""

    def __init__(self, verdicts: list[Verdict], results: list[Publication] | None = None) -> None:
        self.verdicts, self.results = verdicts, results or []
        self.starts: list[int] = []
        self.calls, self.goes_on = 100, False
        self.ready = True
        self.refused: Refusal | None = None
        self.replaced = self.parted = False

    def ready_to_publish(self, communicator: int) -> bool:
        return self.ready

    def counters(self, communicator: int) -> tuple[int, int, int]:
        self.calls += self.goes_on
        return 2, self.calls - 1, self.calls

    def publish(self, communicator: int, plan: Plan, comm_id: int = 0) -> tuple[Publication, int]:
        self.starts.append(plan.start_call)
        return (self.results.pop(0) if self.results else Publication.OK), len(self.starts)

    def poll(self, communicator: int) -> Verdict:
        return self.verdicts.pop(0)

    def epoch(self, communicator: int) -> int:
        return 0 if self.replaced else len(self.starts)

    def histories_differed(self, communicator: int, epoch: int) -> bool:
        return self.parted

    def refusal(self, communicator: int, epoch: int) -> Refusal | None:
        return self.refused

    def withdraw(self, communicator: int) -> Verdict:
        return Verdict.ABORTED


@pytest.fixture
def offer() -> Callable[..., tuple[Offer, list[str]]]:
    def make(
        region: FakeRegion, start_after: Callable[[int], int | None] = lambda call: call
    ) -> tuple[Offer, list[str]]:
        told: list[str] = []

        def on_event(kind: str, **facts: Any) -> None:
            told.append(kind)

        return Offer(region, 0, Margin(), 10, lambda start: Plan(start), start_after, on_event), told  # type: ignore[arg-type]

    return make


def drive(offer: Offer, steps: int, seconds: float = 0.01) -> Progress:
    progress = Progress.PENDING
    for step in range(steps):
        progress = offer.step(step * seconds)
        if progress is not Progress.PENDING:
            break
    return progress


def test_a_plan_starts_past_the_fastest_rank_by_a_margin(offer: Any) -> None:
    region = FakeRegion([Verdict.OPEN, Verdict.COMMITTED])
    one, told = offer(region)
    assert drive(one, 5) is Progress.COMMITTED
    assert region.starts[0] >= region.calls + 10
    assert told == ["plan_published", "plan_committed"]


def test_each_abort_doubles_the_room(offer: Any) -> None:
    region = FakeRegion([Verdict.ABORTED, Verdict.ABORTED, Verdict.COMMITTED])
    one, told = offer(region)
    assert drive(one, 10) is Progress.COMMITTED
    room = [start - region.calls for start in region.starts]
    assert room[1] == 2 * room[0]
    assert room[2] == 4 * room[0]
    assert told.count("plan_aborted") == 2


def test_an_offer_that_came_too_late_doubles_the_room_too(offer: Any) -> None:
    """A job of 2,000 iterations a second was past every start before it was published, for 14 seconds."""
    region = FakeRegion([Verdict.COMMITTED], [Publication.LATE] * 3)
    one, told = offer(region)
    assert drive(one, 10) is Progress.COMMITTED
    room = [start - region.calls for start in region.starts]
    assert room == [room[0] * factor for factor in (1, 2, 4, 8)]
    assert told == ["plan_published", "plan_committed"]


def test_a_job_that_keeps_aborting_is_left_alone(offer: Any) -> None:
    region = FakeRegion([Verdict.ABORTED] * 100)
    one, _ = offer(region)
    assert drive(one, 100) is Progress.FAILED
    assert len(region.starts) == MAX_ATTEMPTS
    assert one.failure


def test_a_refusal_is_told_and_not_tried_again(offer: Any) -> None:
    region = FakeRegion([Verdict.ABORTED] * 10)
    region.refused = Refusal("this rank cannot set threads", may_pass=False)
    one, told = offer(region)
    assert drive(one, 10) is Progress.FAILED
    assert len(region.starts) == 1
    assert "cannot set threads" in one.failure
    assert told == ["plan_published", "plan_aborted"]


def test_a_rank_that_came_too_late_is_asked_again(offer: Any) -> None:
    region = FakeRegion([Verdict.ABORTED, Verdict.COMMITTED])
    region.refused = Refusal("its history reaches further back than is remembered", may_pass=True)
    one, _ = offer(region)
    assert drive(one, 10) is Progress.COMMITTED


def test_an_offer_nobody_answers_is_withdrawn(offer: Any) -> None:
    region = FakeRegion([Verdict.OPEN] * 1000)
    region.goes_on = True
    one, told = offer(region)
    drive(one, 3, seconds=OFFER_SECONDS)
    assert "plan_aborted" in told


@pytest.mark.parametrize("how", ["open", "not passed yet"])
def test_while_no_rank_makes_a_call_an_offer_waits(offer: Any, how: str) -> None:
    """A checkpoint of an hour is no reason to give up: the first call after it answers."""
    region = FakeRegion([Verdict.OPEN] * 200)
    region.ready = how == "open"
    one, told = offer(region)
    assert drive(one, 180, seconds=OFFER_SECONDS) is Progress.PENDING
    assert one.waits
    assert told == (["plan_published"] if how == "open" else [])
    region.goes_on = region.ready = True
    region.verdicts = [Verdict.COMMITTED]
    end = drive(one, 3, seconds=0.01)
    assert end is Progress.COMMITTED
    assert not one.waits


@pytest.mark.parametrize("why", ["ready", "irregular", "late"])
def test_what_never_gets_possible_ends_with_its_reason(offer: Any, why: str) -> None:
    region = FakeRegion([], [Publication.LATE] * 100)
    region.goes_on, region.ready = True, why != "ready"
    one, told = offer(region, (lambda call: None) if why == "irregular" else (lambda call: call))
    assert drive(one, 10, seconds=OFFER_SECONDS / 4) is Progress.FAILED
    assert one.failure
    assert told == []


def test_an_unsound_plan_is_not_tried_again(offer: Any) -> None:
    region = FakeRegion([], [Publication.BAD_PLAN])
    one, _ = offer(region)
    assert drive(one, 5) is Progress.FAILED
    assert len(region.starts) == 1


def test_ranks_that_have_parted_are_named_as_the_reason(offer: Any) -> None:
    region = FakeRegion([Verdict.ABORTED] * MAX_ATTEMPTS)
    region.parted = True
    one, _ = offer(region)
    assert drive(one, 5 * MAX_ATTEMPTS) is Progress.FAILED
    assert one.failure == DIFFERENT_CALLS


def test_a_communicator_that_was_destroyed_gets_no_plan(offer: Any) -> None:
    region = FakeRegion([], [Publication.REPLACED])
    one, told = offer(region)
    assert drive(one, 5) is Progress.FAILED
    assert "destroyed" in one.failure
    assert told == []


def test_what_the_next_owner_of_the_entry_decided_is_not_our_plan(offer: Any) -> None:
    region = FakeRegion([Verdict.COMMITTED])
    one, told = offer(region)
    assert drive(one, 1) is Progress.PENDING
    region.replaced = True
    assert drive(one, 1) is Progress.FAILED
    assert told == ["plan_published"]
