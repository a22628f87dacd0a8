# SPDX-License-Identifier: Apache-2.0
"""An agreed plan is followed to the call on every NCCL that can, however the job calls: groups, threads, others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lagom.sim.virtual.call_log import load_configs
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls
from lagom.sim.virtual.virtual_job import VirtualJob
from tests.system.support import Job
from tests.system.test_dead_controller import CALLS, CANDIDATE, COMM_ID, publisher, run_on

RANKS = 3
OTHER = CommunicatorSpec(0x07E4, "tp", fsdp_like_calls(1, 8 << 20))
STOCK, TRIED, TRIED_WITHOUT_CHUNK = (24, 2 << 20), (2, 256 << 10), (2, 2 << 20)


def followed(job: Job, folder: Path, spec: JobSpec, expected: tuple[int, int]) -> None:
    """One confirmed plan for COMM_ID: stock before its start, ``expected`` from there on, on every rank."""
    with publisher(job, folder, incumbent=CANDIDATE) as one:
        with VirtualJob(spec, folder / "ranks", job.environ) as ranks:
            start = one.wait_for("committed")["start"]
            run_on(ranks, start)
        for rank in range(RANKS):
            calls = load_configs(folder / "ranks", COMM_ID, rank)
            ran = [(config.channels, config.chunk_bytes) for config in calls]
            assert set(ran[:start]) == {STOCK}
            assert set(ran[start:]) == {expected}


def spec(**changes: object) -> JobSpec:
    """Endless; nothing waits for a controller."""
    fields: dict[str, object] = {
        "ranks": RANKS,
        "communicators": (CommunicatorSpec(COMM_ID, "pg", CALLS),),
        "iterations": 1 << 40,
        "pace": False,
        "skew_us": 200.0,
    }
    return JobSpec(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("version", "profiler", "expected"),
    [
        ("2.27", True, TRIED_WITHOUT_CHUNK),
        ("2.28", False, TRIED_WITHOUT_CHUNK),
        ("2.28", True, TRIED_WITHOUT_CHUNK),
        ("2.29", True, TRIED_WITHOUT_CHUNK),
        ("2.30", False, TRIED),
        ("2.30", True, TRIED),
        ("2.31", True, TRIED),
    ],
)
def test_plan_is_followed(version: str, profiler: bool, expected: tuple[int, int], job: Job, tmp_path: Path) -> None:
    timeline = "profiler" if profiler else "none"
    followed(job, tmp_path, spec(version=version, profiler=profiler, timeline=timeline), expected)


@pytest.mark.parametrize("groups", [3, 12])
def test_plan_is_followed_in_aggregated_groups(groups: int, job: Job, tmp_path: Path) -> None:
    """getChunkSize comes only after every getCollInfo of the group, and each collective still gets its own."""
    followed(job, tmp_path, spec(groups=groups), TRIED)


@pytest.mark.parametrize("threads", [False, True])
def test_other_communicators_stay_as_they_are(threads: bool, job: Job, tmp_path: Path) -> None:
    """Two communicators, on one thread or on one each, as PyTorch's main and autograd threads do."""
    pair = (CommunicatorSpec(COMM_ID, "pg", CALLS), OTHER)
    followed(job, tmp_path, spec(communicators=pair, threads=threads), TRIED)
    for rank in range(RANKS):
        ran = {config.channels for config in load_configs(tmp_path / "ranks", OTHER.comm_id, rank)}
        assert ran == {24}


def test_odd_calls_are_left_alone_and_uncounted(job: Job) -> None:
    """No usable entry, or a function no tuner knows: not touched, and not a call that ranks count."""
    script = Path(__file__).parent / "odd_calls.py"
    environ = {**os.environ, **job.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, str(script)], env=environ, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert said["joined"]
    for name, result in said["results"].items():
        assert result["same"], name
        assert result["channels"] == 0, name
    uncounted = ["all unavailable", "function 5", "function 99", "function -1"]
    assert [said["results"][name]["counted"] for name in uncounted] == [0] * 4
