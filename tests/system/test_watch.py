# SPDX-License-Identifier: Apache-2.0
"""``lagom watch`` beside a running job of virtual ranks: it finds it, tells what it does, and leaves it alone."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lagom import journal
from lagom.demo.stage import Scene
from lagom.sim.virtual.job_controller import JobController
from lagom.sim.virtual.virtual_job import VirtualJob
from lagom.watch import GroupPhase, GroupSnapshot, JobSnapshot, Watcher
from tests.system.support import Job
from tests.waiting import wait_until

FRESH_PROCESSES = True  # jobs are found in /proc/<pid>/environ
SCENE = Scene(ranks=2, layers=3, noise=0.005)
UNHURRIED_US = 10_000.0  # real time: two hundred iterations a second at most, so that a search takes some time


def watch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lagom", "watch", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def seen_when(watcher: Watcher, enough: Callable[[GroupSnapshot], bool]) -> JobSnapshot:
    """The one job on this node, once its one group is as wished."""

    def look() -> JobSnapshot | None:
        (found,) = watcher.look().running
        return found if found.groups and enough(found.groups[0]) else None

    return wait_until(look, lambda: f"it: {watcher.look()}", pause=0.2)


@pytest.mark.slow
def test_a_job_is_found_told_and_left_alone(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAGOM_SHM_DIR", job.environ["LAGOM_SHM_DIR"])
    assert watch("--once").returncode == 1
    with JobController(job.environ, job.folder, ()) as controller:
        controller.wait_for_region()
        spec = replace(SCENE.spec(), skew_us=UNHURRIED_US)
        with VirtualJob(spec, tmp_path / "scratch", job.environ) as ranks:
            watcher = Watcher()
            seen_when(watcher, lambda group: group.configs_tried > 0)
            tell_of_a_search(wait_until(lambda: look_at_iterations(tmp_path / "lagom.prom"), "an iteration"), job)
            followed_by_name(job)
            controller.kill()
            wait_until(lambda: watcher.look().running[0].controller_pid == 0, "the end of the controller")
            (alone,) = watcher.look().running[0].groups
            assert alone.phase is GroupPhase.UNATTENDED or has_ended(job)
            assert ranks.running()
            ranks.stop()
            ranks.finish()
            assert ranks.differences() == []
    ended = watch(str(job.folder))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "ended: its shared memory is gone" in ended.stdout


def has_ended(job: Job) -> bool:
    """Whether the search is over: however long it takes, a busy machine may take longer to look at it."""
    return any(isinstance(event, journal.Outcome) for event in journal.read(job.folder / journal.LOG_NAME))


def tell_of_a_search(found: dict[str, Any], job: Job) -> None:
    group = found["groups"][0]
    assert (found["folder"], found["ranks"], found["mode"]) == (str(job.folder), 2, "tune")
    assert found["controller_pid"] > 0
    assert group["phase"] in ("baseline", "searching", "confirming", "proving") or has_ended(job)
    assert group["calls_per_second"] >= 0, "on a busy machine no rank may have run between the two looks"
    assert group["iterations_per_second"] is None or group["iterations_per_second"] > 0
    assert group["resolvable"] > 0
    assert {site["function"] for site in group["sites"]} == {"allgather", "reducescatter"}
    assert all(site["nccl"] for site in group["sites"] if "416M hidden" in site["name"])
    assert {decision["kind"] for decision in found["decisions"]} & {"move", "program"}


def look_at_iterations(textfile: Path) -> dict[str, Any] | None:
    """A look between whose two readings the ranks got on, where their iterations are counted."""
    found = one_look(textfile)
    return None if found["groups"][0]["iterations_per_second"] == 0 else found


def one_look(textfile: Path) -> dict[str, Any]:
    """``--once`` as a script uses it, with both outputs."""
    done = watch("--once", "--json", "--prometheus", str(textfile))
    assert (done.returncode, done.stderr) == (0, "")
    families = {family.name: family for family in text_string_to_metric_families(textfile.read_text())}
    assert families["lagom_jobs"].samples[0].value == 1
    assert families["lagom_calls"].samples[0].value > 0
    (found,) = json.loads(done.stdout)["jobs"]
    return dict(found)


def followed_by_name(job: Job) -> None:
    """Lines for a pipe, until we leave it."""
    command = [sys.executable, "-m", "lagom", "watch", str(job.folder), "--interval", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = itertools.islice(process.stdout, 60)
        told = any("default_pg" in line and "calls/s" in line for line in lines)
        process.terminate()
    assert told
