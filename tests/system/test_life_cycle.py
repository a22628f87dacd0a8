# SPDX-License-Identifier: Apache-2.0
"""Jobs, controllers and processes that come, go, come again and share a host."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import lagom
from lagom import journal
from lagom.config_file import load_config
from lagom.journal.reader import Tail
from lagom.sim.virtual.call_log import load_configs
from lagom.sim.virtual.job_controller import JobController
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls
from lagom.sim.virtual.virtual_job import VirtualJob
from lagom.wire.peek import peek_region
from tests.system.support import Job
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
COMM_ID = 0x11FE
CALLS = fsdp_like_calls(2, 32 << 20)
SPEC = JobSpec(2, (CommunicatorSpec(COMM_ID, "pg", CALLS),), iterations=1 << 40, profiler=False)


def pin(channels: int) -> tuple[str, str]:
    """Options of a controller that pins every AllGather to so many channels."""
    return ("--set", f"allgather:any:nc={channels}")


def channels_used(folder: Path, comm_id: int = COMM_ID, rank: int = 0) -> set[int | None]:
    """The channels that a rank's collectives ran with, stock's among them."""
    configs = load_configs(folder, comm_id, rank)
    return {config.channels for config in configs}


class Log:
    """A log folder's events so far."""

    def __init__(self, folder: Path) -> None:
        self._tail, self._seen = Tail(folder), list[journal.schema.Base]()

    def all(self, kind: type) -> list[journal.schema.Base]:
        self._seen += self._tail.unread()
        return [event for event in self._seen if isinstance(event, kind)]

    def wait(self, kind: type, count: int) -> None:
        wait_until(lambda: len(self.all(kind)) >= count, f"{count} {kind.__name__}")

    def wait_for_plans(self, ranks: VirtualJob, count: int) -> None:
        """Until so many are agreed on, and every rank has made an iteration under the last one of each communicator."""
        self.wait(journal.PlanCommitted, count)
        plans = self.all(journal.PlanCommitted)
        starts = {plan.communicator: plan.start_call for plan in plans}  # type: ignore[attr-defined]
        assert ranks.wait_iteration(max(starts.values()) // len(CALLS) + 2)


def end(ranks: VirtualJob) -> None:
    """Stops a job and compares every call of its ranks."""
    ranks.stop()
    ranks.finish()
    assert ranks.differences() == []


def kill_all(ranks: VirtualJob) -> None:
    for process in ranks.processes:
        process.kill()
    for process in ranks.processes:
        process.wait()


# -- several communicators


def test_pinned_rules_hold_on_several_communicators_at_once(job: Job, tmp_path: Path) -> None:
    """Four communicators on a thread each: every one gets its plan, all are in force at the same time."""
    communicators = tuple(CommunicatorSpec(COMM_ID + i, f"pg{i}", fsdp_like_calls(2, (8 + i) << 20)) for i in range(4))
    spec = replace(SPEC, communicators=communicators, threads=True, ranks=2)
    with JobController(job.environ, job.folder, pin(3)) as controller:
        controller.wait_for_region()
        with VirtualJob(spec, tmp_path / "ranks", job.environ) as ranks:
            log = Log(job.folder)
            log.wait_for_plans(ranks, 4)
            end(ranks)
    assert len({plan.communicator for plan in log.all(journal.PlanCommitted)}) == 4  # type: ignore[attr-defined]
    for one in communicators:
        assert 3 in channels_used(tmp_path / "ranks", one.comm_id)


# -- elastic restart


def elastic(job: Job, restart: int) -> dict[str, str]:
    """What torchrun gives its workers, without a name of ours."""
    named = {name: value for name, value in job.environ.items() if name not in ("LAGOM_JOB_ID", "LAGOM_CONTROLLER")}
    rendezvous = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29401"}
    return {**named, **rendezvous, "TORCHELASTIC_RESTART_COUNT": str(restart), "LAGOM_SET": pin(3 + restart)[1]}


def test_elastic_restart_with_another_world_size(job: Job, tmp_path: Path) -> None:
    """Everybody is killed with SIGKILL, the controller too; torchrun comes again with fewer ranks and the next restart
    count. The new ranks meet in a region of their own, start their own controller, and clear away the old region."""
    shared = Path(job.environ["LAGOM_SHM_DIR"])
    with VirtualJob(replace(SPEC, ranks=3), tmp_path / "first", elastic(job, 0)) as ranks:
        Log(job.folder).wait(journal.PlanCommitted, 1)
        (left,) = shared.glob("lagom-*")
        kill_all(ranks)
        os.kill(peek_region(left).controller_pid, signal.SIGKILL)
        wait_until(lambda: not peek_region(left).in_use, "everybody to be dead")
    shutil.rmtree(job.folder)
    with VirtualJob(SPEC, tmp_path / "second", elastic(job, 1)) as ranks:
        Log(job.folder).wait_for_plans(ranks, 1)
        (region,) = shared.glob("lagom-*")
        assert region != left, "the restart count is part of the name"
        end(ranks)
    assert 4 in channels_used(tmp_path / "second")
    wait_until(lambda: not list(shared.iterdir()), "the controller to remove the region")


def test_a_restart_under_one_name_keeps_region_and_controller(job: Job, tmp_path: Path) -> None:
    """`lagom run -- torchrun`: the controller stays while ranks are killed and fewer come; their communicator is
    another, of another size, in a recycled entry, and gets its plan."""
    with JobController(job.environ, job.folder, pin(3)) as controller:
        controller.wait_for_region()
        log = Log(job.folder)
        for life, ranks_now in enumerate((3, 3, 2)):
            one = CommunicatorSpec(COMM_ID + life, "pg", CALLS)
            spec = replace(SPEC, ranks=ranks_now, communicators=(one,))
            with VirtualJob(spec, tmp_path / str(life), job.environ) as ranks:
                log.wait_for_plans(ranks, life + 1)
                log.wait(journal.RankJoined, (3, 6, 8)[life])
                if life == 1:
                    kill_all(ranks)
                    continue
                end(ranks)
                assert 3 in channels_used(tmp_path / str(life), one.comm_id)
        controller.check()
        wait_until(lambda: not peek_region(job.region).processes, "the ranks to be gone")
    assert len(log.all(journal.RankJoined)) == 8
    saved = load_config(job.folder / "config.lagom")
    assert saved.fingerprint.ranks == 2, "those of the last life"
    assert [section.ranks for section in saved.sections] == [2]


# -- two jobs on one host


def test_two_jobs_on_one_host_have_nothing_to_do_with_each_other(job: Job, tmp_path: Path) -> None:
    """Even with the same communicator id in both."""
    other = Job(
        job.with_(LAGOM_JOB_ID="other", LAGOM_DIR=str(tmp_path / "other-log")), tmp_path / "other-log", job.region, ""
    )
    with contextlib.ExitStack() as stack:
        jobs = []
        for one, channels in ((job, 3), (other, 5)):
            controller = stack.enter_context(JobController(one.environ, one.folder, pin(channels)))
            controller.wait_for_region()
            ranks = stack.enter_context(VirtualJob(SPEC, tmp_path / str(channels), one.environ))
            jobs.append((ranks, Log(one.folder)))
        for ranks, log in jobs:
            log.wait_for_plans(ranks, 1)
            log.wait(journal.RankJoined, 2)
            end(ranks)
            assert len(log.all(journal.RankJoined)) == 2
    assert channels_used(tmp_path / "3") & {3, 5} == {3}
    assert channels_used(tmp_path / "5") & {3, 5} == {5}


def test_two_jobs_under_one_name_by_mistake_disturb_nobody(job: Job, tmp_path: Path) -> None:
    """They share region and controller; their communicators have ids of their own, each is agreed among its ranks."""
    with JobController(job.environ, job.folder, pin(3)) as controller:
        controller.wait_for_region()
        specs = [replace(SPEC, communicators=(CommunicatorSpec(COMM_ID + i, "pg", CALLS),)) for i in range(2)]
        with (
            VirtualJob(specs[0], tmp_path / "0", job.environ) as first,
            VirtualJob(specs[1], tmp_path / "1", job.environ) as second,
        ):
            log = Log(job.folder)
            for ranks in (first, second):
                log.wait_for_plans(ranks, 2)
            end(first)
            assert second.running()
            end(second)
        controller.check()
    for i in range(2):
        assert 3 in channels_used(tmp_path / str(i), COMM_ID + i)


# -- the controller is upgraded under a running job


def installation(place: Path, *, protocol: str = "", version: str = "") -> Path:
    """A copy of this package as another release would be: another protocol in its library, or another version."""
    shutil.copytree(ROOT / "lagom", place / "lagom", ignore=shutil.ignore_patterns("__pycache__"))
    if version:
        path = place / "lagom" / "version.py"
        path.write_text(path.read_text().replace(lagom.__version__, version))
    if protocol:
        shutil.copytree(ROOT / "csrc", place / "csrc")
        header = place / "csrc" / "protocol" / "lagom_protocol.h"
        word = "#define LAGOM_PROTOCOL_VERSION "
        before, after = header.read_text().split(word)
        header.write_text(before + word + protocol + "u" + after[after.index("\n") :])
        sources = [path for path in (place / "csrc").rglob("*.c") if path.name != "dump_layout.c"]
        sources = [path for path in sources if "timeline" not in path.parts]
        line = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-shared", "-fPIC", "-pthread", f"-I{place / 'csrc'}"]
        library = place / "lagom" / "_lib" / "liblagom.so"
        library.unlink()
        subprocess.run([*line, *map(str, sources), "-o", str(library)], check=True)
    return place


@contextlib.contextmanager
def controller_of(place: Path, job: Job, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A controller of another installation, attached to this job's region."""
    environ = {**os.environ, **job.environ, "PYTHONPATH": str(place)}
    line = [sys.executable, "-m", "lagom.controller", "--region", str(job.region), "--dir", str(job.folder)]
    line += ["--clock", "simulated", *options]
    process = subprocess.Popen(line, cwd=place, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_controllers_of_other_releases_under_a_running_job(job: Job, tmp_path: Path) -> None:
    """The controller is killed; the one of another protocol refuses in one sentence and touches nothing, the one of
    another version of the package, same protocol, takes over and has its own plan agreed."""
    stranger = installation(tmp_path / "stranger", protocol="77")
    newer = installation(tmp_path / "newer", version="9.9.9")
    with JobController(job.environ, job.folder, pin(3)) as controller:
        controller.wait_for_region()
        with VirtualJob(SPEC, tmp_path / "ranks", job.environ) as ranks:
            log = Log(job.folder)
            log.wait_for_plans(ranks, 1)
            controller.kill()
            with controller_of(stranger, job, *pin(7)) as refused:
                _, said = refused.communicate()
            assert refused.returncode == 2
            assert said.splitlines() == [
                f"lagom controller: shared memory of {job.region}: the region was made by another version of Lagom; "
                "use one version on all ranks."
            ]
            assert job.region.exists()
            with controller_of(newer, job, *pin(5)):
                log.wait_for_plans(ranks, 2)
                end(ranks)
    starts = [event.lagom for event in log.all(journal.JobStart)]  # type: ignore[attr-defined]
    assert starts == [lagom.__version__, "9.9.9"]
    used = channels_used(tmp_path / "ranks")
    assert {3, 5} <= used
    assert 7 not in used


# -- workers

#: A rank that makes calls, then starts a worker by fork or spawn, as a DataLoader does, and leaves before the worker.
WORKER_JOB = """
import multiprocessing, os, sys, time
from pathlib import Path
from lagom.records import Function
from lagom.sim.virtual.nccl import VirtualNccl
from lagom.sim.virtual.selection import CollectiveCall
from lagom.sim.virtual.selection import nccl_version
from lagom.wire.library import plugin_path

def work(connection):
    maps = Path("/proc/self/maps").read_text()
    paths = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    links = [str(path.readlink()) for path in paths if path.is_symlink()]
    connection.send(("/lagom-" in maps, any("/lagom-" in link for link in links), "nccl-tuner-lagom" in maps))
    time.sleep(3600)

if __name__ == "__main__":
    nccl = VirtualNccl(plugin_path(), nccl_version("2.30"))
    one = nccl.communicator(0xF0, 2)
    one.run([CollectiveCall(Function.ALL_GATHER, 1 << 20)] * 3)
    context = multiprocessing.get_context(sys.argv[1])
    mine, theirs = context.Pipe()
    worker = context.Process(target=work, args=(theirs,))
    worker.start()
    print(worker.pid, *mine.recv(), flush=True)
    one.run([CollectiveCall(Function.ALL_GATHER, 1 << 20)] * 3)
    sys.stdin.readline()
    one.destroy()
    sys.stdout.flush()
    worker._popen = None  # so that nobody waits for it
    multiprocessing.process._children.clear()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_dataloaders_worker_touches_nothing_and_keeps_nothing_alive(method: str, job: Job, tmp_path: Path) -> None:
    """The worker has neither the region nor a descriptor of it, is not counted, and outlives the rank without keeping
    its region from being removed."""
    script = tmp_path / "worker_job.py"
    script.write_text(WORKER_JOB)
    environ: Mapping[str, str] = {**os.environ, **job.environ, "PYTHONPATH": str(ROOT)}
    pipe = subprocess.PIPE
    rank = subprocess.Popen([sys.executable, str(script), method], env=environ, stdin=pipe, stdout=pipe, text=True)
    assert rank.stdin is not None
    assert rank.stdout is not None
    pid, *has = rank.stdout.readline().split()
    try:
        mapped, opened, loaded = (word == "True" for word in has)
        assert (mapped, opened) == (False, False)
        assert loaded == (method == "fork"), "a spawned worker has not even loaded the plugin"
        assert [one.pid for one in peek_region(job.region).processes] == [rank.pid]
        rank.stdin.write("go\n")
        rank.stdin.close()
        assert rank.wait() == 0
        os.kill(int(pid), 0)  # the worker is still there
        assert not job.region.exists()
    finally:
        rank.kill()
        rank.wait()
        rank.stdout.close()
        os.kill(int(pid), signal.SIGKILL)


# -- ranks that have parted

#: Two ranks of one communicator in one process, as with several GPUs; from some call on one makes another collective,
#: which NCCL would not survive either.
PARTED_JOB = """
import sys, time
from lagom.records import Function
from lagom.sim.virtual.nccl import VirtualNccl
from lagom.sim.virtual.selection import CollectiveCall
from lagom.sim.virtual.selection import nccl_version
from lagom.wire.library import plugin_path

nccl = VirtualNccl(plugin_path(), nccl_version("2.30"))
ranks = [nccl.communicator(0xAA, 2, rank=number) for number in range(2)]
alike, other = CollectiveCall(Function.ALL_GATHER, 1 << 20), CollectiveCall(Function.ALL_REDUCE, 1 << 20)
print("ready", flush=True)
for number in range(100000):
    for rank in range(2):
        ranks[rank].run([other if number == int(sys.argv[1]) and rank == 1 else alike])
    time.sleep(0.01)
"""


@pytest.mark.parametrize("parts", [True, False])
def test_the_log_tells_of_ranks_that_have_made_different_calls(parts: bool, job: Job, tmp_path: Path) -> None:
    environ = {**os.environ, **job.environ, "PYTHONPATH": str(ROOT), "LAGOM_CLOCK": "simulated"}
    with JobController(job.environ, job.folder) as controller:
        controller.wait_for_region()
        line = [sys.executable, "-c", PARTED_JOB, "50" if parts else "-1"]
        ranks = subprocess.Popen(line, env=environ, stdout=subprocess.PIPE, text=True)
        try:
            assert ranks.stdout is not None
            assert ranks.stdout.readline() == "ready\n"
            log = Log(job.folder)

            def told() -> bool:
                return any("made different calls" in note.text for note in log.all(journal.Note))  # type: ignore[attr-defined]

            if parts:
                wait_until(told, "the note", pause=0.1)
            else:
                time.sleep(3)
                assert not told()
        finally:
            ranks.kill()
            ranks.communicate()
