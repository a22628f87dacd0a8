# SPDX-License-Identifier: Apache-2.0
"""A launcher of two is killed or stopped at each step of a round: the other one ends with a sentence, no process of the
job is left, no round counts that ran on one node only or with other settings, and the same command continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.system.nodes_launcher import STAGES, VALUES
from tests.tiers import FULL
from tests.waiting import PATIENCE, wait_until

ROOT = Path(__file__).resolve().parents[2]
KILL, STOP = signal.SIGKILL, signal.SIGSTOP
CELLS = [
    (who, stage, number)
    for who in ("coordinator", "other")
    for stage in STAGES
    for number in (KILL, STOP)
    if stage != "enrol"  # then nobody has agreed: tests of their own
]
#: Each step, each side and each signal at least once, where not all are run.
QUICK = [
    ("coordinator", "running", KILL),
    ("other", "go", STOP),
    ("coordinator", "stop", STOP),
    ("other", "done", KILL),
]


def start_one(
    folder: Path, name: str, struck: str = "", stage: str = "enrol", number: int = 0
) -> subprocess.Popen[str]:
    """A launcher; ``struck``: which of the two is."""
    flags = [str(int(name == "coordinator")), stage, str(number if name == struck else 0)]
    words = [sys.executable, "-m", "tests.system.nodes_launcher", str(folder), name, *flags]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)


@dataclass
class Launchers:
    """The two of one command, by name."""

    running: dict[str, subprocess.Popen[str]]

    @classmethod
    def start(cls, folder: Path, struck: str = "", stage: str = "enrol", number: int = 0) -> Launchers:
        names = ("coordinator", "other")
        return cls({name: start_one(folder, name, struck, stage, number) for name in names})

    def wait(self, name: str) -> tuple[int, str]:
        said = self.running[name].communicate(timeout=PATIENCE)[0]
        return self.running[name].returncode, said


def jobs_left(folder: Path) -> list[int]:
    """Processes of the job that run: a number may be another process's by now."""
    found = []
    for file in folder.glob("job-*"):
        pid = int(file.read_text() or 0)
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", b"0.3"]:
            found.append(pid)
    return found


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def ran(folder: Path, name: str) -> list[str]:
    file = folder / f"ran-{name}"
    return file.read_text().splitlines() if file.exists() else []


def check_rounds(folder: Path) -> int:
    """What was kept ran on both nodes with the same settings; returns how many rounds that is."""
    kept = (folder / "kept").read_text().splitlines() if (folder / "kept").exists() else []
    for number, value, *nodes in map(str.split, kept):
        assert nodes == ["coordinator", "other"]
        assert value == VALUES[int(number) - 1]
        assert all(f"{number} {value}" in ran(folder, name) for name in nodes)
    return len(kept)


@pytest.mark.parametrize(("struck", "stage", "number"), CELLS if FULL else QUICK)
def test_whoever_is_struck_the_other_ends_and_nothing_is_left(
    struck: str, stage: str, number: signal.Signals, tmp_path: Path
) -> None:
    launchers = Launchers.start(tmp_path, struck, stage, number)
    process = launchers.running[struck]
    other = "other" if struck == "coordinator" else "coordinator"
    if number == KILL:
        assert process.wait(PATIENCE) == -KILL
    else:
        wait_until(lambda: is_stopped(process.pid), "the launcher to stop itself")
    code, said = launchers.wait(other)
    assert code == 3, said
    assert said == f"node {struck} has not answered for 2 s; the same command on all nodes continues.\n"
    if number == STOP:
        os.kill(process.pid, signal.SIGCONT)
        code, said = launchers.wait(struck)
        assert code == 3, said
        assert f"node {struck} has not answered" in said
    wait_until(lambda: not jobs_left(tmp_path), "the job to end")
    kept = check_rounds(tmp_path)
    assert kept <= len(VALUES) - 1
    (tmp_path / "struck").unlink()
    again = Launchers.start(tmp_path)
    assert [again.wait(name) for name in again.running] == [(0, ""), (0, "")]
    assert check_rounds(tmp_path) == kept + len(VALUES)
    assert not jobs_left(tmp_path)


@pytest.mark.parametrize("number", [KILL, STOP] if FULL else [STOP])
def test_a_coordinator_that_is_struck_while_it_enrols_is_not_counted(number: signal.Signals, tmp_path: Path) -> None:
    struck = start_one(tmp_path, "coordinator", "coordinator", "enrol", number)
    if number == KILL:
        assert struck.wait(PATIENCE) == -KILL
    else:
        wait_until(lambda: is_stopped(struck.pid), "the launcher to stop itself")
    (tmp_path / "struck").unlink()
    again = Launchers.start(tmp_path)
    assert [again.wait(name) for name in again.running] == [(0, ""), (0, "")]
    assert check_rounds(tmp_path) == len(VALUES)
    if number == STOP:
        newest = max(int(one.name) for one in (tmp_path / "exchange").iterdir())
        os.kill(struck.pid, signal.SIGCONT)  # it finds that it was passed over, and waits for others
        wait_until((tmp_path / "exchange" / str(newest + 1) / "seat" / "0").exists, "another session")
        struck.kill()
        struck.wait()
    assert not jobs_left(tmp_path)
    assert check_rounds(tmp_path) == len(VALUES)


def test_every_step_side_and_signal_is_among_those_that_are_always_run() -> None:
    assert {stage for _, stage, _ in QUICK} >= set(STAGES) - {"enrol"}
    assert {(struck, number) for struck, _, number in QUICK} == {
        ("coordinator", KILL), ("other", STOP), ("coordinator", STOP), ("other", KILL),
    }  # fmt: skip


@pytest.mark.parametrize("number", [KILL, STOP] if FULL else [KILL])
def test_another_one_that_is_struck_while_it_enrols_is_not_counted(number: signal.Signals, tmp_path: Path) -> None:
    """The coordinator waits for one that lives."""
    launchers = Launchers.start(tmp_path, "other", "enrol", number)
    struck = launchers.running["other"]
    if number == KILL:
        assert struck.wait(PATIENCE) == -KILL
    else:
        wait_until(lambda: is_stopped(struck.pid), "the launcher to stop itself")
    (tmp_path / "struck").unlink()
    launchers.running["other"] = start_one(tmp_path, "other")
    assert [launchers.wait(name) for name in launchers.running] == [(0, ""), (0, "")]
    assert check_rounds(tmp_path) == len(VALUES)
    assert int(min(one.name for one in (tmp_path / "exchange").iterdir() if (one / "end").exists())) > 1
    struck.kill()
    struck.wait(PATIENCE)
