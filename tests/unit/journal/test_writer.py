# SPDX-License-Identifier: Apache-2.0
"""The log is append-only, bounded, whole lines, and never costs the job anything."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lagom.journal import JobEnd, JobStart, Journal, Note, Outcome, read


def events(path: Path) -> list[str]:
    return [event.event for event in read(path)]  # type: ignore[attr-defined]


def test_every_event_is_in_the_file_when_write_returns(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "lagom-job")
    journal.write(JobStart(job="job", mode="tune"))
    lines = journal.path.read_text().splitlines()
    assert len(lines) == 1
    assert json.loads(lines[0])["schema"] == 2
    assert json.loads(lines[0])["event"] == "job_start"


def test_a_second_writer_appends(tmp_path: Path) -> None:
    for text in ("first", "second"):
        with Journal(tmp_path) as journal:
            journal.write(Note(text=text))
    assert [event.text for event in read(journal.path)] == ["first", "second"]  # type: ignore[attr-defined]


def test_after_a_torn_line_a_fresh_one_is_started(tmp_path: Path) -> None:
    path = tmp_path / "decisions.jsonl"
    path.write_bytes(b'{"schema":2,"t":0,"event":"note","te')
    with Journal(path) as journal:
        journal.write(Note(text="after the crash"))
    damaged: list[int] = []
    assert [event.text for event in read(path, on_damage=lambda n, _: damaged.append(n))] == ["after the crash"]  # type: ignore[attr-defined]
    assert damaged == [1]


def test_the_limit_keeps_the_head_says_what_was_dropped_and_still_writes_the_end(tmp_path: Path) -> None:
    with Journal(tmp_path, max_bytes=8192) as journal:
        for number in range(500):
            journal.write(Note(text=f"note {number}"))
        journal.write(Outcome(communicator=0, verdict="improved", reason="it is over"))
        journal.write(JobEnd(reason="all ranks left"))
    assert journal.path.stat().st_size <= 8192
    kinds = events(journal.path)
    assert kinds[0] == "note"
    assert kinds[-2:] == ["outcome", "job_end"]
    dropped = [event for event in read(journal.path) if event.event == "dropped"]  # type: ignore[attr-defined]
    assert sum(event.counts["note"] for event in dropped) + kinds.count("note") == 500  # type: ignore[attr-defined]


def test_a_folder_that_cannot_be_made_is_said_once_and_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    journal = Journal(tmp_path / "file" / "below")
    for _ in range(3):
        journal.write(Note(text="lost"))
    journal.close()
    said = capsys.readouterr().err
    assert said.count("cannot be written") == 1
    assert "LAGOM_DIR" in said


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is what a full disk looks like; not here")
def test_a_full_disk_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lagom.journal.writer.open_append", lambda path: os.open("/dev/full", os.O_WRONLY))
    with Journal(tmp_path) as journal:
        journal.write(Note(text="lost"))
        journal.write(Note(text="lost"))
    assert capsys.readouterr().err.count("No space left") == 1


def test_numbers_that_are_not_finite_stay_readable_json(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        journal.write(Outcome(communicator=0, verdict="stopped", reason="no data", speedup=float("nan")))
    (event,) = read(journal.path)
    assert event.speedup is None  # type: ignore[attr-defined]
