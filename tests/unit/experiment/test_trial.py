# SPDX-License-Identifier: Apache-2.0
"""What a process is worth once it has ended."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from lagom.bench.arm_words import parse_arms
from lagom.experiment import trial
from lagom.experiment.arm import Kind, Task
from lagom.experiment.diagnosis import NO_CALLS
from lagom.experiment.job_regions import JobRegions
from lagom.experiment.metric import Metric
from lagom.experiment.process import Ended, ProcessStart, Seen
from lagom.experiment.request import Request
from lagom.experiment.store import ExperimentRecord, RunRecord, Store
from lagom.experiment.trial import fill_result

ARM = next(arm for arm in parse_arms(["own:stock"]) if arm.kind is Kind.PROCESS)
REQUEST = Request(("train",), Path(), metric="step (.+)")
SAMPLES = [(float(at), 5.0) for at in range(9)]


class Regions(JobRegions):
    """Of ranks that were all started as they should, or not."""

    def __init__(self, fault: str) -> None:
        self._fault = fault

    def unlike(self, wanted: Mapping[str, str]) -> str:
        return self._fault


def filled(samples: list[tuple[float, float]], fault: str = "", **fields: object) -> RunRecord:
    run = RunRecord.model_validate({"kind": "process", "arm": ARM.name, "ended": "us", **fields})
    metric = Metric()
    metric.samples += samples
    ended = Ended(run.exit, 9.0, 0.0, run.ended, Seen(metric=metric))
    fill_result(run, REQUEST, Task(Kind.PROCESS, ARM), ended, Regions(fault))
    return run


def test_a_value_counts_only_where_nothing_speaks_against_it() -> None:
    good = filled(SAMPLES)
    assert (good.value, good.reason, good.measure) == (5.0, "", "metric")
    other = filled(SAMPLES, "rank 1 was started with another NCCL_ALGO than rank 0: make them the same.")
    assert (other.value, other.samples, other.reason[:6]) == (None, [], "rank 1")
    unused = filled(SAMPLES, called_nccl=False, ended="itself")
    assert (unused.value, unused.samples, unused.reason) == (None, [], NO_CALLS)


def test_a_process_that_is_interrupted_leaves_no_watch_and_no_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that goes on after a Ctrl-C would run out of inotify instances, of which a user has 128; 8 MB of shared
    memory stay where the ranks were killed."""
    watches = []
    monkeypatch.setenv("LAGOM_SHM_DIR", str(tmp_path / "shm"))
    (tmp_path / "shm").mkdir()

    def interrupted(start: ProcessStart) -> Ended:
        watches.append(inotify_instances())
        JobRegions(start.environment()).region.touch(0o600)
        raise KeyboardInterrupt

    monkeypatch.setattr(trial, "run_process", interrupted)
    before = inotify_instances()
    request = replace(REQUEST, folder=tmp_path)
    with pytest.raises(KeyboardInterrupt):
        trial.run_task(request, Task(Kind.PROCESS, ARM), Store(request, ExperimentRecord), None, print)
    assert (watches, inotify_instances()) == ([before + 1], before)
    assert list((tmp_path / "shm").iterdir()) == []


def inotify_instances() -> int:
    """Of this process."""
    found = 0
    for file in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += os.readlink(file) == "anon_inode:inotify"
    return found


def test_a_process_that_broke_down_needs_no_other_reason() -> None:
    assert "no line of its output matched" in filled([]).reason
    assert filled([], exit=1, ended="itself").reason == ""
