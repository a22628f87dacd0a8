# SPDX-License-Identifier: Apache-2.0
"""``lagom run`` with a saved config leaves a log that says what the ranks did with it, though no controller runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lagom import journal
from lagom.journal import RunState, verdict_of
from lagom.report import from_log
from tests.system.launched import launch

REFUSAL = "saved config refused: made for 3 ranks, this job has 2; NCCL chooses"


def config(place: Path, ranks: int) -> Path:
    path = place / "wanted.lagom"
    path.write_text(
        f"lagom-config 1\nfingerprint ranks {ranks}\ncommunicator ranks={ranks} nodes=1 ordinal=0\n"
        "rule allgather 1M - nc=4\nend\n"
    )
    return path


def test_a_replay_is_in_the_log_from_its_start_to_its_end(tmp_path: Path) -> None:
    events, done = launch(
        tmp_path, "--mode", "replay", "--config", str(config(tmp_path, 2)), until=journal.PlanCommitted
    )
    assert done.returncode == 0
    assert isinstance(events[0], journal.JobStart)
    assert events[0].mode == "replay"
    assert events[0].config == str(tmp_path / "wanted.lagom")
    assert sum(isinstance(event, journal.RankJoined) for event in events) == 2
    (plan,) = [event for event in events if isinstance(event, journal.PlanPublished)]
    assert plan.purpose == "replay"
    assert "nc=4" in plan.rules[0]
    assert [event.epoch for event in events if isinstance(event, journal.PlanCommitted)] == [plan.epoch]
    assert not [event for event in events if isinstance(event, journal.Passthrough)]
    assert isinstance(events[-1], journal.JobEnd)
    assert "ended with 0" in events[-1].reason
    (part,) = from_log.build_report(journal.RunState(events), "here").communicators
    assert part.answer.startswith("Replayed from a saved config")
    assert not list((tmp_path / "shm").iterdir()), "looking at the region keeps nothing"


def test_a_refused_replay_is_in_the_log_with_the_plugins_reason(tmp_path: Path) -> None:
    events, done = launch(tmp_path, "--mode", "replay", "--config", str(config(tmp_path, 3)), until=journal.Passthrough)
    assert done.returncode == 0
    assert done.stderr.count(f"lagom: not in force: {REFUSAL}\n") == 1
    assert done.stderr.count(REFUSAL) == 2, "and in the line on how it ended; the ranks leave it to the launcher"
    (aside,) = [event for event in events if isinstance(event, journal.Passthrough)]
    assert (aside.reason, aside.cause) == (REFUSAL, "config_refused")
    assert verdict_of(RunState(events)) == "refused"
    assert not [event for event in events if isinstance(event, journal.PlanCommitted)]
    assert isinstance(events[-1], journal.JobEnd)
    assert "ended with 0" in events[-1].reason


def test_a_saved_config_of_another_job_is_not_said_to_be_in_force(tmp_path: Path) -> None:
    """Made with this NCCL, on this GPU, with as many ranks: agreed, and not one call of it comes up."""
    path = tmp_path / "wanted.lagom"
    path.write_text(
        "lagom-config 1\nfingerprint ranks 2\ncommunicator ranks=2 nodes=1 ordinal=0\n"
        "site 0 allgather 123M nc=2\nprogram 3x0\nend\n"
    )
    events, done = launch(tmp_path, "--mode", "replay", "--config", str(path), until=journal.Passthrough)
    assert done.returncode == 0, done.stderr
    (aside,) = [event for event in events if isinstance(event, journal.Passthrough)]
    assert "saved config of another program: no iteration of its 3 calls" in aside.reason
    assert aside.cause == "other_program"
    assert f"lagom: not in force: {aside.reason}" in done.stderr
    assert verdict_of(RunState(events)) == "other_program"
    (part,) = from_log.build_report(journal.RunState(events), "here").communicators
    assert not part.rules
    assert "NCCL decides" in part.answer
    assert "lagom: in force" not in done.stderr


def test_sites_that_differ_in_context_only_are_told_apart(tmp_path: Path) -> None:
    """Which of them compute hides is in the saved config alone; what reads alike is one line."""
    path, sites = tmp_path / "wanted.lagom", "".join(f"site {at} allgather 416M nc=2\n" for at in range(3))
    path.write_text(
        f"lagom-config 1\nfingerprint ranks 2\ncommunicator ranks=2 nodes=1 ordinal=0\n{sites}program 0 1 2\nend\n"
        '#: {"ranks": 2, "ordinal": 0, "context": ["hidden", "exposed", "hidden"]}\n'
    )
    events, done = launch(tmp_path, "--mode", "replay", "--config", str(path), until=journal.PlanCommitted)
    assert done.returncode == 0, done.stderr
    (plan,) = [event for event in events if isinstance(event, journal.PlanPublished)]
    assert plan.rules == ("allgather 416M hidden: nc=2", "allgather 416M exposed: nc=2")


@pytest.mark.parametrize("ranks", [2, 3])
def test_replay_or_tune_has_one_job_in_its_log(tmp_path: Path, ranks: int) -> None:
    """Replayed: told by the launcher. Refused: tuned, and told by the controller that the ranks start."""
    until = journal.PlanCommitted if ranks == 2 else journal.Program
    events, done = launch(tmp_path, "--or-tune", "--config", str(config(tmp_path, ranks)), until=until)
    (start,) = [event for event in events if isinstance(event, journal.JobStart)]
    assert start.mode == ("replay-or-tune" if ranks == 2 else "tune")
    refused = "not in force: saved config refused: made for 3 ranks, this job has 2; the job is"
    assert (refused in done.stderr) == (ranks == 3)
    committed = {event.purpose for event in events if isinstance(event, journal.PlanPublished)}
    assert ("replay" in committed) == (ranks == 2)


def test_replay_or_tune_searches_another_program(tmp_path: Path) -> None:
    """The ranks have agreed on the config by then, and follow the controller all the same."""
    path = tmp_path / "wanted.lagom"
    path.write_text(
        "lagom-config 1\nfingerprint ranks 2\ncommunicator ranks=2 nodes=1 ordinal=0\n"
        "site 0 allgather 123M nc=2\nprogram 3x0\nend\n"
    )
    events, done = launch(tmp_path, "--or-tune", "--config", str(path), until=journal.PlanCommitted)
    assert done.returncode == 0, done.stderr
    assert [event.mode for event in events if isinstance(event, journal.JobStart)] == ["replay-or-tune", "tune"]
    assert "saved config of another program: no iteration of its 3 calls" in done.stderr
    assert "searching" in done.stderr
    assert "replay" not in {event.purpose for event in events if isinstance(event, journal.PlanPublished)}
    assert not list((tmp_path / "shm").iterdir())
