# SPDX-License-Identifier: Apache-2.0
"""What the machine around a job may be like: shared memory of a container's size or none, folders nobody can write,
a wall clock that jumps, process ids of one's own, and every launcher's way of naming a job.

Mounts and PID namespaces are made for the job alone (`unshare`); where that is not allowed these tests skip and say so.
"""

from __future__ import annotations

import functools
import json
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lagom import journal
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls
from lagom.sim.virtual.virtual_job import RankSummary, VirtualJob
from lagom.wire.job_key import key_and_region
from lagom.wire.peek import peek_region
from tests.system.storm import CELLS, Control, Weather
from tests.system.support import Job
from tests.system.test_controller_faults import Log, tuning
from tests.system.test_user_paths import channels_used, events, finish, start, until
from tests.waiting import wait_until

HERE = Path(__file__).resolve().parent
FRESH_PROCESSES = True  # an interpreter of its own plays with the clock
COMM_ID = 0x50BB
PIN = "allgather:any:nc=2"


@functools.cache
def can_mount() -> bool:
    """Whether a file system may be mounted in a namespace of our own."""
    line = ["unshare", "-m", "--propagation", "private", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(line, capture_output=True, check=False).returncode == 0


def behind(*mounts: str) -> tuple[str, ...]:
    """A prefix that runs a command where these shell lines have mounted something."""
    if not can_mount():
        pytest.skip("mounting in a namespace of our own is not allowed here")
    return ("unshare", "-m", "--propagation", "private", "sh", "-c", " && ".join([*mounts, 'exec "$@"']), "sh")


def tmpfs(variable: str, options: str) -> str:
    """Mounts a tmpfs on the folder that a variable names."""
    return f'mkdir -p "${variable}" && mount -t tmpfs -o {options} none "${variable}"'


def read_only(variable: str) -> str:
    """What lies there stays, but cannot be written to."""
    return (
        f'mkdir -p "${variable}" && mount --bind "${variable}" "${variable}" && mount -o remount,bind,ro "${variable}"'
    )


def summaries(place: Path) -> list[RankSummary]:
    """What the ranks of an ended job wrote."""
    texts = [path.read_text() for path in sorted((place / "ranks").glob("rank*.json"))]
    return [RankSummary(**json.loads(text)) for text in texts]


def runs_stock(place: Path, prefix: tuple[str, ...], **variables: str) -> str:
    """A job that asks for two channels behind ``prefix`` and gets none of it; the one line that says why."""
    process = start(place, *prefix, LAGOM_JOB_ID="around", LAGOM_SET=PIN, **variables)
    until(lambda: len(list((place / "ranks").glob("rank*.err"))) == 2, "the ranks", process)
    time.sleep(2.0)
    finish(process, place)
    ended = summaries(place)
    assert [one.was_stock for one in ended] == [True, True]
    reasons = {line for one in ended for line in one.log if "NCCL runs stock" in line}
    assert len(reasons) == 1, ended[0].log
    return reasons.pop()


# -- shared memory


def test_half_of_dockers_shared_memory_is_enough(tmp_path: Path) -> None:
    """Docker gives 64 MB to everybody; 32 MB are enough for us, and we take less than a quarter of them."""
    process = start(tmp_path, *behind(tmpfs("LAGOM_SHM_DIR", "size=32m")), LAGOM_JOB_ID="docker", LAGOM_SET=PIN)
    until(lambda: 2 in channels_used(tmp_path), "the pinned plan in force", process)
    finish(process, tmp_path)


@pytest.mark.parametrize(("options", "words"), [("size=16m", "a quarter of the free space"), ("ro", "Read-only")])
def test_without_room_for_a_region_the_job_runs_stock(options: str, words: str, tmp_path: Path) -> None:
    assert words in runs_stock(tmp_path, behind(tmpfs("LAGOM_SHM_DIR", options)))


# -- folders


def test_a_home_that_cannot_be_written_is_not_missed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    variables = {
        "HOME": str(tmp_path / "home"),
        "XDG_CACHE_HOME": "/proc/none",
        "LAGOM_DIR": str(tmp_path / "lagom-log"),
    }
    process = start(tmp_path, *behind(read_only("HOME")), LAGOM_JOB_ID="home", LAGOM_SET=PIN, **variables)
    until(lambda: bool(events(tmp_path, journal.PlanCommitted)), "the pinned plan", process)
    finish(process, tmp_path)
    assert list((tmp_path / "home").iterdir()) == []


def test_a_log_folder_that_cannot_be_written_is_said_and_the_job_runs_stock(tmp_path: Path) -> None:
    folder = tmp_path / "lagom-log"
    said = runs_stock(tmp_path, behind(read_only("LAGOM_DIR")), LAGOM_DIR=str(folder))
    assert "the log folder cannot be written to (Read-only file system); set LAGOM_DIR" in said


def test_a_full_disk_costs_the_log_and_nothing_else(tmp_path: Path) -> None:
    """The log's file system has no byte left: the search cannot be told, but what was pinned is agreed and runs."""
    full = [tmpfs("LAGOM_DIR", "size=8k,mode=0700"), 'head -c 8k /dev/zero > "$LAGOM_DIR/filler" || true']
    process = start(tmp_path, *behind(*full), LAGOM_JOB_ID="full", LAGOM_SET=PIN, LAGOM_DIR=str(tmp_path / "lagom-log"))
    until(lambda: 2 in channels_used(tmp_path), "the pinned plan in force", process)
    finish(process, tmp_path)


# -- clocks


@pytest.mark.slow
def test_nothing_is_decided_by_the_wall_clock(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks and controller under a wall clock that steps by ten days forth and back, 27 times a second: the search goes
    its way, trials are agreed and end, and only the log's time stamps tell of it."""
    jumps = tmp_path / "clock_jumps.so"
    source = HERE / "native" / "preload" / "clock_jumps.c"
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", str(source), "-o", str(jumps)], check=True)
    shaken = Job({**job.environ, "LD_PRELOAD": str(jumps)}, job.folder, job.region, job.key)
    # What a job preloads is kept from its controller: this one's interpreter preloads it itself.
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nLD_PRELOAD={jumps} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with tuning(shaken, tmp_path / "ranks") as (controller, ranks, tail):
        log = Log(tail)

        def has_jumped() -> bool:
            log.leases()
            stamps = [event.t for event in log.events]
            return max(stamps) - min(stamps) > 10 * 86400

        for _ in range(2):
            log.wait_for_trial()
        wait_until(has_jumped, "the clock to jump between two lines of the log")
        controller.check()
        ranks.stop()
        ranks.finish()
        assert ranks.differences() == []
    assert any(isinstance(event, journal.Move) for event in log.events)


# -- process ids


def test_ranks_in_containers_of_their_own_agree(programs: Path, plugin: Path, job: Job, tmp_path: Path) -> None:
    """Eight ranks, each process 1 of a PID namespace, as in a container a rank with shared /dev/shm: they find each
    other, nobody is taken for dead, and all follow the saved config from one call on."""
    probe = subprocess.run(["unshare", "-p", "-f", "true"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("a PID namespace is not allowed here")
    weather = Weather(plans=0, seconds=40, ranks=8, communicators=1, seed=5)
    config = f"lagom-config 1\ncommunicator ranks={weather.ranks} nodes=1 ordinal=0\nrule any 64K - nc=5\nend\n"
    (tmp_path / "config").write_text(config)
    control, dice, ranks = Control(tmp_path / "control", weather), random.Random(weather.seed), []
    environ = {**os.environ, **job.with_(LAGOM_MODE="replay", LAGOM_CONFIG=str(tmp_path / "config"))}
    for rank in range(weather.ranks):
        line = ["unshare", "-p", "-f", "--kill-child", str(programs / "storm_rank"), str(plugin)]
        ranks.append(
            subprocess.Popen([*line, str(tmp_path / "control"), str(rank)], env=environ, stderr=subprocess.DEVNULL)
        )
        time.sleep(dice.random() * 0.02)
    wait_until(lambda: min(map(min, control.calls())) >= CELLS or control["stop"], "enough calls")
    pids = {rank.pid for rank in peek_region(job.region).processes}
    alive = len(peek_region(job.region).processes)
    control["stop"] = 1
    assert [rank.wait() for rank in ranks] == [0] * weather.ranks
    assert (alive, pids) == (weather.ranks, {1})
    assert control["difference"] == 0
    assert control.changed() > CELLS


# -- names

LAUNCHERS = {
    "torchrun": {
        "TORCHELASTIC_RUN_ID": "none",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29511",
        "TORCHELASTIC_RESTART_COUNT": "0",
    },
    "srun": {
        "SLURM_JOB_ID": "8812",
        "SLURM_STEP_ID": "0",
        "SLURM_JOBID": "8812",
        "MASTER_ADDR": "node1",
        "MASTER_PORT": "1",
    },
    "srun, requeued": {"SLURM_JOB_ID": "8812", "SLURM_STEP_ID": "0", "SLURM_RESTART_COUNT": "1"},
    "mpirun (PMIx)": {"PMIX_NAMESPACE": "prterun-node1-4711@1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_UNIVERSE_SIZE": "2"},
    "mpiexec (PMI)": {"PMI_JOBID": "kvs_1234_0", "PMI_SIZE": "2"},
    "mp.spawn": {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512"},
    "a file store, no variable": {},
}
NAMES = {
    "torchrun": "elastic.none.127.0.0.1.29511.0",
    "srun": "slurm.8812.0",
    "srun, requeued": "slurm.8812.0.1",
    "mpirun (PMIx)": "pmix.prterun-node1-4711@1",
    "mpiexec (PMI)": "pmi.kvs_1234_0",
    "mp.spawn": "master.127.0.0.1.29512",
    "a file store, no variable": f"comm.{COMM_ID:016x}",
}


def spec(ranks: int = 2) -> JobSpec:
    """A small job that runs until it is told to stop."""
    return JobSpec(ranks, (CommunicatorSpec(COMM_ID, "pg", fsdp_like_calls(2, 32 << 20)),), iterations=1 << 40)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_of_every_launcher_meet_in_one_region(launcher: str, tmp_path: Path) -> None:
    shared = tmp_path / "shm"
    shared.mkdir()
    environ = {**LAUNCHERS[launcher], "LAGOM_SHM_DIR": str(shared), "LAGOM_MODE": "tune", "LAGOM_CONTROLLER": "none"}
    per_rank = {"RANK": "0", "PMI_RANK": "0", "SLURM_PROCID": "0"}  # differ in a real job; must not name it
    with VirtualJob(spec(), tmp_path / "ranks", {**environ, **per_rank}) as ranks:
        assert ranks.wait_iteration(3)
        (region,) = shared.iterdir()
        seen = peek_region(region)
        assert len(seen.processes) == 2, seen
        ranks.stop()
        ranks.finish()
    assert seen.job_key.startswith(f"{NAMES[launcher]} uid={os.getuid()} boot="), seen.job_key
    assert seen.job_key.endswith("host=-")
    assert list(shared.iterdir()) == []


def test_a_controller_finds_the_region_by_the_launchers_variables(tmp_path: Path) -> None:
    """`lagom` in the job's environment derives the same name as its ranks; without a name it says so."""
    for launcher, variables in LAUNCHERS.items():
        if variables:
            key, _ = key_and_region({**variables, "LAGOM_SHM_DIR": str(tmp_path)})
            assert key.startswith(NAMES[launcher])
    script = "from lagom.wire.job_key import job_key; print(job_key())"
    clean = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH", "HOME")}
    done = subprocess.run([sys.executable, "-c", script], env=clean, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "None"


@pytest.mark.parametrize(
    ("more", "folder"),
    [
        ({"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "NCCL_HOSTID": "a/b"}, "node-a-b"),
        ({"SLURM_STEP_NUM_NODES": "2"}, f"node-{socket.gethostname()}"),
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "NCCL_HOSTID": "a"}, "."),
        ({"SLURM_STEP_NUM_NODES": "2", "LAGOM_LAUNCHER": "1"}, "."),  # `lagom run` has named the node's already
    ],
)
def test_a_rank_that_starts_the_controller_gives_each_node_a_log_folder(
    more: dict[str, str], folder: str, tmp_path: Path
) -> None:
    """The first communicator is one within the node: the launcher's variables show that there are others."""
    (tmp_path / "shm").mkdir()
    environ = {"LAGOM_JOB_ID": "nodes", "LAGOM_SHM_DIR": str(tmp_path / "shm"), "LAGOM_DIR": str(tmp_path / "log"),
               "LAGOM_PYTHON": sys.executable, "LAGOM_MODE": "tune", **more}  # fmt: skip
    with VirtualJob(spec(), tmp_path / "ranks", environ) as ranks:
        wait_until((tmp_path / "log" / folder / "decisions.jsonl").exists, "the log")
        ranks.stop()
        ranks.finish()
