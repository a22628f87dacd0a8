# SPDX-License-Identifier: Apache-2.0
"""What a rank leaves on record when it is killed: never a call whose shape is not known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lagom.sim.virtual.call_log import CallLog
from lagom.sim.virtual.pacing import Rendezvous
from lagom.sim.virtual.rank import Rank
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls

COMM_ID = 0x5A7E
SPEC = JobSpec(1, (CommunicatorSpec(COMM_ID, "pg", fsdp_like_calls(2, 32 << 20)),), iterations=3, plugin=False)


class Killed(BaseException):
    """As SIGKILL, at a place of our choice."""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_rank_killed_while_it_saves_has_left_the_shape_of_every_call(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = CallLog.save

    def save_and_die(log: CallLog) -> None:
        if moment == "after":
            save(log)
        raise Killed

    monkeypatch.setattr(CallLog, "save", save_and_die)
    rank = Rank(replace(SPEC, keep_plans=True), 0, Rendezvous.make(1), tmp_path)
    with pytest.raises(Killed):
        rank.run()
    calls, shapes = tmp_path / f"{COMM_ID:x}.0.calls", tmp_path / f"{COMM_ID:x}.0.shapes"
    on_record = calls.stat().st_size if calls.exists() else 0
    assert shapes.stat().st_size >= on_record
    assert (on_record > 0) == (moment == "after")
