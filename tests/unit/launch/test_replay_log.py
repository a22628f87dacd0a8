# SPDX-License-Identifier: Apache-2.0
"""What the launcher writes of a replayed saved config, from what it reads in the ranks' shared memory."""

from __future__ import annotations

from pathlib import Path

from lagom.journal import Passthrough
from lagom.journal.reader import Tail
from lagom.launch.job_plan import JobOptions, plan_job
from lagom.launch.replay_log import UNMATCHED_CALLS, ReplayLog
from lagom.wire.library import library
from tests.unit.watch.pictures import group, plan, region, slot

FEW, MANY = UNMATCHED_CALLS - 1, UNMATCHED_CALLS + 50


def test_a_config_of_another_program_is_reported_once_every_rank_has_made_enough_calls(tmp_path: Path) -> None:
    """A rank may be many calls ahead of another: the one behind may still begin the saved config's program."""
    options = JobOptions(mode="replay", config=tmp_path / "job.lagom", directory=tmp_path)
    log = ReplayLog(plan_job(options, {}, Path("/opt/lagom/_lib/libnccl-tuner-lagom.so")), "a job without a region")
    events = Tail(tmp_path)

    def reports(*calls: int) -> list[str]:
        slots = (slot(rank, calls=made, epoch=1) for rank, made in enumerate(calls))
        held = group(*slots, epoch=1, state=library().LAGOM_COMMITTED, held=plan(1))
        log._look(region(held, controller=False))
        return [event.reason for event in events.unread() if isinstance(event, Passthrough)]

    assert reports(MANY, FEW) == []
    assert reports(MANY + 1, MANY) == [
        f"saved config of another program: no iteration of its 3 calls in {MANY} calls",
    ]
    assert reports(2 * MANY, 2 * MANY) == [], "it is reported once"
    log.end(0)
