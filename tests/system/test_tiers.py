"""What can be measured decides how, not whether: kernels through NCCL's profiler events, or the host's calls alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lagom.demo.stage import Scene
from lagom.demo.story import Story
from tests.system.play import play, searches
from tests.system.support import Job

SCENE = Scene(ranks=4, layers=3, tokens=4096, noise=0.005)


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
    played = play(spec, job, tmp_path, "--search-seconds", "8", until=searches())
    story = Story()
    story.read(played.events)
    assert any(f"measured by {measured_by}" in note for note in played.notes), played.notes
    assert story.outcome is not None
    assert story.outcome.verdict in ("improved", "stock_is_best")
    empty = [move for move in story.moves if move.verdict == "missing"]
    assert not empty, f"windows that could not be measured: {[move.reason for move in empty]}"
    x_seen = [move.x is not None for move in story.moves if move.samples]
    assert all(x_seen) if timeline == "profiler" else not any(x_seen)
