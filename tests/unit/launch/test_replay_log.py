# SPDX-License-Identifier: Apache-2.0
"""What the launcher writes of a replayed saved config, from what it reads in the ranks' shared memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from lagom.journal import Passthrough, RunState, verdict_of
from lagom.journal.reader import Tail
from lagom.launch.job_plan import JobOptions, plan_job
from lagom.launch.replay_log import NOT_AGREED, UNMATCHED_CALLS, ReplayLog
from lagom.wire.library import library
from lagom.wire.peek import RegionView
from tests.unit.watch.pictures import group, plan, region, slot

FEW, MANY = UNMATCHED_CALLS - 1, UNMATCHED_CALLS + 50


@pytest.fixture
def log(tmp_path: Path) -> ReplayLog:
    options = JobOptions(mode="replay", config=tmp_path / "job.lagom", directory=tmp_path)
    return ReplayLog(plan_job(options, {}, Path("/opt/lagom/_lib/libnccl-tuner-lagom.so")), "a job without a region")


def pictured(*calls: int, committed: bool = True) -> RegionView:
    """Ranks that have made so many calls and begun no iteration of a plan of three, which all agreed on or not."""
    slots = (slot(rank, calls=made, epoch=1 if committed else 0) for rank, made in enumerate(calls))
    state = library().LAGOM_COMMITTED if committed else library().LAGOM_PREPARED
    return region(group(*slots, epoch=1, state=state, held=plan(1)), controller=False)


def test_a_config_of_another_program_is_reported_once_every_rank_has_made_enough_calls(
    tmp_path: Path, log: ReplayLog
) -> None:
    """A rank may be many calls ahead of another: the one behind may still begin the saved config's program."""
    events = Tail(tmp_path)

    def reports(*calls: int) -> list[str]:
        log._look(pictured(*calls))
        return [event.reason for event in events.unread() if isinstance(event, Passthrough)]

    assert reports(MANY, FEW) == []
    assert reports(MANY + 1, MANY) == [
        f"saved config of another program: no iteration of its 3 calls in {MANY} calls",
    ]
    assert reports(2 * MANY, 2 * MANY) == [], "it is reported once"
    log.end(0)


@pytest.mark.parametrize(
    ("committed", "reason"),
    [(True, "no iteration of the saved config's 3 calls was seen before the job ended"), (False, NOT_AGREED)],
)
def test_a_job_too_short_to_tell_is_not_said_to_have_used_its_saved_config(
    tmp_path: Path, log: ReplayLog, *, committed: bool, reason: str
) -> None:
    log._look(pictured(FEW, FEW, committed=committed))
    log.end(0)
    events = Tail(tmp_path).unread()
    assert [(event.reason, event.cause) for event in events if isinstance(event, Passthrough)] == [
        (reason, "not_agreed")
    ]
    assert verdict_of(RunState(events)) == "not_tuned", "not replayed"
