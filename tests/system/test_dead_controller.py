# SPDX-License-Identifier: Apache-2.0
"""A controller that is killed, stopped or late leaves nothing bad behind: leases end by themselves, on every rank."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lagom.sim.virtual.call_log import load_configs
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls
from lagom.sim.virtual.virtual_job import VirtualJob
from tests.system.support import Job

COMM_ID = 0xDEAD
RANKS = 4
CALLS = fsdp_like_calls(2, 64 << 20)
PERIOD = len(CALLS)
CANDIDATE = {"channels": 2, "chunk_bytes": 256 << 10}


class OnePlan:
    """``publish.py`` as a process."""

    def __init__(self, job: Job, folder: Path, **request: Any) -> None:
        path = folder / f"request-{time.monotonic_ns()}.json"
        path.write_text(json.dumps({"comm_id": COMM_ID, "calls": CALLS, **request}))
        line = [sys.executable, str(Path(__file__).parent / "publish.py"), job.key, str(path)]
        self.process = subprocess.Popen(
            line, env={**os.environ, **job.environ, "PYTHONPATH": os.getcwd()}, stdout=subprocess.PIPE, text=True
        )

    def wait_for(self, step: str) -> dict[str, Any]:
        """Reads what it says until that step."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            if said["step"] == step:
                return said
        raise AssertionError(f"the publisher ended before it said {step!r}")

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def publisher(job: Job, folder: Path, **request: Any) -> Iterator[OnePlan]:
    one = OnePlan(job, folder, **request)
    try:
        yield one
    finally:
        one.kill()


@contextmanager
def ranks_of(job: Job, folder: Path) -> Iterator[VirtualJob]:
    """Ranks that run until told to stop. They do not wait for a controller's reading."""
    spec = JobSpec(
        ranks=RANKS,
        communicators=(CommunicatorSpec(COMM_ID, "pg", CALLS),),
        iterations=1 << 40,
        pace=False,
        skew_us=300.0,
    )
    with VirtualJob(spec, folder, job.environ) as ranks:
        yield ranks


def run_on(ranks: VirtualJob, past_call: int, iterations: int = 20) -> None:
    """Until every rank is that many iterations past a call, then to the end."""
    assert ranks.wait_iteration(past_call // PERIOD + iterations)
    ranks.stop()
    ranks.finish()
    assert ranks.differences() == []


def ran(folder: Path, rank: int) -> list[tuple[int | None, int | None]]:
    """(channels, chunk) of every call of a rank."""
    configs = load_configs(folder, COMM_ID, rank)
    return [(config.channels, config.chunk_bytes) for config in configs]


def scheduled(call: int, start: int, end: int, block: int) -> bool:
    """Whether a lease gives this call to the candidate: blocks of incumbent, candidate, candidate, incumbent."""
    return start <= call < end and ((call - start) // PERIOD // block) % 4 in (1, 2)


STOCK = (24, 2 << 20)
TRIED = (2, 256 << 10)


@pytest.mark.parametrize("how", ["killed", "stopped", "alive"])
def test_lease_ends_by_itself_on_every_rank(how: str, job: Job, tmp_path: Path) -> None:
    """Killed, stopped or alive: the schedule of a committed lease is followed to the call, and then it is over.

    26 iterations end where the schedule would go on with the candidate: a lease one call too long would show.
    """
    with (
        publisher(job, tmp_path, candidate=CANDIDATE, iterations=26, block=2) as one,
        ranks_of(job, tmp_path / "ranks") as ranks,
    ):
        lease = one.wait_for("committed")
        if how == "killed":
            one.kill()
        elif how == "stopped":
            one.send(signal.SIGSTOP)
        run_on(ranks, lease["end"])
    expected_in = {True: TRIED, False: STOCK}
    for rank in range(RANKS):
        calls = ran(tmp_path / "ranks", rank)
        expected = [expected_in[scheduled(n, lease["start"], lease["end"], 2)] for n in range(len(calls))]
        first = next((n for n, (one_, other) in enumerate(zip(calls, expected, strict=True)) if one_ != other), None)
        assert first is None, f"rank {rank}, call {first} of lease {lease}: ran {calls[first or 0]}"
        assert TRIED in calls


def test_confirmed_plan_stays_for_good(job: Job, tmp_path: Path) -> None:
    """An open-ended plan is in force from its first call to the job's end, though its controller is long dead."""
    with publisher(job, tmp_path, incumbent=CANDIDATE) as one, ranks_of(job, tmp_path / "ranks") as ranks:
        start = one.wait_for("committed")["start"]
        one.kill()
        run_on(ranks, start, iterations=100)
    for rank in range(RANKS):
        calls = ran(tmp_path / "ranks", rank)
        assert set(calls[:start]) == {STOCK}
        assert set(calls[start:]) == {TRIED}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_plan_nobody_commits_is_aborted_by_the_ranks(how: signal.Signals, job: Job, tmp_path: Path) -> None:
    """A controller that dies or hangs between publishing and committing changes nothing, and nobody waits for it."""
    with (
        publisher(job, tmp_path, candidate=CANDIDATE, iterations=50, block=1, poll=False, margin=20) as one,
        ranks_of(job, tmp_path / "ranks") as ranks,
    ):
        start = one.wait_for("published")["start"]
        one.send(how)
        run_on(ranks, start)
    for rank in range(RANKS):
        assert set(ran(tmp_path / "ranks", rank)) == {STOCK}


def test_next_controller_takes_over(job: Job, tmp_path: Path) -> None:
    """After a controller was killed with an open plan, the next one attaches and has its own agreed."""
    with ranks_of(job, tmp_path / "ranks") as ranks:
        with publisher(job, tmp_path, candidate=CANDIDATE, iterations=50, block=1, poll=False, margin=4) as first:
            first.wait_for("published")
            first.kill()
        with publisher(job, tmp_path, incumbent=CANDIDATE) as second:
            start = second.wait_for("committed")["start"]
            second.kill()
            run_on(ranks, start)
    for rank in range(RANKS):
        calls = ran(tmp_path / "ranks", rank)
        assert set(calls[:start]) == {STOCK}
        assert set(calls[start:]) == {TRIED}


def test_second_controller_is_refused_while_the_first_lives(job: Job, tmp_path: Path) -> None:
    """A stopped controller still holds its lock: nobody else may write."""
    with (
        publisher(job, tmp_path, incumbent=CANDIDATE) as first,
        ranks_of(job, tmp_path / "ranks") as ranks,
    ):
        start = first.wait_for("committed")["start"]
        first.send(signal.SIGSTOP)
        with publisher(job, tmp_path, incumbent={"channels": 1}) as second:
            assert second.process.wait() != 0
        run_on(ranks, start)
    for rank in range(RANKS):
        assert set(ran(tmp_path / "ranks", rank)[start:]) == {TRIED}
