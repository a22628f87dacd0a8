# SPDX-License-Identifier: Apache-2.0
"""What the controller writes of an iteration it has found."""

from __future__ import annotations

from pathlib import Path

import pytest

from lagom import journal
from lagom.controller.event_log import EventLog
from lagom.controller.measure import Tier
from lagom.controller.stock_observations import StockObservations
from lagom.program import CallProgram, cut_into_sites
from lagom.records import Function
from lagom.wire.views import CommunicatorView

CALLS = ((Function.ALL_GATHER, 128 << 20), (Function.REDUCE_SCATTER, 128 << 20))
VIEW = CommunicatorView(0, 1, 2, 1, 0, "fsdp")


@pytest.mark.parametrize(
    ("simulated", "iteration_ns", "text"),
    [
        (False, 75.9e6, "an iteration is 2 calls (3 with small ones) and takes 75.9 ms; 2 of 2 sites"),
        (True, None, "an iteration is 2 calls (3 with small ones); 2 of 2 sites"),
    ],
)
def test_an_iteration_of_simulated_kernels_is_not_timed_by_the_hosts_clock(
    simulated: bool, iteration_ns: float | None, text: str, tmp_path: Path
) -> None:
    """Virtual ranks call as fast as they can: 0.6 ms by the host's clock stood beside a Z of 626.56 ms."""
    tuned = cut_into_sites(CallProgram(CALLS, 0, 3, 9, 75.9e6))
    seen = StockObservations()
    with journal.Journal(tmp_path) as log:
        EventLog(log, lambda: None).program(
            VIEW, tuned, seen.problem(tuned, []), Tier.TIMELINE, seen, simulated_clock=simulated
        )
    program, note = journal.read(journal.find_log(tmp_path))
    assert program.iteration_ns == iteration_ns
    assert text in note.text
