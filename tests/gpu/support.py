# SPDX-License-Identifier: Apache-2.0
"""Starting jobs on GPUs and reading what they left: output, decision log, kernel traces."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lagom.doctor.nccl_versions import version_from_code
from lagom.wire.library import plugin_path

JOBS = Path(__file__).parent / "jobs"
ROOT = Path(__file__).parents[2]
LAGOM = (sys.executable, "-m", "lagom")
MOST_GPUS = 8
#: NVLink multicast stays off: where it is not set up it fails, or worse, and no test needs it.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
#: `host`: through host memory instead of NVLink, our stand-in for machines without it.
REGIMES: dict[str, dict[str, str]] = {"nvlink": {}, "host": {"NCCL_P2P_DISABLE": "1"}}
TUNABLE = re.compile(r"ncclDevKernel_(AllGather|ReduceScatter|AllReduce|Broadcast|Reduce)_")
#: Of the caller's NCCL settings only those that say how this machine is wired; the rest would choose for us.
KEPT = ("NCCL_SOCKET", "NCCL_IB", "NCCL_DEBUG", "NCCL_HOSTID")
FOREIGN = ("LAGOM_", "NCCL_", "SLURM_", "TORCHELASTIC")
#: A hang ends in about a minute with a reason, not in ten.
TALKATIVE = {"NCCL_DEBUG": "WARN", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "90"}
#: Where there is one GPU, LAGOM_TEST_SHARED_GPU ranks may share it, with an NCCL that allows it (2.30 on). They take
#: turns on it, so nothing can be learnt of speed; and what is called `nvlink` then never leaves the GPU.
SHARED_BY = int(os.environ.get("LAGOM_TEST_SHARED_GPU", "0"))
#: A libnccl.so.2 of release 2.30.3 or later: with it the chunk size is tried too.
NCCL_230 = os.environ.get("LAGOM_TEST_NCCL_230", "")
SHARING = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "LD_PRELOAD": NCCL_230} if SHARED_BY else {}
SIGTERM_SECONDS = 15.0
QUIET = ("OMP_NUM_THREADS", "FutureWarning", "return func(", "USDT", "****")


def why_not() -> str:
    """Why nothing here can run on this machine; empty if it can."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:  # and torch need not be loaded to know it
        return "needs NVIDIA GPUs, and their driver is not installed here"
    if importlib.util.find_spec("torch") is None:
        return "needs torch with CUDA, and torch is not installed here"
    import torch

    if not torch.cuda.is_available() or not torch.distributed.is_nccl_available():
        return "needs torch with CUDA and NCCL, and this torch finds no GPU"
    if SHARED_BY:
        return "" if NCCL_230 else "LAGOM_TEST_SHARED_GPU needs LAGOM_TEST_NCCL_230: earlier NCCLs take one rank a GPU"
    if torch.cuda.device_count() < 2:
        return f"needs at least 2 GPUs, or LAGOM_TEST_SHARED_GPU=2, and there is {torch.cuda.device_count()}"
    return ""


def nccl_release(preload: str = "") -> str:
    """Which NCCL a job runs: that of the library which is preloaded, or torch's."""
    import torch

    library = preload or SHARING.get("LD_PRELOAD", "")
    if not library:
        return ".".join(map(str, torch.cuda.nccl.version()))
    number = ctypes.c_int()
    ctypes.CDLL(library).ncclGetVersion(ctypes.byref(number))
    return ".".join(map(str, version_from_code(number.value)))


def rank_count() -> int:
    """How many ranks a job has: one a GPU, or those that share one."""
    import torch

    return SHARED_BY or min(MOST_GPUS, torch.cuda.device_count())


@dataclass
class Place:
    """One job's folders and name: log, traces, shared memory, all its own."""

    folder: Path
    shm: Path
    job: str = field(default_factory=lambda: f"gpu-test-{uuid.uuid4().hex[:10]}")

    @property
    def log(self) -> Path:
        """The log folder (LAGOM_DIR)."""
        return self.folder / "log"

    @property
    def traces(self) -> Path:
        """Where ``--trace`` goes."""
        return self.folder / "traces"

    @property
    def stop(self) -> Path:
        """The job ends when this file exists."""
        return self.folder / "stop"

    def environment(self, regime: str = "nvlink", **variables: str) -> dict[str, str]:
        """That of a user without us: nothing of lagom or NCCL but the regime, and what else is named."""
        clean = {k: v for k, v in os.environ.items() if k.startswith(KEPT) or not k.startswith(FOREIGN)}
        multicast = {name: os.environ.get(name, value) for name, value in NO_MULTICAST.items()}
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        ours = {"LAGOM_SHM_DIR": str(self.shm), "LAGOM_CACHE": "off", "PYTHONPATH": path}
        return {**TALKATIVE, **clean, **multicast, **REGIMES[regime], **SHARING, **ours, **variables}

    def with_plugin(self, regime: str = "nvlink", **variables: str) -> dict[str, str]:
        """The environment-only way: both variables, a name, a log folder."""
        plugin = str(plugin_path())
        names = {"LAGOM_JOB_ID": self.job, "LAGOM_DIR": str(self.log), "LAGOM_PYTHON": sys.executable}
        return self.environment(regime, NCCL_TUNER_PLUGIN=plugin, NCCL_PROFILER_PLUGIN=plugin, **{**names, **variables})

    def lagom_run(self, *options: str) -> tuple[str, ...]:
        """``lagom run`` with our log folder."""
        return (*LAGOM, "run", "--dir", str(self.log), *options, "--")

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """The decision log so far; a line that is still being written does not count."""
        path = self.log / "decisions.jsonl"
        events = []
        for line in path.read_text().splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):
                events.append(json.loads(line))
        return [event for event in events if kind in ("", event["event"])]


@contextlib.contextmanager
def place(folder: Path) -> Iterator[Place]:
    """A place whose shared memory is gone afterwards."""
    shm = Path(tempfile.mkdtemp(prefix="lagom-test-", dir="/dev/shm"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield Place(folder, shm)
    finally:
        shutil.rmtree(shm, ignore_errors=True)


@dataclass
class Ran:
    """A job that has ended."""

    code: int
    lines: list[str]
    seconds: float

    @property
    def json(self) -> list[dict[str, Any]]:
        """What its ranks printed as JSON lines."""
        return [json.loads(line) for line in self.lines if line.startswith("{") and line.endswith("}")]

    def last(self, key: str) -> dict[str, Any]:
        """The last JSON line with that key; empty if there is none."""
        return next((line for line in reversed(self.json) if key in line), {})

    def tail(self, count: int = 40) -> str:
        """The end of what it said, without what torchrun always says."""
        told = [line[:400] for line in self.lines if not any(word in line for word in QUIET)]
        first = [line for line in told[:-count] if "Error" in line or "NCCL WARN" in line][:8]
        said = [*first, "...", *told[-count:]] if first else told[-count:]
        return f"exit {self.code} after {self.seconds:.0f} s; it said:\n" + "\n".join(said)


class JobRun:
    """A job that is running; its output goes to a file."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._began = time.monotonic()
        self._output = folder / "output.txt"
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                command, env=dict(environment), cwd=folder, stdout=output, stderr=subprocess.STDOUT
            )

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def finish(self, seconds: float) -> Ran:
        """Waits; ends it by force after ``seconds`` more (its code is then negative or the launcher's)."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._end()
        return self.so_far()

    def so_far(self) -> Ran:
        """What it has said until now; code -1 while it runs."""
        code = self._process.poll()
        lines = self._output.read_text(errors="replace").splitlines()
        return Ran(-1 if code is None else code, lines, time.monotonic() - self._began)

    def _end(self) -> None:
        """Torchrun passes SIGTERM on to its ranks, which live in sessions of their own."""
        with self._output.open("a") as output:
            print("*** the test's patience is over: SIGTERM", file=output)
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(SIGTERM_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def torchrun(script: str, gpus: int, *arguments: str) -> list[str]:
    """The command line of a job."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(gpus), "--standalone"]
    return [*launcher, str(JOBS / script), *arguments]


def run(command: Sequence[str], environment: Mapping[str, str], folder: Path, seconds: float = 90.0) -> Ran:
    """Runs a job to its end."""
    return JobRun(command, environment, folder).finish(seconds)


def until(found: Callable[[], bool], seconds: float, job: JobRun | None = None) -> bool:
    """Polls; False if it did not happen in time, or the job ended before."""
    end = time.monotonic() + seconds
    while not found():
        if time.monotonic() > end or (job is not None and not job.alive()):
            return found()
        time.sleep(0.1)
    return True


@dataclass(frozen=True)
class Kernel:
    """One NCCL kernel as torch.profiler saw it."""

    function: str
    grid: int
    block: int


def kernels(traces: Path) -> dict[str, list[Kernel]]:
    """The tunable NCCL kernels of every rank, in order of start: the n-th is call n of the communicator."""
    return {path.stem: _kernels(path) for path in sorted(traces.glob("rank*.json"))}


def _kernels(path: Path) -> list[Kernel]:
    found = []
    for event in json.loads(path.read_text())["traceEvents"]:
        match = TUNABLE.match(str(event.get("name", "")))
        if match and event.get("cat") == "kernel":
            place_in_time = float(event["ts"])
            kernel = Kernel(match.group(1), event["args"]["grid"][0], event["args"]["block"][0])
            found.append((place_in_time, kernel))
    return [kernel for _, kernel in sorted(found, key=lambda item: item[0])]


def runs_of(launched: Sequence[Kernel]) -> list[tuple[int, str, int, int]]:
    """(index of the first, function, grid, block) wherever a function's kernels change: short enough for a message."""
    last: dict[str, Kernel] = {}
    changes = []
    for index, kernel in enumerate(launched):
        if last.get(kernel.function) != kernel:
            last[kernel.function] = kernel
            changes.append((index, kernel.function, kernel.grid, kernel.block))
    return changes[:30]
