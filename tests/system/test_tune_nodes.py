# SPDX-License-Identifier: Apache-2.0
"""`lagom tune --nnodes 2`: two launchers as two nodes, each with a part of the job, exchange through a folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lagom.config_file import load_config
from lagom.experiment.store import RunRecord, read_record
from lagom.start import Transport, known_groups
from lagom.tune import TuneRecord
from tests.forked_commands import Lagom, lagom
from tests.system.test_tune import GROUPS_ALONE, METRIC, environment, write_job
from tests.tiers import FULL
from tests.waiting import wait_until

GROUPS = known_groups(Transport.SOCKET, len(os.sched_getaffinity(0)))
OPTIONS = ("--transport", "sockets", "--metric", METRIC, "--samples", "3", "--budget", "1h")
#: Sockets help, and only the first rank prints, as with torchrun on the first node. No noise: the search is short.
SOCKETS_HELP = """
job._SOCKET_NOISE = 0.0
job.step_ms_of = lambda environ: 1.0 if environ.get("NCCL_SOCKET_NTHREADS") else 2.0
if os.environ["NCCL_HOSTID"] == "b":
    sys.stdout = open(os.devnull, "w")
"""
#: What test_tune's script waits for is in the folder of the launcher.
HOLD = """
while Path("../hold-" + folder.name).exists():
    time.sleep(0.05)
"""
#: A job of two nodes by torchrun, which prints how long a step takes.
TORCHRUN_JOB = """
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
x = torch.ones(1 << 10)
for step in range(10_000):
    begin = time.perf_counter()
    dist.all_reduce(x)
    time.sleep(0.01)
    if dist.get_rank() == 0:
        print(f"iteration {step}: {1e3 * (time.perf_counter() - begin):.2f} ms", flush=True)
    if step == 0:
        print("settings", os.environ.get("NCCL_SOCKET_NTHREADS", "none"), flush=True)
"""


def launcher(place: Path, node: str, job: tuple[str, ...], *options: str) -> tuple[list[str], dict[str, Any]]:
    """One of them, in a folder of its own, with the cache of its node; the results are in a folder of both."""
    here = place / node
    here.mkdir(exist_ok=True)
    environ = environment(here, NCCL_HOSTID=node, LAGOM_CACHE=str(here / "cache"), **GROUPS_ALONE)
    environ["LAGOM_CLOCK"] = "simulated"
    command = ["tune", "--nnodes", "2", "--out", str(place / "out"), *OPTIONS, *options, "--", *job]
    return command, {"cwd": here, "env": environ}


def search(place: Path, node: str, job: tuple[str, ...], *options: str) -> subprocess.CompletedProcess[str]:
    """One launcher, to its end."""
    command, more = launcher(place, node, job, *options)
    return lagom(*command, **more)


def both(place: Path, job: tuple[str, ...], *options: str) -> dict[str, subprocess.CompletedProcess[str]]:
    with ThreadPoolExecutor(2) as pool:
        tasks = {node: pool.submit(search, place, node, job, *options) for node in ("a", "b")}
        return {node: task.result() for node, task in tasks.items()}


def coordinator_of(done: dict[str, subprocess.CompletedProcess[str]]) -> tuple[str, str]:
    """Its node and the other one."""
    first = next(node for node in done if f"coordinator {node};" in done[node].stderr)
    return first, "b" if first == "a" else "a"


def started_on(place: Path, node: str, first: str) -> Iterator[RunRecord]:
    folder = place / "out" if node == first else place / "out" / f"node-{node}"
    yield from read_record(folder / "bench.json", TuneRecord).runs


def test_an_interruption_on_one_node_ends_both_and_both_have_run_the_same(tmp_path: Path) -> None:
    hold, begun = tmp_path / "hold-2", tmp_path / "checkpoints" / "2"
    command, here = launcher(tmp_path, "b", write_job(tmp_path, SOCKETS_HELP + HOLD, iterations=4))
    hold.touch()  # the second process does not come to its end, however late the signal comes
    with ThreadPoolExecutor(1) as pool:
        other_one = pool.submit(search, tmp_path, "a", tuple(command[command.index("--") + 1 :]))
        running = Lagom(*command, **here)
        wait_until(begun.exists, "the second process")
        running.send_signal(signal.SIGTERM)  # where tests run in the background Ctrl-C may be ignored
        _, said = running.communicate()
        hold.unlink()
        done = {"a": other_one.result(), "b": subprocess.CompletedProcess(command, running.wait(), stderr=said)}
    first, other = coordinator_of(done)
    assert done["b"].returncode == 128 + signal.SIGTERM, said
    assert "interrupted: the same command" in said
    assert done["a"].returncode == 3, done["a"].stderr
    assert "node b was interrupted; the same command on all nodes continues." in done["a"].stderr
    assert {run.node for run in same_on_both(tmp_path, first, other)} == {"a"}, "node b prints nothing"


def same_on_both(place: Path, first: str, other: str) -> list[RunRecord]:
    """The coordinator's processes; the other node has started the same ones, with the same variables."""
    ours, theirs = (list(started_on(place, node, first)) for node in (first, other))
    assert [run.settings for run in ours] == [run.settings for run in theirs]
    assert ours
    return ours


@pytest.mark.slow
@pytest.mark.skipif(not FULL or len(GROUPS) < 2, reason="a search of two launchers to its end: make test-full")
def test_two_launchers_find_one_start_and_both_keep_it(tmp_path: Path) -> None:
    done = both(tmp_path, write_job(tmp_path, SOCKETS_HELP, iterations=4))
    first, other = coordinator_of(done)
    same_on_both(tmp_path, first, other)
    assert [one.returncode for one in done.values()] == [0, 0], done
    configs = [tmp_path / "out" / "config.lagom", tmp_path / "out" / f"node-{other}" / "config.lagom"]
    assert configs[0].read_bytes() == configs[1].read_bytes()
    assert load_config(configs[0]).environment["NCCL_SOCKET_NTHREADS"]
    assert all("\nNCCL_SOCKET_NTHREADS=" in config.with_name("nccl.conf").read_text() for config in configs)
    assert f"node {first} has finished: improved." in done[other].stderr
    assert all("lagom tune: next: on each node: lagom run -- " in one.stderr for one in done.values())
    kept = {node: list((tmp_path / node / "cache" / "configs").glob("*.lagom")) for node in done}
    assert all(len(files) == 1 for files in kept.values()), "in the cache of each node"


def test_nodes_that_start_different_commands_are_refused_on_both(tmp_path: Path) -> None:
    jobs = {"a": (sys.executable, "train.py", "--layers", "2"), "b": (sys.executable, "train.py", "--layers", "4")}
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda node: search(tmp_path, node, jobs[node]), jobs))
    for one in done:
        assert one.returncode == 2
        assert "lagom: not the same on all nodes: the command of " in one.stderr
        assert "Traceback" not in one.stderr
    assert not (tmp_path / "out" / "bench.json").exists(), "nothing was started"


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="two torchruns, each of which imports torch for every process: make test-full")
@pytest.mark.parametrize("exchange", ["folder", "store"])
def test_torchrun_over_two_nodes(tmp_path: Path, exchange: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(TORCHRUN_JOB)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1")
    job = (*torchrun, "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:29711", str(script))
    options = ("--rdzv-endpoint", "127.0.0.1:29712") if exchange == "store" else ()
    done = both(tmp_path, job, *options, "--budget", "40s")
    first, other = coordinator_of(done)
    (run,) = same_on_both(tmp_path, first, other)
    assert run.counted, "the value of whichever node has torch's first rank"
    assert "no rank was seen to call NCCL through the plugin" in done[first].stderr, (
        "and with gloo there is nothing to tune"
    )
    left = subprocess.run(["pgrep", "-f", str(script)], capture_output=True, text=True, check=False).stdout
    assert not left, "no rank is left on either node"
