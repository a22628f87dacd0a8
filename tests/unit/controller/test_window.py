# SPDX-License-Identifier: Apache-2.0
"""A window's end: what is taken of a lease that is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from lagom.controller.measure import Tier, WindowMeter
from lagom.controller.record_feed import RecordFeed
from lagom.controller.window import LOOK_SECONDS, STALLED_SECONDS, TAIL_SECONDS, Window
from lagom.records import Assignment
from lagom.search import WindowRequest
from lagom.wire.layout import CALL_CANDIDATE, CALL_PROGRAM, CALL_RECORD

EPOCH, CALLS, PAIRS = 7, 12, 2  # calls of an iteration
END_CALL = CALLS * (2 * PAIRS * 20 + 1)


class Passed:
    """A region whose ranks have passed the end of the lease, by ``beyond`` calls."""

    beyond = 100 * CALLS

    def counters(self, communicator: int) -> tuple[int, int, int]:
        return 0, END_CALL + self.beyond, END_CALL + self.beyond


def window_of(region: Passed) -> Window:
    """One of PAIRS pairs on the host's calls, agreed on."""
    stock = Assignment.stock(1)
    window = Window(
        region=cast(Any, region),
        communicator=0,
        slots={0: 0},
        tuned=cast(Any, SimpleNamespace(program=SimpleNamespace(calls_per_iteration=CALLS))),
        request=WindowRequest(1, stock, stock, PAIRS, "trial", ""),
        tier=Tier.HOST,
        new_offer=cast(Any, None),
        should_cut=lambda pairs: False,
        subscribe=RecordFeed().subscribe,
    )
    window._meter, window._end_call = WindowMeter(EPOCH, {0: 0}, 1, Tier.HOST), END_CALL
    return window


def under_the_lease(evaluation_at: int) -> np.ndarray[Any, Any]:
    """What a rank recorded: 13 calls of an evaluation before one iteration, and no call behind the lease's end."""
    rows = []
    for iteration in range(END_CALL // CALLS):
        shift = 13 if iteration >= evaluation_at else 0
        of_candidate = CALL_CANDIDATE if iteration // 20 in (1, 2) else 0
        rows += [
            (iteration * CALLS + position + shift, EPOCH, position, iteration, CALL_PROGRAM | of_candidate)
            for position in range(CALLS)
        ]
        if iteration == evaluation_at:
            rows += [(iteration * CALLS + odd, EPOCH, 0, 0, 0) for odd in range(13)]
    records = np.zeros(len(rows), CALL_RECORD)
    for name, values in zip(("call", "epoch", "position", "iteration", "flags"), zip(*rows, strict=True), strict=True):
        records[name] = values
    records["time_ns"] = records["call"] * 1000
    return np.sort(records[records["call"] < END_CALL], order="call")


@pytest.mark.parametrize("evaluation_at", [2, 30, 50])
def test_an_evaluation_that_moves_the_last_iterations_behind_the_lease_costs_no_pair(evaluation_at: int) -> None:
    """Two iterations of the last block never came under the lease: what did come of it is enough."""
    window = window_of(Passed())
    window._meter.add_calls(0, under_the_lease(evaluation_at))
    results = [window.step(1.0 + look * LOOK_SECONDS * 2) for look in range(60)]
    result = next(found for found in results if found is not None)
    assert len(result.pairs) == PAIRS


def test_ranks_that_stand_still_behind_the_lease_may_have_more_to_show() -> None:
    """Beside other work a rank may not run for seconds, and the last kernels come as it goes on."""
    region = Passed()
    region.beyond = 1
    window = window_of(region)
    window._meter.add_calls(0, under_the_lease(2)[: -30 * CALLS])
    assert window.step(1.0) is None
    assert window.step(1.0 + 5 * TAIL_SECONDS) is None
    window._meter.add_calls(0, under_the_lease(2)[-30 * CALLS :])
    region.beyond = 3 * CALLS
    result = window.step(1.0 + 6 * TAIL_SECONDS)
    assert result is not None
    assert len(result.pairs) == PAIRS


def test_ranks_that_stand_still_for_good_end_the_window() -> None:
    region = Passed()
    region.beyond = 0
    window = window_of(region)
    assert window.step(1.0) is None
    assert window.step(1.0 + STALLED_SECONDS) is None
    result = window.step(1.1 + STALLED_SECONDS)
    assert result is not None
    assert result.pairs == ()
