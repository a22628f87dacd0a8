# SPDX-License-Identifier: Apache-2.0
"""What `lagom run` says last: a line is cut at its end, so the figures that matter must come before that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lagom import journal
from lagom.journal import RunState
from lagom.launch.job_plan import JobOptions, JobPlan, plan_job
from lagom.launch.status_text import COLUMNS, PREFIX, describe_end, describe_plan

SPEEDUP = {"speedup": 1.0424, "speedup_low": 1.0321, "speedup_high": 1.0542}
BEST = {"best_speedup": 1.0333, "best_low": 1.0301, "best_high": 1.0371}


def plan_of(job_options: JobOptions = JobOptions()) -> JobPlan:  # noqa: B008 (frozen)
    return plan_job(job_options, {}, Path("/opt/lagom/_lib/libnccl-tuner-lagom.so"))


def state(*events: journal.Event) -> RunState:
    start = journal.JobStart(job="j", mode="tune")
    comm = journal.Communicator(communicator=0, comm_id="0x7", ranks=2, nodes=1)
    return RunState([start, journal.RankJoined(process=0, pid=1), comm, *events, journal.JobEnd(reason="over")])


@pytest.mark.parametrize(
    ("fields", "figures"),
    [
        ({"verdict": "improved", **SPEEDUP, "payback_iterations": 5263.0}, "paid back after 5,300 iterations"),
        ({"verdict": "stopped", **BEST, "missing_pairs": 10}, "1.033x [1.030, 1.037], 10 pairs missing"),
    ],
)
def test_the_last_figure_is_not_cut_off(fields: dict[str, Any], figures: str) -> None:
    program = journal.Program(communicator=0, period=4, sites=(), tier="timeline")
    run = state(program, journal.Outcome(communicator=0, reason="", **fields))
    line = describe_end(plan_of(), run, 0, 3600.0)
    assert line.endswith(figures)
    assert len(PREFIX) + len(line) <= COLUMNS


def test_a_job_that_was_only_to_be_recorded_did_what_was_planned() -> None:
    plan = plan_of(JobOptions(recorded=20))
    assert describe_end(plan, state(), 0, 15.0) == "ended: exit 0 after 15 s; nothing was tuned, as planned"


def test_a_job_that_is_off_names_the_folder_that_was_asked_for() -> None:
    plan = plan_of(JobOptions(mode="off", directory=Path("here")))
    assert describe_plan(plan) == ["plan: off: the plugin does nothing; NCCL chooses; log here"]


def test_start_settings_of_a_config_that_the_ranks_refuse_were_in_force_all_the_same() -> None:
    why = "saved config refused: made for 2 ranks, this job has 4; NCCL chooses"
    run = state(journal.Passthrough(reason=why, cause="config_refused"))
    cached = replace(plan_of(), mode="replay", cached_by="lagom tune on 2026-11-25", sets_start=True)
    line = describe_end(cached, run, 0, 12.0)
    assert line.startswith("ended: exit 0 after 12 s; start settings were in force, not at the next start: made for 2 ")
    assert "NCCL chooses" not in line
    assert len(PREFIX) + len(line) <= COLUMNS
    named = describe_end(replace(cached, cached_by=""), run, 0, 12.0)
    assert named.endswith("start settings were in force: made for 2 ranks, this job has 4")
    assert "refused" in describe_end(replace(cached, sets_start=False), run, 0, 12.0)
