# SPDX-License-Identifier: Apache-2.0
"""What becomes of the processes that outlive the launcher of a trial."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lagom import journal
from lagom.experiment import process, trial_processes
from lagom.experiment.process import Ended, ProcessStart, grace_within, run_process
from lagom.experiment.trial_processes import TrialProcesses, list_processes
from tests.waiting import PATIENCE, wait_until

#: Called by a script for a process that it has started: writes its number once it runs in a session of its own. A
#: script that ended earlier would take it along, since what is left of its process group is killed.
BEGUN = 'begun() { until [ "$(cat /proc/$1/comm)" = sleep ]; do sleep 0.01; done; echo $1 > "$0/$2"; }'
#: Starts each rank in a session of its own, as torchrun does.
LAUNCHER = """
for rank in 0 1; do LOCAL_RANK=$rank setsid sleep 3000 & begun $! rank-$rank; done
echo $$ > "$0/launcher"
wait
"""
#: A daemon that keeps stdout open, and has inherited the number of the rank that started it.
DAEMON = "echo begun; LOCAL_RANK=0 setsid sleep 3000 & begun $! daemon; echo ended"
DEAF = "trap '' TERM; echo $$ > \"$0/job\"; while :; do sleep 0.05; done"


def is_running(pid: int) -> bool:
    return any(other == pid and state != "Z" for other, state, _ in list_processes())


@dataclass
class Trial:
    """A trial of a shell script, which is given the folder as $0 and writes numbers of processes there."""

    folder: Path
    said: list[str] = field(default_factory=list)

    def pid(self, name: str) -> int:
        file = self.folder / name
        return int(file.read_text() or 0) if file.exists() else 0

    def run(self, script: str, lagom: list[str] | None = None, **options: object) -> Ended:
        line = ["sh", "-c", f"{BEGUN}\n{script}", str(self.folder)]
        return run_process(ProcessStart(line, self.folder, "job", lagom, say=self.said.append, **options))  # type: ignore[arg-type]

    def after(self, *names: str, do: Callable[[], object]) -> Callable[[], None]:
        """To be called while it runs: does it once the script has written all of these."""
        done: list[object] = []

        def look() -> None:
            if not done and all(self.pid(name) for name in names):
                done.append(do())

        return look


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    found = Trial(tmp_path)
    yield found
    for file in (*tmp_path.glob("rank-*"), *tmp_path.glob("daemon*")):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)


def parent_of(pid: int) -> int:
    return next(parent for other, _, parent in list_processes() if other == pid)


def children() -> set[int]:
    return {pid for pid, _, parent in list_processes() if parent == os.getpid()}


@pytest.mark.parametrize("whom", ["the launcher", "lagom run"])
def test_where_a_launcher_is_killed_no_rank_is_left_and_the_log_is_whole(
    trial: Trial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whom: str
) -> None:
    """The controller has a session of its own, too, and is not ended before it has written its last line."""
    (tmp_path / "shm").mkdir()
    monkeypatch.setenv("LAGOM_SHM_DIR", str(tmp_path / "shm"))
    monkeypatch.setattr(trial_processes, "CONTROLLER_SECONDS", PATIENCE)  # however busy the machine is
    monkeypatch.setattr(trial_processes, "SETTLE_SECONDS", PATIENCE)

    def kill() -> None:
        log = tmp_path / "job" / journal.LOG_NAME
        wait_until(lambda: log.exists() and "job_start" in log.read_text(), "the controller")
        launcher = trial.pid("launcher")
        os.kill(launcher if whom == "the launcher" else parent_of(launcher), signal.SIGKILL)

    ended = trial.run(LAUNCHER, ["--mode", "tune"], while_it_runs=trial.after("rank-0", "rank-1", "launcher", do=kill))
    assert ended.ended == "itself"
    assert ended.exit in (128 + signal.SIGKILL, -signal.SIGKILL)
    assert not [name for name in ("rank-0", "rank-1", "launcher") if is_running(trial.pid(name))]
    assert isinstance(ended.seen.events[-1], journal.JobEnd)
    (said,) = trial.said
    assert f"pid {trial.pid('rank-0')} (sleep 3000)" in said
    assert "SIGKILL after 5 s" in said
    assert list((tmp_path / "shm").iterdir()) == []


def test_ranks_that_a_launcher_does_not_end_in_time_are_ended_without_the_plugin_too(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The arm `off`: the job is ended by us, and its launcher takes longer than it has."""
    monkeypatch.setattr(trial_processes, "SETTLE_SECONDS", PATIENCE)  # however busy the machine is
    enough = trial.after("rank-0", "rank-1", "launcher", do=lambda: True)

    def is_enough(seen: process.Seen) -> bool:
        enough()
        return bool(trial.pid("launcher"))

    ended = trial.run(f"trap '' TERM\n{LAUNCHER}", grace=3.5, enough=is_enough)
    assert ended.ended == "us"
    assert not [name for name in ("rank-0", "rank-1", "launcher") if is_running(trial.pid(name))]
    waits, ends = trial.said
    assert "has not ended 3 s after SIGTERM" in waits
    assert f"pid {trial.pid('launcher')} (sh -c " in waits
    assert "outlived the launcher" in ends


def test_a_rank_that_ignores_sigterm_is_killed(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_processes, "RANK_SECONDS", 0.5)
    deaf = "trap '' TERM; " + LAUNCHER  # its children inherit that
    kill = trial.after("rank-0", "rank-1", "launcher", do=lambda: os.kill(trial.pid("launcher"), signal.SIGKILL))
    trial.run(deaf, while_it_runs=kill)
    assert not [name for name in ("rank-0", "rank-1") if is_running(trial.pid(name))]


def test_a_daemon_of_a_job_that_has_ended_well_is_named_and_left_and_its_stdout_not_waited_for(trial: Trial) -> None:
    ended = trial.run(DAEMON)
    assert (ended.exit, ended.ended) == (0, "itself")
    assert is_running(trial.pid("daemon"))
    (said,) = trial.said
    assert f"pid {trial.pid('daemon')} (sleep 3000)" in said
    assert said.endswith(f"kill {trial.pid('daemon')}")
    assert list(ended.seen.lines) == ["begun", "ended"]
    assert (trial.folder / "job.out").read_text() == "begun\nended\n"


def test_what_hides_its_environment_is_found_and_ended_if_it_uses_a_gpu(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As setproctitle does. A child of a subreaper cannot be missed, and CUDA's device is open."""
    device = trial.folder / "device"
    device.touch()
    monkeypatch.setattr(trial_processes, "CUDA_DEVICE", str(device))
    script = """
    env -i setsid sleep 3000 < "$0/device" & begun $! rank-0
    env -i setsid sleep 3001 & begun $! daemon
    exit 1
    """
    assert trial.run(script).exit == 1
    assert not is_running(trial.pid("rank-0"))
    assert is_running(trial.pid("daemon"))
    ended, left = trial.said
    assert f"pid {trial.pid('rank-0')} (sleep 3000) outlived" in ended
    assert f"left pid {trial.pid('daemon')} (sleep 3001)" in left


def test_a_variable_that_the_launcher_was_given_makes_no_rank(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch script of Slurm has SLURM_PROCID=0, and whatever it starts inherits that."""
    monkeypatch.setenv("SLURM_PROCID", "0")
    trial.run("""
    setsid sleep 3000 & begun $! daemon
    SLURM_PROCID=1 setsid sleep 3000 & begun $! rank-1
    exit 1
    """)
    assert is_running(trial.pid("daemon"))
    assert not is_running(trial.pid("rank-1"))


def test_orphans_are_reaped_and_what_others_have_started_is_not(trial: Trial) -> None:
    """Who waits for a process that somebody else has reaped is told that it ended with 0."""
    before = children()
    with subprocess.Popen(["sh", "-c", "exit 7"]) as other:
        wait_until(lambda: not is_running(other.pid), "the end of another child")
        trial.run(DAEMON)
        daemon = trial.pid("daemon")
        assert parent_of(daemon) == os.getpid()
        os.kill(daemon, signal.SIGKILL)
        trial.run("(setsid true &)")
        # What takes longer to end than a trial is reaped in a later one.
        wait_until(lambda: children() <= before | {other.pid} or trial.run("true") is None, "the end of the orphans")
    assert other.returncode == 7


def test_a_job_that_ignores_sigterm_is_said_to_be_waited_for_and_killed_in_its_time(
    trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "SOON_SECONDS", 0.2)
    enough = trial.run(DEAF, grace=1.0, enough=lambda seen: bool(trial.pid("job")))
    assert enough.ended == "us"
    assert not is_running(trial.pid("job"))
    assert f"pid {trial.pid('job')} (sh -c " in trial.said[0]
    assert "SIGKILL 1 s after SIGTERM" in trial.said[0]


def test_the_time_to_end_is_a_share_of_a_small_budget() -> None:
    assert [grace_within(budget) for budget in (None, 1200.0, 300.0, 30.0)] == [60.0, 60.0, 30.0, 10.0]


def test_every_process_has_a_job_s_name_of_its_own(tmp_path: Path) -> None:
    starts = [ProcessStart(["true"], tmp_path, name, lagom) for name in ("a", "b") for lagom in (None, [])]
    assert len({start.environment()["LAGOM_JOB_ID"] for start in starts}) == 2
    assert all(start.environment() == start.environment() for start in starts)


def test_a_process_of_another_trial_is_not_found() -> None:
    with subprocess.Popen(["sleep", "3000"], env={"LAGOM_JOB_ID": "bench-other", "RANK": "0"}) as other:
        trial = TrialProcesses({"LAGOM_JOB_ID": "bench-this"})
        with subprocess.Popen(["sleep", "3000"], env={"LAGOM_JOB_ID": "bench-other", "RANK": "0"}) as later:
            assert trial.alive() == []
            later.kill()
        other.kill()
    trial.end(lambda text: None, ended_well=True)
