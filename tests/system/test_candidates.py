# SPDX-License-Identifier: Apache-2.0
"""A search that is interrupted leaves its best so far; the same job, started again, tries that first."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lagom import journal
from lagom.config_file import BEST_SO_FAR_NAME, load_config, read_evidence
from tests.system.launched import UNHURRIED_JOB, launch
from tests.tiers import amount

ENDS = ("improved", "stock_is_best", "cut_short")


def moves_of(events: list[Any]) -> list[journal.Move]:
    return [event for event in events if isinstance(event, journal.Move)]


def outcomes_of(events: list[Any]) -> list[journal.Outcome]:
    return [event for event in events if isinstance(event, journal.Outcome)]


def after(moves: int, outcomes: int = 1) -> Callable[[list[Any]], bool]:
    """So many moves, or the end of the search if that comes first."""

    def until(events: list[Any]) -> bool:
        return len(moves_of(events)) >= moves or len(outcomes_of(events)) >= outcomes

    return until


def after_something_faster(events: list[Any]) -> bool:
    """A config whose interval is below the incumbent's: each search has one before it confirms anything, and after
    that, where the incumbent is what was confirmed, there may be none."""
    faster = any(move.purpose != "baseline" and (move.ratio_high or 2.0) < 1.0 for move in moves_of(events))
    return faster or bool(outcomes_of(events))


def folder(place: Path, name: str) -> Path:
    (place / name).mkdir()
    return place / name


def saved_configs(file: Path) -> list[tuple[journal.ConfigRecord, ...]]:
    found = [section.assignment for section in load_config(file).sections]
    return [tuple(map(journal.ConfigRecord.of, assignment.configs)) for assignment in found if assignment is not None]


@pytest.mark.parametrize("strategy", amount(["auto"], ["auto", "lagom"]))
def test_an_interrupted_search_goes_on_with_its_best_so_far(strategy: str, tmp_path: Path) -> None:
    first, second = folder(tmp_path, "first"), folder(tmp_path, "second")
    events, done = launch(first, "--strategy", strategy, until=after_something_faster, job=UNHURRIED_JOB)
    assert done.returncode == 0, done.stderr
    (stopped,) = outcomes_of(events)
    assert stopped.verdict == "stopped"
    assert stopped.best is not None
    left = first / "log" / BEST_SO_FAR_NAME
    best = saved_configs(left)[0]
    assert best[: len(stopped.best)] == stopped.best
    assert "not proven" in left.read_text().splitlines()[2]
    (evidence, *_) = read_evidence(left)
    assert evidence["not_proven"]["best_speedup"] == stopped.best_speedup

    events, done = launch(second, "--strategy", strategy, "--candidates", str(left), until=journal.Outcome)
    assert done.returncode == 0, done.stderr
    baseline, tried, *_ = moves_of(events)
    assert (baseline.purpose, tried.purpose, tried.phase) == ("baseline", "trial", "candidate")
    assert tried.candidate == stopped.best
    (outcome,) = outcomes_of(events)
    assert outcome.verdict in ENDS
    assert not (second / "log" / BEST_SO_FAR_NAME).exists()


def test_in_the_same_log_folder_it_goes_on_by_itself_until_it_has_ended(tmp_path: Path) -> None:
    """Interrupted at chance moments, by either signal; then it comes to its end and leaves nothing to be tried."""
    chance, left = random.Random(20261125), tmp_path / "log" / BEST_SO_FAR_NAME
    before = 0
    for life in range(amount(1, 4)):
        until = after(before + chance.randint(1, 9), life + 1) if life else after_something_faster
        wanted = left.exists()
        events, done = launch(tmp_path, until=until, ending=chance.choice((signal.SIGTERM, signal.SIGINT)))
        assert "Traceback" not in done.stderr
        assert len(outcomes_of(events)) == life + 1, "each search says how it ended"
        ours = moves_of(events)[before:]
        if wanted and len(ours) > 1 and ours[0].verdict == "baseline":
            assert ours[1].phase == "candidate"
        if left.exists():
            assert saved_configs(left)
        before = len(moves_of(events))
    events, done = launch(tmp_path, until=lambda events: len(outcomes_of(events)) > life + 1)
    assert done.returncode == 0, done.stderr
    assert outcomes_of(events)[-1].verdict in ENDS
    assert not left.exists()


def test_a_file_of_another_job_and_a_damaged_one_are_left_out(tmp_path: Path) -> None:
    other, damaged = tmp_path / "other.lagom", tmp_path / "damaged.lagom"
    other.write_text("lagom-config 1\ncommunicator ranks=16 nodes=2 ordinal=0\nrule any 0 - nc=2\nend\n")
    damaged.write_text("lagom-config 1\ncommunicator\n")
    events, done = launch(tmp_path, "--candidates", str(other), "--candidates", str(damaged), until=after(2))
    assert done.returncode == 0, done.stderr
    notes = [event.text for event in events if isinstance(event, journal.Note)]
    for path in (other, damaged):
        assert any(note.startswith(f"no candidates from {path}") for note in notes)
    assert moves_of(events)[1].phase != "candidate"
