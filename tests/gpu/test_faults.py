"""A dead controller costs the job nothing."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable

import pytest

from tests.gpu.support import JobRun, Place, torchrun, until


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
    assert spot.events("job_end") == [], "the controller was not killed at all"
    assert list(spot.shm.iterdir()) == [], "the region was left behind"
    evidence(iterations=ran.last("exact")["iterations"], reports_after_the_kill=len(after))
