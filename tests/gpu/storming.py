# SPDX-License-Identifier: Apache-2.0
"""A job with a storm of random legal plans beside it: started, ended, judged."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.gpu.support import ROOT, JobRun, Place, Ran, until

START_SECONDS = 120
STORM = {"LAGOM_MODE": "tune", "LAGOM_CONTROLLER": "none", "LAGOM_NT": "1"}


@dataclass(frozen=True)
class Strength:
    """How many plans must have been in force, how long it takes at least, however soon they were, and at most."""

    plans: int
    seconds: float
    at_least_seconds: float = 0.0


def storm_beside(
    spot: Place,
    gpus: int,
    command: Sequence[str],
    strength: Strength,
    *,
    regime: str = "nvlink",
    learn: bool = False,
    **extra: str,
) -> tuple[Ran, dict[str, Any]]:
    """The job and the storm; the storm ends the job. How the job ended, and the storm's report."""
    storm = _start(spot, gpus, spot.with_plugin(regime, **STORM), strength, ["--learn"] * learn)
    try:
        assert until((spot.folder / "ready").exists, 30), f"the storm did not begin: {storm_said(spot)}"
        job = JobRun(command, spot.with_plugin(regime, **{**STORM, **extra}), spot.folder)
        ran = job.finish(START_SECONDS + strength.seconds + 120)
        until(lambda: storm.poll() is not None, 10)
    finally:
        storm.kill()
        storm.wait()
    assert ran.code == 0, f"{ran.tail()}\n{plans_near(spot, ran)}\nthe storm: {storm_said(spot)}"
    report_file = spot.folder / "report.json"
    assert report_file.exists(), f"no report: {storm_said(spot)}"
    return ran, json.loads(report_file.read_text())


def _start(
    spot: Place, gpus: int, environment: dict[str, str], strength: Strength, more: list[str]
) -> subprocess.Popen[bytes]:
    """The controller of this job: nothing but random plans."""
    line = [sys.executable, "-m", "tests.gpu.storm", str(spot.folder), "--world", str(gpus), *more]
    line += ["--plans", str(strength.plans), "--seconds", str(strength.seconds)]
    line += ["--at-least-seconds", str(strength.at_least_seconds)]
    with (spot.folder / "storm.txt").open("wb") as output:
        return subprocess.Popen(line, env=environment, cwd=ROOT, stdout=output, stderr=output)


def judge(report: dict[str, Any], plans: int) -> None:
    """That the storm was one, and that no rank differed from another or refused a plan."""
    assert report["differing"] == [], f"ranks ran different configs at calls {report['differing']}: {report}"
    assert report["refusals"] == {}, f"ranks refused plans: {report}"
    assert report["plans"].get("committed", 0) >= plans, f"fewer than {plans} plans were in force: {report}"
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
