# SPDX-License-Identifier: Apache-2.0
"""`lagom tune` with a launcher on each of two nodes, and the next starts of the job: found from nothing, taken from the
caches of both nodes, beside the setting that is known by hand and plain NCCL.

    python -m benchmarks.nodes_start fsdp --out FOLDER --search 420s --rounds 6 --seconds 580
    python -m benchmarks.nodes_start --table FOLDER/nodes_start.json

Two nodes of one machine: each launcher has half of the GPUs, a ``NCCL_HOSTID``, a working folder and a cache of its
own; NCCL connects them by sockets over loopback. They share the folder of the search alone. Plain NCCL and the setting
by hand are started without Lagom. A sample is the median of the steps of one process but the first three. The same
command continues: what is in FOLDER is not done again. No round begins before the search has ended, and none is
completed once a later one has begun: the arms of a round are compared because they ran in turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.jobs.arms import about
from benchmarks.node_tables import SETTLING, table
from lagom.files import write_whole

JOBS = Path(__file__).resolve().parent / "jobs"
NODES = ("a", "b")
SOCKETS = {"NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
BY_HAND = {"NCCL_NSOCKS_PERTHREAD": "4", "NCCL_SOCKET_NTHREADS": "4", "NCCL_MIN_NCHANNELS": "8"}
METRIC = r'"ms": ([0-9.]+)'
#: A launcher of a job that has not ended by then hangs.
MOST_SECONDS = 90
#: What a search has to end in, once it is interrupted: its job's ranks are ended first.
SECONDS_TO_END = 25
REGIME = "2 nodes of one machine, sockets over loopback"
ONE_CACHE = "one node without a cache"
COMMANDS = {
    "fsdp": ("fsdp_nodes.py", "--hidden", "4096", "--layers", "2", "--tokens", "4096", "--steps", "12"),
    "ddp": ("ddp.py", "--layers", "2", "--tokens", "2048", "--steps", "12"),
}
Data = dict[str, Any]


def job_of(kind: str, ranks: int) -> list[str]:
    """The command, the same on both nodes."""
    script, *options = COMMANDS[kind]
    torchrun = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", str(ranks)]
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:29711", "--local-addr", "127.0.0.1"]
    return [sys.executable, *torchrun, *meeting, str(JOBS / script), *options]


class Nodes:
    """Two nodes in a folder. ``gpus``: of the machine, shared out evenly."""

    def __init__(self, folder: Path, gpus: int) -> None:
        self.folder, self._each = folder, gpus // len(NODES)

    def start(
        self,
        command: Sequence[str],
        more: Mapping[str, str],
        caches: Mapping[str, str] | None = None,
        most_seconds: float = MOST_SECONDS,
    ) -> Data:
        """The same command on both at once; what each printed, and how it ended. ``caches``: of a node, another folder
        than its own. After ``most_seconds`` it is interrupted."""
        began = time.monotonic()
        running = {node: self._begin(node, command, more, (caches or {}).get(node, "cache")) for node in NODES}
        interruption = threading.Timer(most_seconds, interrupt, [list(running.values())])
        interruption.start()
        try:
            most = began + most_seconds + SECONDS_TO_END
            said = {node: self._end(process, most - time.monotonic()) for node, process in running.items()}
        finally:
            interruption.cancel()
        seconds = round(time.monotonic() - began, 1)
        return {"seconds": seconds, "exit": {node: process.returncode for node, process in running.items()}, **said}

    def _begin(self, node: str, command: Sequence[str], more: Mapping[str, str], cache: str) -> subprocess.Popen[str]:
        here = self.folder / node
        here.mkdir(parents=True, exist_ok=True)
        first = NODES.index(node) * self._each
        own = {"NCCL_HOSTID": node, "LAGOM_CACHE": str(here / cache)}
        own |= {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(first, first + self._each)))}
        return subprocess.Popen(
            command, cwd=here, env={**os.environ, **SOCKETS, **own, **more}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    @staticmethod
    def _end(process: subprocess.Popen[str], seconds: float) -> str:
        try:
            return process.communicate(timeout=max(seconds, 1.0))[0]
        except subprocess.TimeoutExpired:
            process.kill()
            return process.communicate()[0]


def interrupt(running: Iterable[subprocess.Popen[str]]) -> None:
    """A search keeps its record then, and the same command continues it. Not as Ctrl-C does: who was started in the
    background ignores that."""
    for process in running:
        process.terminate()


def steps_of(done: Data) -> list[float]:
    """Milliseconds, by whichever node printed them."""
    return [float(found) for node in NODES for found in re.findall(METRIC, done[node])]


def our_lines(done: Data) -> dict[str, list[str]]:
    """What Lagom said on each node."""
    return {node: [line for line in done[node].splitlines() if line.startswith("lagom")] for node in NODES}


class Run:
    """The measurement of one job. ``ends_at``: by time.monotonic()."""

    def __init__(self, options: argparse.Namespace, job: list[str], ends_at: float) -> None:
        self.folder, self.job, self.ends_at = Path(options.out).resolve(), job, ends_at
        self.nodes = Nodes(self.folder, options.gpus)
        self.file = self.folder / "nodes_start.json"
        begun = {**about(bool(options.own)), "regime": REGIME, "command": options.command, "job": job}
        begun |= {"searches": [], "processes": []}
        self.kept: Data = json.loads(self.file.read_text()) if self.file.exists() else begun
        self._began = self.kept.setdefault("began", time.time())  # of the first call, in seconds since 1970

    def search(self, budget: str, more: Sequence[str]) -> None:
        """Both launchers. ``more``: options of lagom tune."""
        options = ["--nnodes", "2", "--out", str(self.folder / "tune"), "--metric", METRIC, "--samples", "7", *more]
        command = [sys.executable, "-m", "lagom", "tune", *options, "--budget", budget, "--", *self.job]
        began = self._since_begun()
        left = self.ends_at - time.monotonic() - SECONDS_TO_END
        done = self.nodes.start(command, {}, most_seconds=max(left, 1.0))
        self._keep("searches", {**done, "budget": budget, "began": began})
        record = self.folder / "tune" / "bench.json"
        if record.exists():
            self.kept["record"] = json.loads(record.read_text())
            self._save()

    @property
    def has_found(self) -> bool:
        """Whether a search has ended with a config, on every node."""
        return any(not any(search["exit"].values()) for search in self.kept["searches"])

    def next_start(self, arm: str, number: int) -> None:
        """One process of an arm."""
        lagom = [sys.executable, "-m", "lagom", "run", "--dir", f"log-{arm.split()[0]}-{number}", "--"]
        more = {"by hand": BY_HAND, ONE_CACHE: {"LAGOM_EXCHANGE": str(self.folder / "tune" / "nodes")}}
        caches = {NODES[1]: "no-cache"} if arm == ONE_CACHE else None
        is_ours = arm in ("found", ONE_CACHE)
        began = self._since_begun()
        done = self.nodes.start([*(lagom if is_ours else ()), *self.job], more.get(arm, {}), caches)
        steps = steps_of(done)
        failed = "" if steps and not any(done["exit"].values()) else done["a"][-2000:] + done["b"][-2000:]
        about = {"arm": arm, "round": number, "steps_ms": steps, "said": our_lines(done), "failed": failed}
        self._keep("processes", {**about, "began": began, "seconds": done["seconds"], "exit": done["exit"]})
        print(
            f"[{self.ends_at - time.monotonic():.0f} s left] {arm} {number}: {_ms(steps)}, {done['seconds']} s",
            flush=True,
        )

    def rounds(self, count: int, seed: int) -> Iterator[tuple[str, int]]:
        """What is left to do, each round in an order of its own; plain NCCL in every other one, and there twice: it is
        known to be slow, and the others are what is close. Nothing before the search has ended, and nothing of a round
        before the last one that has begun."""
        if not self.has_found:
            return
        done = [(process["arm"], process["round"]) for process in self.kept["processes"]]
        for number in range(max((number for _, number in done), default=0), count):
            arms = ["found", "by hand", *["plain"] * (2 * (number % 2))]
            for arm in random.Random(f"{seed} {number}").sample(arms, len(arms)):
                if (arm, number) in done:
                    done.remove((arm, number))
                else:
                    yield arm, number
        if (ONE_CACHE, 0) not in done:
            yield ONE_CACHE, 0

    def _since_begun(self) -> float:
        return round(time.time() - self._began, 1)

    def _keep(self, name: str, what: Data) -> None:
        self.kept[name].append(what)
        self._save()

    def _save(self) -> None:
        write_whole(self.file, json.dumps(self.kept, indent=1) + "\n")


def _ms(steps: Sequence[float]) -> str:
    return f"{statistics.median(steps[SETTLING:]):.1f} ms" if len(steps) > SETTLING else "no steps"


def main() -> None:
    """Measures, or prints the table of a file."""
    parser = argparse.ArgumentParser(description="lagom tune by two launchers, and the next starts of the job.")
    parser.add_argument("job", nargs="?", choices=COMMANDS, default="fsdp")
    parser.add_argument("--out", default="nodes-start", help="FOLDER; one that exists is continued")
    parser.add_argument("--gpus", type=int, default=4, help="of the machine, half for each node")
    parser.add_argument("--search", default="420s", help="budget of lagom tune")
    parser.add_argument("--transport", default="", help="of lagom tune")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=580, help="time limit of the whole")
    parser.add_argument("--command", dest="own", default="", help="another job's command, to rehearse")
    parser.add_argument("--table", default="", help="FILE: print its table and measure nothing")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table(json.loads(Path(options.table).read_text()))))
        return
    options.command = shlex.join(sys.argv)
    run = Run(
        options, shlex.split(options.own) or job_of(options.job, options.gpus // 2), time.monotonic() + options.seconds
    )
    if not run.has_found:
        run.search(options.search, ["--transport", options.transport] if options.transport else [])
    if not run.has_found:
        sys.exit(
            f"{run.kept['searches'][-1]['a']}\nnothing was found; the same command with a longer --search continues"
        )
    for arm, number in run.rounds(options.rounds, options.seed):
        longest = max((process["seconds"] for process in run.kept["processes"]), default=30.0)
        if time.monotonic() + 1.3 * longest > run.ends_at:
            print("no time for more; the same command continues", flush=True)
            break
        run.next_start(arm, number)
    print("\n".join(table(run.kept)))


if __name__ == "__main__":
    main()
