"""``lagom run`` with a profile leaves a log that says what the ranks did with it, though no controller runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from lagom import journal
from lagom.report import from_log
from tests.waiting import wait_until

REFUSAL = "the profile was made for a number of ranks of 3 and this is 2"


def profile(place: Path, ranks: int) -> Path:
    path = place / "wanted.lagom"
    path.write_text(
        f"lagom-profile 1\nfingerprint ranks {ranks}\ncommunicator ranks={ranks} nodes=1 ordinal=0\n"
        "rule allgather 1M - nc=4\nend\n"
    )
    return path


def events_in(folder: Path) -> list[Any]:
    """What the log says so far."""
    log = folder / journal.LOG_NAME
    return list(journal.read(log)) if log.exists() else []


def run(place: Path, *options: str, until: type) -> tuple[list[Any], subprocess.CompletedProcess[str]]:
    """The demo's job of two ranks until an event of that kind is in its log; (events of its log, what it said)."""
    (place / "shm").mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LAGOM_", "NCCL_", "SLURM_"))}
    environ = {**clean, "LAGOM_SHM_DIR": str(place / "shm"), "LAGOM_CLOCK": "simulated"}
    job = [sys.executable, "-m", "lagom.demo.job", "--ranks", "2", "--layers", "4"]
    command = [sys.executable, "-m", "lagom", "run", *options, "--dir", str(place / "log"), "--", *job]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=place, env=environ, stdout=pipe, stderr=pipe, text=True) as process:
        threading.Thread(target=tell_to_end, args=(process, place / "log", until)).start()
        said = process.communicate()
    done = subprocess.CompletedProcess(command, process.returncode, *said)
    return list(journal.read(journal.find_log(place / "log"))), done


def tell_to_end(process: subprocess.Popen[str], folder: Path, until: type) -> None:
    """SIGTERM once there is such an event: it is passed on to the job, which ends in order."""
    wait_until(
        lambda: process.poll() is not None or any(isinstance(event, until) for event in events_in(folder)),
        f"{until.__name__} in {folder}",
    )
    process.terminate()


def announced(done: subprocess.CompletedProcess[str]) -> str:
    """The job's name, as `lagom run` says it first."""
    return done.stderr.split("lagom: job ", 1)[1].split(",", 1)[0]


def test_a_replay_is_in_the_log_from_its_start_to_its_end(tmp_path: Path) -> None:
    events, done = run(
        tmp_path, "--mode", "replay", "--profile", str(profile(tmp_path, 2)), until=journal.PlanCommitted
    )
    assert done.returncode == 0
    assert isinstance(events[0], journal.JobStart)
    assert (events[0].mode, events[0].job) == ("replay", announced(done))
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
    events, done = run(tmp_path, "--mode", "replay", "--profile", str(profile(tmp_path, 3)), until=journal.Passthrough)
    assert done.returncode == 0
    assert REFUSAL in done.stderr, "the demo's ranks are heard"
    (aside,) = [event for event in events if isinstance(event, journal.Passthrough)]
    assert REFUSAL in aside.reason
    assert not [event for event in events if isinstance(event, journal.PlanCommitted)]
    assert isinstance(events[-1], journal.JobEnd)
    assert "ended with 0" in events[-1].reason


def test_a_profile_of_another_job_is_not_said_to_be_in_force(tmp_path: Path) -> None:
    """Made with this NCCL, on this GPU, with as many ranks: agreed, and not one call of it comes up."""
    path = tmp_path / "wanted.lagom"
    path.write_text(
        "lagom-profile 2\nfingerprint ranks 2\ncommunicator ranks=2 nodes=1 ordinal=0\n"
        "site 0 allgather 123M nc=2\nprogram 3x0\nend\n"
    )
    events, done = run(tmp_path, "--mode", "replay", "--profile", str(path), until=journal.Passthrough)
    assert done.returncode == 0, done.stderr
    (aside,) = [event for event in events if isinstance(event, journal.Passthrough)]
    assert "not one iteration of its program (3 calls)" in aside.reason
    assert aside.reason in done.stderr
    (part,) = from_log.build_report(journal.RunState(events), "here").communicators
    assert not part.rules
    assert "NCCL decides" in part.answer


def test_sites_that_differ_in_context_only_are_told_apart(tmp_path: Path) -> None:
    """Which of them compute hides is in the saved config alone; what reads alike is one line."""
    path, sites = tmp_path / "wanted.lagom", "".join(f"site {at} allgather 123M nc=2\n" for at in range(3))
    path.write_text(
        f"lagom-profile 2\nfingerprint ranks 2\ncommunicator ranks=2 nodes=1 ordinal=0\n{sites}program 0 1 2\nend\n"
        '#: {"ranks": 2, "ordinal": 0, "context": ["hidden", "exposed", "hidden"]}\n'
    )
    events, done = run(tmp_path, "--mode", "replay", "--profile", str(path), until=journal.PlanCommitted)
    assert done.returncode == 0, done.stderr
    (plan,) = [event for event in events if isinstance(event, journal.PlanPublished)]
    assert plan.rules == ("allgather 123M hidden: nc=2", "allgather 123M exposed: nc=2")


@pytest.mark.parametrize("ranks", [2, 3])
def test_auto_has_one_job_of_the_announced_name(tmp_path: Path, ranks: int) -> None:
    """Replayed: told by the launcher. Refused: tuned, and told by the controller that the ranks start."""
    until = journal.PlanCommitted if ranks == 2 else journal.RankJoined
    events, done = run(tmp_path, "--mode", "auto", "--profile", str(profile(tmp_path, ranks)), until=until)
    starts = [event for event in events if isinstance(event, journal.JobStart)]
    assert [start.job for start in starts] == [announced(done)]
    assert starts[0].mode == ("auto" if ranks == 2 else "tune")
    committed = {event.purpose for event in events if isinstance(event, journal.PlanPublished)}
    assert ("replay" in committed) == (ranks == 2)
