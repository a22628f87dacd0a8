"""Right results, element by element on every rank, under random legal configs that change while the job runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu.support import FULL, ROOT, JobRun, Place, Ran, torchrun, until

PLANS, STORM_SECONDS = (2000, 400) if FULL else (200, 40)
AT_LEAST_SECONDS = 15  # plans are agreed in milliseconds; this many more than PLANS fit
AT_LEAST_PLANS = PLANS // 4  # on a slow machine
#: A libnccl.so.2 of release 2.30.3 or later: with it the chunk size is tried too.
NCCL_230 = os.environ.get("LAGOM_TEST_NCCL_230", "")
START_SECONDS = 60


@pytest.mark.timeout(STORM_SECONDS + 200)
@pytest.mark.parametrize("regime", ["nvlink", "host"])
def test_results_are_exact_while_configs_change(
    regime: str, spot: Place, gpus: int, evidence: Callable[..., None]
) -> None:
    storm_through(spot, gpus, regime, {}, evidence)


@pytest.mark.timeout(STORM_SECONDS + 200)
@pytest.mark.skipif(not NCCL_230, reason="LAGOM_TEST_NCCL_230 names no libnccl.so.2 of release 2.30.3 or later")
def test_results_are_exact_while_chunks_change(spot: Place, gpus: int, evidence: Callable[..., None]) -> None:
    report = storm_through(spot, gpus, "host", {"LD_PRELOAD": NCCL_230}, evidence)
    assert report["legal"]["chunk"], f"no chunk size could be set with {NCCL_230}: {report['legal']}"


def storm_through(
    spot: Place, gpus: int, regime: str, extra: dict[str, str], evidence: Callable[..., None]
) -> dict[str, Any]:
    """The job and the storm beside it; the storm ends the job. Returns the storm's report."""
    named = {"LAGOM_MODE": "tune", "LAGOM_CONTROLLER": "none", "LAGOM_NT": "1"}
    storm = start_storm(spot, gpus, spot.with_plugin(regime, **named))
    try:
        assert until((spot.folder / "ready").exists, 30), f"the storm did not begin: {storm_said(spot)}"
        job = JobRun(
            torchrun("mixed.py", gpus, "--until", str(spot.stop)),
            spot.with_plugin(regime, **named, **extra),
            spot.folder,
        )
        ran = job.finish(START_SECONDS + STORM_SECONDS + 60)
        until(lambda: storm.poll() is not None, 10)
    finally:
        storm.kill()
        storm.wait()
    assert ran.code == 0, f"{ran.tail()}\n{plans_near(spot, ran)}\nthe storm: {storm_said(spot)}"
    assert ran.last("exact").get("exact") is True, ran.tail()
    report_file = spot.folder / "report.json"
    assert report_file.exists(), f"no report: {storm_said(spot)}"
    report = json.loads(report_file.read_text())
    evidence(regime=regime, iterations=ran.last("exact")["iterations"], **report)
    judge(report)
    return dict(report)


def start_storm(spot: Place, gpus: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """The controller of this job: nothing but random plans."""
    line = [sys.executable, "-m", "tests.gpu.storm", str(spot.folder), "--world", str(gpus)]
    line += ["--plans", str(PLANS), "--seconds", str(STORM_SECONDS), "--at-least-seconds", str(AT_LEAST_SECONDS)]
    with (spot.folder / "storm.txt").open("wb") as output:
        return subprocess.Popen(line, env=environment, cwd=ROOT, stdout=output, stderr=output)


def judge(report: dict[str, Any]) -> None:
    """That the storm was one, and that no rank differed from another or refused a plan."""
    assert report["differing"] == [], f"ranks ran different configs at calls {report['differing']}: {report}"
    assert report["refusals"] == {}, f"ranks refused plans: {report}"
    assert report["plans"].get("committed", 0) >= AT_LEAST_PLANS, (
        f"fewer than {AT_LEAST_PLANS} plans were in force: {report}"
    )
    assert report["calls"].get("applied", 0) > 0, f"no plan changed any call: {report}"
    assert report["calls"].get("candidate", 0) > 0, f"no candidate of a program ran: {report}"


def storm_said(spot: Place) -> str:
    """The storm's output."""
    return (spot.folder / "storm.txt").read_text()[-1500:]


def plans_near(spot: Place, ran: Ran) -> str:
    """The plans in force around the wrong call, or the last ones."""
    path = spot.folder / "plans.jsonl"
    plans = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    call = ran.last("wrong").get("first_call")
    past = [plan for plan in plans if call is None or plan["start"] <= call + 8]
    told = "\n".join(json.dumps(plan) for plan in past[-3:])
    return f"wrong: {ran.last('wrong')}; the last plans by then ({len(plans)} in all):\n{told}"
