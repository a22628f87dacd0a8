# SPDX-License-Identifier: Apache-2.0
"""The processes of a schedule, one after the other: what is said of them, and when no more are started."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lagom.bench.arm_words import parse_arms
from lagom.bench.schedule import BenchSchedule
from lagom.experiment.arm import Task
from lagom.experiment.request import Request
from lagom.experiment.runner import Clock, run_schedule
from lagom.experiment.store import RunRecord, Store
from lagom.experiment.trial import Say


def run(folder: Path, clock: Clock) -> tuple[list[str], list[float | None]]:
    """A round of `lagom bench --arms off`: what was said, and the seconds that each process was given."""
    schedule, said, seconds = BenchSchedule(Request(("train",), folder), parse_arms(["off"]), rounds=1), [], []

    def run_one(request: Request, task: Task, store: Store, left: float | None, say: Say) -> RunRecord:
        assert request.measure == "wall", "off has no plugin"
        seconds.append(left)
        return RunRecord(
            kind=task.kind.value, arm=task.arm_name, round=task.round, value=1.5, measure="wall", seconds=2
        )

    run_schedule(schedule, schedule.open_store(), clock, said.append, run_one)
    return said, seconds


def test_each_process_is_told_before_and_after_and_is_not_run_again(tmp_path: Path) -> None:
    said, seconds = run(tmp_path, Clock(None))
    assert sorted(line.split(" (")[0] for line in said[::2]) == ["round 1: off", *["round 1: own:stock"] * 2]
    assert [line.split(" (")[1] for line in said[::2]] == [f"processes left: {count})" for count in (3, 2, 1)]
    assert said[1::2] == ["  1.5 by wall in 2 s"] * 3
    assert seconds == [None] * 3
    assert run(tmp_path, Clock(None)) == ([], [])


def test_a_limit_that_is_just_enough_for_a_process_starts_it(tmp_path: Path) -> None:
    """Moments of it are over before the first one: the same command would never come further."""
    said, _ = run(tmp_path, Clock(20.0, began=time.monotonic() - 0.5))
    assert said[0].startswith("round 1: ")


@pytest.mark.parametrize(
    ("clock", "runs", "why"),
    [
        (
            {"limit": 5.0},
            0,
            "time limit reached, processes left: 3; the next one needs at least 20 s: use --budget 20 or",
        ),
        ({"limit": 100.0, "used": 90.0}, 0, "time limit reached, processes left: 3; the same command continues."),
        ({"limit": 75.0, "simulated": 40.0}, 2, "simulated time limit reached, processes left: 1; the same command"),
    ],
)
def test_no_process_is_started_that_the_time_is_too_short_for(
    clock: dict[str, float], runs: int, why: str, tmp_path: Path
) -> None:
    said, seconds = run(tmp_path, Clock(**clock))
    assert said[-1].startswith(why)
    assert len(said) == 2 * runs + 1
    assert seconds == [None] * runs, "no wall clock where the time is simulated"
