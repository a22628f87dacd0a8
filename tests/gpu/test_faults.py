# SPDX-License-Identifier: Apache-2.0
"""A dead controller costs the job nothing; a dead rank costs it what it would have cost without us."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable

import pytest

from tests.gpu.support import JobRun, Place, place, torchrun, until


def trials(spot: Place) -> int:
    """Trials in force so far."""
    committed = {event["epoch"] for event in spot.events("plan_committed")}
    return sum(e["purpose"] == "trial" and e["epoch"] in committed for e in spot.events("plan_published"))


@pytest.mark.timeout(200)
def test_killed_controller_in_mid_tune_leaves_the_job_running_and_right(
    spot: Place, gpus: int, evidence: Callable[..., None]
) -> None:
    job = torchrun("mixed.py", gpus, "--pause-ms", "2", "--until", str(spot.stop))
    running = JobRun([*spot.lagom_run("--mode", "tune"), *job], spot.environment(), spot.folder)
    tuned = until(lambda: trials(spot) >= 1, 60, running)
    told = (spot.log / "controller.log").read_text() if spot.log.exists() else ""
    if tuned:
        found = re.search(r"lagom controller (\d+):", told)
        assert found is not None, told
        os.kill(int(found.group(1)), signal.SIGKILL)
    killed_at = time.time()
    time.sleep(5 if tuned else 0)
    alive = running.alive()
    spot.stop.touch()
    ran = running.finish(60)
    assert tuned, f"no trial came within 60 s: {[e['event'] for e in spot.events()]}; {told}; {ran.tail()}"
    assert alive, f"the job ended when its controller was killed: {ran.tail()}"
    assert ran.code == 0, ran.tail()
    assert ran.last("exact").get("exact") is True, ran.tail()
    after = [line for line in ran.json if line.get("time", 0) > killed_at + 1]
    assert len(after) >= 2, f"no progress after the kill: {ran.tail()}"
    assert any("controller ended" in line for line in ran.lines), f"nobody was told: {ran.tail()}"
    ends = [event["reason"] for event in spot.events("job_end")]
    assert len(ends) == 1, f"one end by the launcher: {ends}"
    assert "killed by SIGKILL" in ends[0], f"the log does not say what became of the controller: {ends}"
    assert list(spot.shm.iterdir()) == [], "the region was left behind"
    evidence(iterations=ran.last("exact")["iterations"], reports_after_the_kill=len(after))


KILLED_RANK = 1
SECONDS_TO_END = 120.0  # NCCL's timeout is 60 s


@pytest.mark.timeout(500)
def test_killed_rank_in_mid_tune_ends_the_job_as_without_us(
    spot: Place, gpus: int, evidence: Callable[..., None]
) -> None:
    """Kill -9 of one rank: the same exit code as without us, no later, and the log says that a rank has gone."""
    with place(spot.folder / "stock") as alone:
        command = torchrun("mixed.py", gpus, "--pause-ms", "2", "--until", str(alone.stop))
        stock = ended(JobRun(command, alone.environment(), alone.folder), is_at_work)
    job = torchrun("mixed.py", gpus, "--pause-ms", "2", "--until", str(spot.stop))
    ours = JobRun([*spot.lagom_run("--mode", "tune"), *job], spot.environment(), spot.folder)
    tuned = ended(ours, lambda running: trials(spot) >= 1)
    kinds = [event["event"] for event in spot.events()]
    evidence(
        stock={"code": stock[0], "seconds": stock[1]}, tuned={"code": tuned[0], "seconds": tuned[1]}, log=kinds[-6:]
    )
    assert tuned[0] == stock[0] != 0, f"exit code {tuned[0]}, without us {stock[0]}: {ours.so_far().tail()}"
    assert tuned[1] < stock[1] + 30, f"it took {tuned[1]:.0f} s to end, without us {stock[1]:.0f} s"
    assert "job_end" in kinds, f"the log has no end: {kinds[-10:]}"
    told = " ".join(str(e.get("reason") or e.get("text") or "") for e in spot.events())
    assert "a rank has left" in told, f"the log does not say that a rank has gone: {told[-500:]}"
    assert until(lambda: list(spot.shm.iterdir()) == [], 10), "the region was left behind"


def is_at_work(running: JobRun) -> bool:
    """Whether it has come through its first 50 iterations."""
    return bool(running.so_far().last("iteration"))


def ended(running: JobRun, at_work: Callable[[JobRun], bool]) -> tuple[int, float]:
    """Kills a rank once the job is where it should be; (exit code, seconds from then to its end)."""
    try:
        assert until(lambda: at_work(running), 90, running), f"it never came so far: {running.so_far().tail()}"
        pids = {line["rank"]: line["pid"] for line in running.so_far().json if "pid" in line}
        os.kill(pids[KILLED_RANK], signal.SIGKILL)
        killed_at = time.monotonic()
    except BaseException:
        running.finish(0)
        raise
    ran = running.finish(SECONDS_TO_END)
    return ran.code, round(time.monotonic() - killed_at, 1)
