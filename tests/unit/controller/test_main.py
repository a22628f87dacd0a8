# SPDX-License-Identifier: Apache-2.0
"""The controller's command line: what is wrong with it is told where the job's reader will look."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from lagom import journal
from lagom.controller.__main__ import main
from lagom.controller.controller import describe_stop
from lagom.wire.job_key import job_key


def run(place: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str, **variables: str) -> list[object]:
    """The log of a controller that no rank ever joins."""
    (place / "shm").mkdir()
    for name in ("LAGOM_SET", "LAGOM_STRATEGY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"LAGOM_SHM_DIR": str(place / "shm")} | variables).items():
        monkeypatch.setenv(name, value)
    # It is in our process: its priority and its signal handlers would be those of every test after this one.
    monkeypatch.setattr(os, "nice", lambda more: more)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        main(["--job-key", "k", "--dir", str(place / "log"), "--grace", "0", *arguments])
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return list(journal.read(place / "log" / journal.LOG_NAME))


def test_a_rule_that_cannot_be_read_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (aside,) = run(tmp_path, monkeypatch, LAGOM_SET="allgather:>=1M:channels=4")
    assert isinstance(aside, journal.Passthrough)
    assert "allgather:>=1M:channels=4" in aside.reason
    assert list((tmp_path / "shm").iterdir()) == []


def test_a_strategy_that_does_not_exist_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (aside,) = run(tmp_path, monkeypatch, LAGOM_STRATEGY="lagoom")
    assert isinstance(aside, journal.Passthrough)
    assert "lagoom" in aside.reason
    assert list((tmp_path / "shm").iterdir()) == []


def test_nobody_came_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = run(tmp_path, monkeypatch)
    assert isinstance(events[0], journal.JobStart)
    assert isinstance(events[-1], journal.JobEnd)
    assert events[-1].reason == "no rank came"
    assert list((tmp_path / "shm").iterdir()) == []


def test_a_job_that_nobody_named_for_people_is_called_what_its_ranks_call_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank that starts the controller gives no name, and the file's is a number."""
    monkeypatch.setenv("LAGOM_JOB_ID", "s")
    start, *_ = run(tmp_path, monkeypatch, "--job-key", job_key() or "")
    assert isinstance(start, journal.JobStart)
    assert start.job == "s"


def test_a_job_that_ended_by_itself_is_not_said_to_have_been_stopped() -> None:
    assert describe_stop(signal.SIGTERM, launched=True) == "the job's command has ended"
    assert describe_stop(signal.SIGINT, launched=True) == "stopped by SIGINT"
    assert describe_stop(signal.SIGTERM, launched=False) == "stopped by SIGTERM"
