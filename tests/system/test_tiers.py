# SPDX-License-Identifier: Apache-2.0
"""What can be measured decides how, not whether: kernels through NCCL's profiler events, or the host's calls alone."""

from __future__ import annotations

import mmap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lagom import journal
from lagom.demo.stage import Scene
from lagom.journal import RunState
from lagom.wire.layout import ffi
from tests.system.play import ENDS, UNHURRIED, Played, play, searches
from tests.system.support import Job

SCENE = Scene(ranks=2, layers=3, tokens=4096, noise=0.005)
SMALL = replace(SCENE, layers=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "timeline", "measured_by"),
    [("2.30", "profiler", "nccl kernels"), ("2.27", "profiler", "nccl kernels"), ("2.30", "none", "host")],
)
def test_search_runs_to_its_end_on_what_can_be_seen(
    version: str, timeline: str, measured_by: str, job: Job, tmp_path: Path
) -> None:
    spec = replace(SCENE, version=version).spec()
    spec = replace(spec, timeline=timeline, profiler=timeline == "profiler")
    played = play(spec, job, tmp_path, "--search-seconds", "2", until=searches())
    comm = RunState(played.events).comm(0)
    assert any(f"measured by {measured_by}" in note for note in played.notes), played.notes
    assert comm.outcome is not None
    assert comm.outcome.verdict in ENDS
    empty = [move for move in comm.moves if move.verdict == "missing"]
    assert not empty, f"windows that could not be measured: {[move.reason for move in empty]}"
    x_seen = [move.x is not None for move in comm.moves if move.samples]
    assert all(x_seen) if timeline == "profiler" else not any(x_seen)


def refute_times(region: Path) -> None:
    """As the plugin does when kernels would have begun before they were called."""
    with region.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        view = ffi.cast("struct lagom_region *", ffi.from_buffer(memory))
        for slot in range(SCENE.ranks):
            view.slots[slot].times_refuted = 1
        del view


def since_second_program(played: Played) -> list[Any]:
    programs = [at for at, event in enumerate(played.events) if isinstance(event, journal.Program)]
    return played.events[programs[1] :] if len(programs) > 1 else []


@pytest.mark.slow
def test_times_that_are_not_the_kernels_are_used_no_more(job: Job, tmp_path: Path) -> None:
    """In mid-search, or after it where that was over when we looked: what was measured by them counts for nothing, and
    the job is tuned by the host's calls."""
    spec = replace(SMALL.spec(), timeline="profiler", profiler=True)

    refuted: list[bool] = []

    def until(played: Played) -> bool:
        if not refuted and len(played.of(journal.Move)) >= 3:
            refuted.append(True)
            refute_times(job.region)
        return any(isinstance(event, journal.Outcome) for event in since_second_program(played))

    played = play(spec, job, tmp_path, *UNHURRIED, until=until)
    programs, (warning,) = played.of(journal.Program), [n for n in played.notes if "begun before its call" in n]
    assert warning.startswith("communicator 0: by the times that NCCL reports, a kernel would have begun before its")
    assert len(programs) == 2
    anew = since_second_program(played)
    assert any("measured by host" in event.text for event in anew if isinstance(event, journal.Note))
    moves = [event for event in anew if isinstance(event, journal.Move)]
    assert moves[0].purpose == "baseline"
    assert all(move.x is None for move in moves)
    assert played.of(journal.Outcome)[-1].verdict in ENDS
