# SPDX-License-Identifier: Apache-2.0
"""Who is waited for, and what is never tuned and said so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lagom.controller.joining import Joining
from lagom.controller.learning import Learning
from lagom.controller.phase import Stopped
from lagom.controller.pinning import Pinning
from lagom.controller.record_feed import RecordFeed
from lagom.wire.library import library
from lagom.wire.views import CommunicatorView


class EventLog:
    """Remembers why something stood aside."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def passthrough(self, reason: str, view: CommunicatorView, cause: str) -> None:
        """One more reason."""
        self.reasons.append(reason)


def state(
    *,
    index: int = 0,
    nodes: int = 1,
    slots: int = 2,
    recorded: int = 2,
    double: bool = False,
    claimed: bool = True,
    rules: tuple[str, ...] = (),
) -> Any:
    """A communicator of two ranks, of which some have come."""
    there = [SimpleNamespace(index=i, process=i, records_calls=i < recorded) for i in range(slots)]
    process = SimpleNamespace(knobs=library().LAGOM_KNOB_ONLINE)
    region = SimpleNamespace(
        slots=lambda _: there,
        processes=lambda: [process],
        has_double=lambda _: double,
        claim=lambda _: claimed,
    )
    return SimpleNamespace(
        view=CommunicatorView(index, 42, 2, nodes, 0, ""),
        region=region,
        events=EventLog(),
        options=SimpleNamespace(stable_iterations=20, record=False),
        records=RecordFeed(),
        record=lambda _: None,
        record_calls=lambda: None,
        may_tune=False,
        rules=rules,
        slots={},
    )


def test_ranks_that_are_missing_are_waited_for() -> None:
    assert Joining(state(slots=1, recorded=1)).step(0.0) is None
    assert isinstance(Joining(state()).step(0.0), Learning)


def test_a_rank_that_publishes_what_it_replays_is_waited_for() -> None:
    assert Joining(state(claimed=False)).step(0.0) is None


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"nodes": 2}, "spans 2 nodes"),
        ({"index": 64}, "room to tune 64 communicators"),
        ({"double": True}, "registered twice"),
        ({"double": True, "slots": 3}, "registered twice"),
        ({"recorded": 1}, "room to record the calls of 132 ranks"),
    ],
)
def test_what_cannot_be_tuned_is_said(what: dict[str, Any], reason: str) -> None:
    here = state(**what)
    stopped = Joining(here).step(0.0)
    assert isinstance(stopped, Stopped)
    assert stopped.why == "passthrough"
    (said,) = here.events.reasons
    assert reason in said


def test_rules_need_no_records() -> None:
    assert isinstance(Joining(state(recorded=0, rules=("nc=4",))).step(0.0), Pinning)
