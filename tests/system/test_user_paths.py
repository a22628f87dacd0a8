# SPDX-License-Identifier: Apache-2.0
"""The two ways a user starts a job under lagom, with virtual ranks as the job: ``lagom run``, and variables alone."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lagom import journal
from lagom.cli.pin import write_pins
from lagom.records import Function
from lagom.sim.virtual.call_log import compare_folder, load_configs
from tests.system.launched import launch
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
COMM_ID = 0x1A60D
#: The job: two virtual ranks that know nothing of lagom but the environment they were given; ends when `stop` appears.
JOB = """
import os, sys, time
from pathlib import Path
from lagom.demo.stage import Scene
from lagom.sim.virtual.virtual_job import VirtualJob
folder = Path(sys.argv[1])
environ = {name: value for name, value in os.environ.items() if name.startswith(("LAGOM_", "NCCL_P2P_"))}
with VirtualJob(Scene(ranks=2, layers=2).spec(), folder, environ) as job:
    while job.running() and not (folder / "stop").exists():
        time.sleep(0.02)
    job.stop()
    job.finish()
print("the job is over")
"""


def start(place: Path, *prefix: str, **variables: str) -> subprocess.Popen[str]:
    """The job behind ``prefix``, in ``place``, with a shared memory folder of its own."""
    (place / "shm").mkdir()
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LAGOM_", "NCCL_", "SLURM_"))}
    # A rank that starts the controller finds it by the installed `lagom` script; a checkout has none beside it.
    ours = {"LAGOM_SHM_DIR": str(place / "shm"), "LAGOM_CLOCK": "simulated", "LAGOM_PYTHON": sys.executable}
    environ = clean | {"LAGOM_CACHE": "off"} | ours | variables
    command = [*prefix, sys.executable, "-c", JOB, str(place / "ranks")]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=place, env=environ, stdout=pipe, stderr=pipe, text=True, preexec_fn=end_with_us
    )


def end_with_us() -> None:
    """In the child: SIGTERM when this test's process dies, so that a cancelled run leaves no job behind."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def finish(process: subprocess.Popen[str], place: Path, code: int = 0) -> tuple[str, str]:
    """Ends the job in peace; what it said. ``code``: what it is to exit with."""
    (place / "ranks" / "stop").touch()
    out, err = process.communicate()
    assert process.returncode == code, err
    assert "the job is over" in out
    return out, err


def until(found: Callable[[], bool], what: str, process: subprocess.Popen[str]) -> None:
    def found_or_over() -> bool:
        assert process.poll() is None, process.communicate()[1]
        return found()

    wait_until(found_or_over, what)


def events(place: Path, kind: type) -> list[object]:
    """What the log says so far, of one kind."""
    logs = list(place.glob("lagom-*/decisions.jsonl"))
    return [event for event in journal.read(logs[0]) if isinstance(event, kind)] if logs else []


def channels_used(place: Path) -> set[int | None]:
    """The channels that collectives have run with on rank 0 so far, stock's among them."""
    has_called = (place / "ranks" / f"{COMM_ID:x}.0.calls").exists()
    return {config.channels for config in load_configs(place / "ranks", COMM_ID, 0)} if has_called else set()


def test_lagom_run_pins_and_lagom_set_changes_it_on_every_rank_at_once(tmp_path: Path) -> None:
    lagom = (sys.executable, "-m", "lagom", "run", "--set", f"{Function.ALL_GATHER.word}:any:nc=2", "--")
    process = start(tmp_path, *lagom)
    until(lambda: bool(events(tmp_path, journal.PlanCommitted)), "the first plan", process)
    (folder,) = tmp_path.glob("lagom-*")
    write_pins(folder, ["allgather:any:nc=3"])
    until(lambda: len(events(tmp_path, journal.PlanCommitted)) >= 2, "the second plan", process)
    until(lambda: {2, 3} <= channels_used(tmp_path), "calls with it", process)
    _, err = finish(process, tmp_path)
    assert len(events(tmp_path, journal.RankJoined)) == 2
    assert compare_folder(tmp_path / "ranks", 2) == []
    assert err.splitlines()[0].endswith(f"; log {folder.name}")
    assert err.count("lagom: in force: 1 rule on 2 ranks") == 2, "that of --set, then that of `lagom set`"
    assert list((tmp_path / "shm").iterdir()) == []


def test_with_variables_alone_a_rank_starts_the_controller_and_it_ends_with_the_job(tmp_path: Path) -> None:
    process = start(tmp_path, LAGOM_JOB_ID="alone", LAGOM_SET="allgather:any:nc=2")
    until(lambda: 2 in channels_used(tmp_path), "the first plan in force", process)
    finish(process, tmp_path)
    over = lambda: not list((tmp_path / "shm").iterdir()) and events(tmp_path, journal.JobEnd)  # noqa: E731
    wait_until(over, "the controller to end with the job")
    assert len(events(tmp_path, journal.RankJoined)) == 2
    assert len(events(tmp_path, journal.JobEnd)) == 1


def test_the_controller_can_be_forbidden(tmp_path: Path) -> None:
    process = start(tmp_path, LAGOM_JOB_ID="forbidden", LAGOM_SET="allgather:any:nc=2", LAGOM_CONTROLLER="none")
    until(lambda: list((tmp_path / "shm").iterdir()) != [], "the ranks to join", process)
    time.sleep(2)
    finish(process, tmp_path)
    assert list(tmp_path.glob("lagom-*")) == []
    assert 2 not in channels_used(tmp_path)


def test_a_saved_config_says_what_it_is_good_for_and_goes_when_its_pins_go(tmp_path: Path) -> None:
    lagom = (sys.executable, "-m", "lagom", "run", "--set", "allgather:any:nc=2", "--")
    process = start(tmp_path, *lagom, NCCL_P2P_DISABLE="1")
    until(lambda: any(tmp_path.glob("lagom-*/config.lagom")), "the saved config", process)
    (config,) = tmp_path.glob("lagom-*/config.lagom")
    told = config.read_text()
    assert "fingerprint p2p 0" in told, "a saved config of the host-memory path must not be replayed on NVLink"
    assert "fingerprint ranks 2" in told
    write_pins(config.parent, [])
    until(lambda: not config.exists(), "the saved config to go", process)
    finish(process, tmp_path)
    (end,) = events(tmp_path, journal.JobEnd)
    assert isinstance(end, journal.JobEnd)
    assert end.config == ""


def test_a_strategy_of_ones_own_tunes_a_job(tmp_path: Path) -> None:
    """`examples/own_strategy.py`, by its module and class, from the command line to the outcome in the log."""
    strategy = ("--strategy", "own_strategy:FewerChannels")
    folders = os.pathsep.join([str(ROOT / "examples"), str(ROOT)])
    events, done = launch(tmp_path, *strategy, until=journal.Outcome, PYTHONPATH=folders)
    assert "strategy own_strategy:FewerChannels" in done.stderr.splitlines()[0]
    tried = [event.reason for event in events if isinstance(event, journal.Move) and event.purpose == "trial"]
    assert any("kept" in reason and " at " in reason for reason in tried), tried
    (outcome,) = [event for event in events if isinstance(event, journal.Outcome)]
    assert outcome.verdict in ("improved", "stock_is_best")
    assert "fewer channels were tried at every site" in outcome.reason


def test_a_strategy_that_nobody_has_is_refused_before_the_job_starts(tmp_path: Path) -> None:
    events, done = launch(tmp_path, "--strategy", "own_strategy:NoSuchClass", PYTHONPATH=str(ROOT))
    assert (done.returncode, events) == (2, [])
    assert done.stderr.count("\n") == 1
    assert "the strategy own_strategy:NoSuchClass cannot be imported" in done.stderr
