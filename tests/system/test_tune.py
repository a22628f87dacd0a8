# SPDX-License-Identifier: Apache-2.0
"""`lagom tune` on virtual ranks: what it finds and writes; what becomes of it when it is interrupted, when a rank
is not started as wanted, and when a group of start settings breaks the job."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lagom.cli.tune import DEMO
from lagom.config_file import load_config
from lagom.environment import read_conf
from lagom.experiment.store import RunRecord, read_record
from lagom.start import Transport, find_variable, known_factors, known_groups
from lagom.tune import TuneRecord
from tests.forked_commands import lagom
from tests.system.launched import bare_environment
from tests.waiting import wait_until

METRIC = r"iteration \d+: ([0-9.]+) ms"
ROOT = Path(__file__).resolve().parents[2]
#: As many as the cores of this machine are enough for.
GROUPS = known_groups(Transport.SOCKET, len(os.sched_getaffinity(0)))
#: The demo's job behind a few lines of the user's: a folder of its own for each process, which holds a checkpoint.
TRAIN = """
import os, sys, time
from pathlib import Path
sys.path[1:1] = ["{root}"]
from lagom.demo import job
from tests.system.forked_job import forked
job.spawned = forked
folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
with (folder / "checkpoint").open("a") as file:
    file.write(os.environ["LAGOM_TRIAL"] + "\\n")
while Path("hold-" + folder.name).exists():
    time.sleep(0.05)
{more}
job.main(["--sockets", "--iterations", "{iterations}", "--real-ms", "{real_ms}"])
"""
#: Ranks of `python -m lagom.demo.job` are forked from it, as those of forked_job.py: with this, a Python finds the
#: module `spawned` comes from changed.
FORKED_RANKS = """
import sys
if sys.orig_argv[1:3] == ["-m", "lagom.demo.job"]:
    from lagom.sim.virtual import virtual_job
    from tests.system.forked_job import forked
    virtual_job.spawned = forked
"""
#: Variables that the user has set are not searched: the groups are all there is, without a design.
GROUPS_ALONE = {
    name: find_variable(name).values[0] for name in known_factors(Transport.SOCKET, known_groups(Transport.SOCKET))
}
#: Every group is so much slower that none is run a second time.
ALL_SLOWER = """
job._SOCKET_NOISE = 0.0
job.step_ms_of = lambda environ: 1.5 if environ.get("NCCL_SOCKET_NTHREADS") else 1.0
"""
#: The second rank does not get what the job was started with, as with a launcher that does not pass it on.
ONE_RANK_WITHOUT = """
begin = job.spawned
def without(arguments, environ, *more, **named):
    kept = {name: value for name, value in environ.items() if name != "NCCL_SOCKET_NTHREADS"}
    return begin(arguments, kept if arguments[1] == "1" else environ, *more, **named)
job.spawned = without
"""
#: This group does not start at all.
BREAKS = """
if os.environ.get("NCCL_SOCKET_NTHREADS"):
    sys.exit("out of threads")
"""


def environment(place: Path, **variables: str) -> dict[str, str]:
    """With shared memory of its own, and no other job's."""
    (place / "shm").mkdir(exist_ok=True)
    return {**bare_environment(), "LAGOM_SHM_DIR": str(place / "shm"), "HOME": str(place), **variables}


def line(*options: str, job: tuple[str, ...] = ()) -> list[str]:
    """The command line."""
    return ["tune", "--out", "out", *options, *(("--", *job) if job else ())]


def tune(
    place: Path, *options: str, job: tuple[str, ...] = (), code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """To its end; on a busy machine that takes the same command more than once."""
    while True:
        done = lagom(*line(*options, job=job), cwd=place, env=environment(place, **variables))
        if "the same command continues" not in done.stderr:
            break
    assert done.returncode == code, done.stderr
    return done


def write_job(place: Path, more: str, iterations: int = 6, real_ms: int = 1) -> tuple[str, ...]:
    """A script that runs the demo's job, and what is started: with a folder for each process."""
    script = place / "train.py"
    script.write_text(TRAIN.format(root=ROOT, more=more, iterations=iterations, real_ms=real_ms))
    return sys.executable, str(script), f"{place}/checkpoints/{{trial}}"


def runs_in(place: Path) -> list[RunRecord]:
    """What the record holds."""
    record = place / "out" / "bench.json"
    return read_record(record, TuneRecord).runs if record.exists() else []


@pytest.mark.slow
def test_the_demo_finds_sockets_with_channels_and_the_saved_config_starts_the_job_with_them(tmp_path: Path) -> None:
    """Named with --config, and out of the cache, where `lagom tune` has put it."""
    (tmp_path / "sitecustomize.py").write_text(FORKED_RANKS)
    cache = {"LAGOM_CACHE": str(tmp_path / "cache"), "LAGOM_CLOCK": "simulated", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = tune(tmp_path, "--demo", "--budget", "20s", "--json", **cache)
    assert "simulated" in done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "improved"
    assert result["speedup"]["low"] > 1.5
    settings = result["settings"]
    assert (settings["NCCL_SOCKET_NTHREADS"], settings["NCCL_NSOCKS_PERTHREAD"]) == ("4", "4")
    assert settings["NCCL_MIN_NCHANNELS"] in ("8", "16")
    out = tmp_path / "out"
    assert load_config(out / "config.lagom").environment == settings
    assert read_conf(out / "nccl.conf") == settings
    assert "the config is kept: the next start of this job replays it" in done.stderr
    assert result["simulated"]
    assert (out / "nccl.conf").read_text().startswith("# Simulated: ")
    assert "next: LAGOM_CLOCK=simulated lagom run --config out/config.lagom -- " in done.stderr
    for options, plan in (
        (("--config", "out/config.lagom"), "saved config"),
        ((), "config cached by lagom tune on 20"),
    ):
        job = (sys.executable, "-m", "lagom.demo.job", *DEMO)
        environ = environment(tmp_path, **cache)
        ran = lagom("run", *options, "--", *job, cwd=tmp_path, env=environ)
        assert ran.returncode == 0, ran.stderr
        assert f"lagom: plan: replay {plan}" in ran.stderr
        assert "lagom: set for the saved config: NCCL_SOCKET_NTHREADS=4" in ran.stderr
        steps = [float(one.split(": ")[1].split()[0]) for one in ran.stdout.splitlines() if one.startswith("iteration")]
        assert len(steps) == 8
        assert max(steps) < 250, "of 382 ms by plain NCCL"
    told = lagom("env", cwd=tmp_path, env=environ)
    assert len(told.stdout.splitlines()) == 1
    assert 'eval "$(lagom env --config cache/configs/' in told.stderr
    assert list((tmp_path / "shm").iterdir()) == [], "no region is left behind"


@pytest.mark.slow
@pytest.mark.skipif(len(GROUPS) < 2, reason="one core: there is no group to try")
def test_an_interrupted_search_keeps_what_was_measured_and_no_process_touches_another_one_s_folder(
    tmp_path: Path,
) -> None:
    """Ctrl-C, then SIGKILL, then the same command once more: as many processes as without either."""
    job = write_job(tmp_path, ALL_SLOWER)
    options = ("--transport", "sockets", "--metric", METRIC, "--samples", "3", "--budget", "1h")
    for number, ending, code in ((signal.SIGINT, 1, 130), (signal.SIGKILL, 2, -signal.SIGKILL)):
        kept = interrupt(tmp_path, line(*options, job=job), number, ending)
        assert kept.returncode == code
        assert len(runs_in(tmp_path)) == ending
        if number == signal.SIGINT:
            assert "the same command (--out out" in str(kept.stderr)
            assert "Traceback" not in str(kept.stderr)
    before = runs_in(tmp_path)
    done = tune(tmp_path, *options, job=job, code=1, **GROUPS_ALONE)
    assert "plain NCCL is best" in done.stdout
    runs = runs_in(tmp_path)
    assert runs[: len(before)] == before, "none is lost, none is run again"
    compared = [run for run in runs if run.kind == "process"]  # the ranks are on one node: one more may be tuned live
    assert sorted(run.arm for run in compared) == sorted([*(group.name for group in GROUPS), *["plain NCCL"] * 2])
    assert all(run.counted for run in compared)
    folders = sorted((tmp_path / "checkpoints").iterdir(), key=lambda folder: int(folder.name))
    assert [folder.name for folder in folders] == [str(number) for number in range(1, len(runs) + 1)]
    for folder in folders:
        assert {*(folder / "checkpoint").read_text().split()} == {folder.name}, "LAGOM_TRIAL is the folder's number"
    assert not (tmp_path / "out" / "config.lagom").exists(), "nothing better was found"


def interrupt(place: Path, command: list[str], number: int, processes: int) -> subprocess.CompletedProcess[str]:
    """The command, ended by a signal once so many processes are in the record and the next one is under way."""
    following = str(processes + 1)
    hold, begun = place / f"hold-{following}", place / "checkpoints" / following
    hold.touch()  # that one does not come to its end, however late the signal comes
    process = subprocess.Popen(
        [sys.executable, "-m", "lagom", *command], cwd=place, env=environment(place, **GROUPS_ALONE), text=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True, preexec_fn=heeding_ctrl_c,
    )  # fmt: skip
    try:
        wait_until(begun.exists, f"process {following}")
        process.send_signal(number)
        _, said = process.communicate()
    finally:
        process.kill()
        hold.unlink()
    return subprocess.CompletedProcess(command, process.returncode, stderr=said)


def heeding_ctrl_c() -> None:
    """What runs in the background of a shell without job control, as CI may, begins with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def search_one_group(
    place: Path, more: str, variables: Mapping[str, str], **length: int
) -> tuple[str, list[RunRecord]]:
    """A search in which only 4x4 sockets are left to try, since the user has set the channels; it finds nothing."""
    job = write_job(place, more, **length)
    options = ("--transport", "sockets", "--metric", METRIC, "--budget", "1h")
    done = tune(place, *options, job=job, code=1, **variables, **GROUPS_ALONE)
    assert "NCCL_MIN_NCHANNELS is set by you, and stays" in done.stderr
    runs = [run for run in runs_in(place) if run.kind == "process"]  # the ranks are on one node: one more is tuned live
    assert {run.arm for run in runs} == {"plain NCCL", "4x4 sockets"}
    return done.stderr, runs


def test_a_rank_that_was_started_otherwise_is_named_and_its_process_does_not_count(tmp_path: Path) -> None:
    """Every rank is looked at every 0.2 s. Where the machine is so busy that one is over before it was, they live five
    times as long, and then 25 times."""
    for real_ms in (150, 750, 3750):
        place = tmp_path / str(real_ms)
        place.mkdir()
        length = {"iterations": 10, "real_ms": real_ms}
        said, runs = search_one_group(place, ONE_RANK_WITHOUT, {"NCCL_MIN_NCHANNELS": "2"}, **length)
        if all(run.ranks_seen == 2 for run in runs):
            break
    tried = [run for run in runs if run.settings]
    assert [run.ranks_seen for run in runs] == [2] * len(runs)
    assert len(tried) == 2
    assert all(run.counted is None for run in tried)
    assert all("rank 1 was not started with NCCL_SOCKET_NTHREADS=4" in run.reason for run in tried)
    assert "rank 1 was not started with NCCL_SOCKET_NTHREADS=4" in said
    assert all(run.counted for run in runs if not run.settings), "plain NCCL has neither"


def test_a_group_that_breaks_the_job_is_left_out_and_the_search_ends(tmp_path: Path) -> None:
    said, runs = search_one_group(tmp_path, BREAKS, {"NCCL_MIN_NCHANNELS": "2"})
    tried = [run for run in runs if run.settings]
    assert [run.exit for run in tried] == [1, 1], "tried twice, then given up"
    assert len(runs) <= 4
    assert "out of threads" in said


def test_a_job_that_does_not_run_is_not_started_for_ever(tmp_path: Path) -> None:
    failing = (sys.executable, "-c", "raise SystemExit('no such data set')")
    done = tune(tmp_path, "--transport", "sockets", "--metric", METRIC, job=failing, code=1, NCCL_MIN_NCHANNELS="2")
    assert "plain NCCL gave nothing 2 times in a row" in done.stderr
    assert "no such data set" in done.stderr
    assert len(runs_in(tmp_path)) <= 4
    assert os.listdir(tmp_path / "shm") == []
