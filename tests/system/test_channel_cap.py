# SPDX-License-Identifier: Apache-2.0
"""A user's NCCL_MAX_CTAS (or NCCL_MAX_NCHANNELS) wins: NCCL builds no more channels, and a rule, a saved config or
head-room that asks for more does not get them. The search does not even try.

Where a build of NCCL takes the tuner's number unchecked, the plugin bounds it: ``native/plugin_built_channels.c``.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lagom import journal
from lagom.headroom import Headroom
from lagom.records import Function
from lagom.sim.virtual.call_log import load, unpack
from lagom.sim.virtual.job_controller import JobController
from lagom.sim.virtual.selection import Fabric
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls
from lagom.sim.virtual.virtual_job import VirtualJob
from tests.system.play import UNHURRIED, Played, play
from tests.system.support import Job
from tests.waiting import wait_until

COMM_ID, RANKS, BUILT, CAP = 0xCA9, 2, 24, 6
SPEC = JobSpec(
    RANKS,
    (CommunicatorSpec(COMM_ID, "pg", fsdp_like_calls(3, 64 << 20)),),
    iterations=1 << 40,
    fabric=Fabric(channels=BUILT),
)
CAPS = ("NCCL_MAX_CTAS", "NCCL_MAX_NCHANNELS")
TRIALS = 10  # that name a number of channels, unless the search is over before


def channels_used(folder: Path, comm_id: int = COMM_ID) -> set[int]:
    """Over all ranks."""
    words = (word for rank in range(RANKS) for word in load(folder, comm_id, rank))
    return {unpack(word).channels or 0 for word in words}


@pytest.mark.parametrize("cap", CAPS)
@pytest.mark.parametrize("room", [False, True], ids=["as built", "head-room"])
def test_a_rule_that_asks_for_more_does_not_get_it(cap: str, room: bool, job: Job, tmp_path: Path) -> None:
    wanted = Headroom(32, BUILT).environment() if room else {}
    environ = job.with_(**wanted, **{cap: str(CAP)})
    with JobController(environ, job.folder, ("--set", "any:any:nc=20")) as controller:
        controller.wait_for_region()
        with VirtualJob(SPEC, tmp_path / "ranks", environ) as ranks:
            log = job.folder / journal.LOG_NAME
            wait_until(lambda: log.exists() and "plan_committed" in log.read_text(), "the plan")
            plan = next(event for event in journal.read(log) if isinstance(event, journal.PlanCommitted))
            assert ranks.wait_iteration(plan.start_call // len(SPEC.communicators[0].calls) + 2)
            ranks.stop()
            assert not all(summary.was_stock for summary in ranks.finish()), "the rule was never in force"
            assert ranks.differences() == []
    assert max(channels_used(tmp_path / "ranks")) == CAP


def test_a_saved_config_that_asks_for_more_does_not_get_it(job: Job, tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text(f"lagom-config 1\ncommunicator ranks={RANKS} nodes=1 ordinal=0\nrule any 64K - nc=20\nend\n")
    spec = replace(SPEC, iterations=60)
    for name, most in (("free", 20), ("capped", CAP)):
        environ = job.with_(LAGOM_MODE="replay", LAGOM_CONFIG=str(config))
        with VirtualJob(spec, tmp_path / name, environ | ({"NCCL_MAX_CTAS": str(CAP)} if most == CAP else {})) as ranks:
            assert not any(summary.was_stock for summary in ranks.finish())
        assert most in channels_used(tmp_path / name)
    assert max(channels_used(tmp_path / "capped")) == CAP


@pytest.mark.slow
def test_a_search_tries_no_more(job: Job, tmp_path: Path) -> None:
    """Of a job that does nothing but communicate, where every further channel would help."""
    capped = replace(job, environ=job.with_(NCCL_MAX_CTAS=str(CAP)))
    gathers = CommunicatorSpec(COMM_ID, "pg", ((int(Function.ALL_GATHER), 256 << 20),) * 6)
    spec = replace(SPEC, communicators=(gathers,), noise=0.003)

    def tried(seen: Played) -> list[int]:
        moves = seen.of(journal.Move)
        return [config.channels for move in moves for config in move.candidate if config.channels is not None]

    def is_enough(seen: Played) -> bool:
        return len(tried(seen)) >= TRIALS or bool(seen.of(journal.Outcome))

    played = play(spec, capped, tmp_path, *UNHURRIED, until=is_enough)
    assert max(tried(played)) <= CAP
    assert max(channels_used(tmp_path)) == CAP
