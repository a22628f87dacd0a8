"""What can be measured decides how, not whether: kernels through NCCL's profiler events, or the host's calls alone."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from lagom import journal
from lagom.demo.stage import Scene
from lagom.demo.story import Story
from lagom.journal.tail import Tail
from lagom.sim.virtual.control import ControllerProcess
from lagom.sim.virtual.job import VirtualJob
from tests.system.support import Job

SCENE = Scene(ranks=4, layers=3, tokens=4096, noise=0.005)
SEARCH_SECONDS, ALL_SECONDS = 8, 60.0


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    ("version", "timeline", "measured_by"),
    [("2.30", "profiler", "nccl kernels"), ("2.27", "profiler", "nccl kernels"), ("2.30", "none", "host")],
)
def test_search_runs_to_its_end_on_what_can_be_seen(
    version: str, timeline: str, measured_by: str, job: Job, tmp_path: Path
) -> None:
    spec = replace(SCENE, version=version).spec()
    spec = replace(spec, timeline=timeline, profiler=timeline == "profiler")
    story, notes = Story(), list[str]()
    with ControllerProcess(job.environ, job.folder, ("--search-seconds", str(SEARCH_SECONDS))) as controller:
        controller.wait_for_region()
        with VirtualJob(spec, tmp_path, job.environ) as ranks:
            tail, end = Tail(job.folder), time.monotonic() + ALL_SECONDS
            while story.outcome is None and time.monotonic() < end:
                events = tail.unread()
                story.read(events)
                notes += [event.text for event in events if isinstance(event, journal.Note)]
                controller.check()
                assert ranks.running()
                time.sleep(0.05)
            ranks.stop()
            ranks.finish(20)
            assert ranks.differences() == []
    assert any(f"measured by {measured_by}" in note for note in notes), notes
    assert story.outcome is not None, f"no outcome in {ALL_SECONDS:.0f} s: {notes}"
    assert story.outcome.verdict in ("improved", "stock_is_best")
    empty = [move for move in story.moves if move.verdict == "missing"]
    assert not empty, f"windows that could not be measured: {[move.reason for move in empty]}"
    x_seen = [move.x is not None for move in story.moves if move.samples]
    assert all(x_seen) if timeline == "profiler" else not any(x_seen)
