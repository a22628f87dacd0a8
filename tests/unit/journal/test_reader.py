# SPDX-License-Identifier: Apache-2.0
"""Reading back: torn lines are skipped and counted, another schema is refused, --follow sees what comes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from lagom import journal
from lagom.errors import JournalError
from lagom.journal import JobEnd, Journal, Note, Program, find_log, read
from lagom.journal.reader import Tail


@pytest.mark.parametrize("schema", [1, 3])
def test_a_log_of_another_schema_is_refused_by_its_number(schema: int, tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    log.write_text(f'{{"schema": {schema}, "t": 0, "event": "note", "text": "hello"}}\n')
    with pytest.raises(JournalError) as refused:
        list(read(log))
    assert str(refused.value) == (
        f"line 1 has schema {schema} and this lagom reads schema 2; use the version of lagom that wrote the log."
    )


@pytest.mark.parametrize(
    "garbage", ["", "null", "[1]", '"text"', "{", "\x00\xff", '{"event": "unheard_of", "schema": 2}']
)
def test_garbage_lines_are_counted_and_never_crash(tmp_path: Path, garbage: str) -> None:
    log = tmp_path / "decisions.jsonl"
    good = Note(text="good").model_dump_json(by_alias=True)
    log.write_text(f"{garbage}\n{good}\n{garbage}")
    damaged: list[str] = []
    assert len(list(read(log, on_damage=lambda _, line: damaged.append(line)))) == 1
    assert len(damaged) == (2 if garbage else 0)


def test_a_last_line_without_its_newline_counts_if_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    log.write_text(Note(text="whole").model_dump_json(by_alias=True))
    assert len(list(read(log))) == 1


def test_fields_of_a_later_lagom_are_ignored(tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    log.write_text('{"schema": 2, "t": 0, "event": "note", "text": "hello", "added_later": 7}\n')
    (event,) = read(log)
    assert event.text == "hello"  # type: ignore[attr-defined]


def test_follow_sees_events_as_they_come_and_ends_with_the_job(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    journal.write(Note(text="one"))

    def later() -> None:
        time.sleep(0.3)
        journal.write(Note(text="two"))
        journal.write(JobEnd(reason="done"))

    writer = threading.Thread(target=later)
    writer.start()
    seen = [event.event for event in read(journal.path, follow=True)]  # type: ignore[attr-defined]
    writer.join()
    assert seen == ["note", "note", "job_end"]


def test_follow_goes_on_to_a_second_job_in_the_same_folder(tmp_path: Path) -> None:
    with Journal(tmp_path) as journal:
        for text in ("first", "second"):
            journal.write(Note(text=text))
            journal.write(JobEnd(reason="done"))
    seen = [event.kind for event in read(journal.path, follow=True)]
    assert seen == ["note", "job_end", "note", "job_end"]


def test_a_file_without_one_event_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "decisions.jsonl").write_text("garbage\n")
    with pytest.raises(JournalError, match="is no decision log"):
        list(read(tmp_path / "decisions.jsonl"))


def test_find_log_takes_file_folder_or_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(JournalError, match="name the log folder"):
        find_log()
    old, new = tmp_path / "lagom-a", tmp_path / "lagom-b"
    for number, folder in enumerate((old, new)):
        folder.mkdir()
        (folder / "decisions.jsonl").touch()
        os.utime(folder / "decisions.jsonl", (number, number))
    assert find_log().resolve() == new / "decisions.jsonl"
    assert find_log(old) == old / "decisions.jsonl"
    assert find_log(old / "decisions.jsonl") == old / "decisions.jsonl"
    with pytest.raises(JournalError, match="there is no log"):
        find_log(tmp_path / "nowhere")


PROGRAM = Program(communicator=0, period=98, sites=())
OVER = JobEnd(reason="over")


def test_tail_hands_out_each_whole_line_once(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    assert tail.unread() == []
    with journal.Journal(tmp_path) as log:
        log.write(PROGRAM)
        assert [event.event for event in tail.unread()] == ["program"]  # type: ignore[attr-defined]
        log.write(OVER)
    with (tmp_path / journal.LOG_NAME).open("ab") as file:
        file.write(b'{"schema": 2, "event": "note", "te')
    assert [event.event for event in tail.unread()] == ["job_end"]  # type: ignore[attr-defined]
    with (tmp_path / journal.LOG_NAME).open("ab") as file:
        file.write(b'xt": "whole now", "t": 1.0}\n')
    assert [event.event for event in tail.unread()] == ["note"]  # type: ignore[attr-defined]
    assert tail.unread() == []
