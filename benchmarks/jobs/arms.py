# SPDX-License-Identifier: Apache-2.0
"""What jobs share that time arms in turns within one process group: ranks, clock, cycles, ratios, provenance."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.jobs.paired_ratio import gain
from lagom.files import write_whole
from lagom.parallel.said_once import log

Data = dict[str, Any]
Arms = Mapping[str, Callable[[], Any]]
FEWEST_CYCLES, MOST_CYCLES = 12, 48


class Clock:
    """Times arms on all ranks at once."""

    def __init__(self, device: torch.device, ends_at: float) -> None:
        self.device, self.ends_at = device, ends_at

    def is_over(self) -> bool:
        """Whether the time limit is reached, as rank 0 sees it."""
        return self.agree([time.monotonic() - self.ends_at if dist.get_rank() == 0 else -1e9])[0] > 0

    def agree(self, numbers: list[float]) -> list[float]:
        """The largest over ranks."""
        values = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return values.tolist()

    def wait(self) -> None:
        """Until the device has nothing left to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def time_of(self, arm: Callable[[], Any], calls: int) -> tuple[float, float]:
        """Nanoseconds a call, and those of them until the host had launched all."""
        arm()
        self.agree([0.0])
        self.wait()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            arm()
        launched = time.perf_counter_ns()
        self.wait()
        return (time.perf_counter_ns() - begin) / calls, (launched - begin) / calls


def cycles(arms: Arms, clock: Clock, seconds: float, shuffled: random.Random, calls: int, per: int = 1) -> Data:
    """Samples by arm, nanoseconds a call, cycle by cycle, and the host's part of them; equal on all ranks. Ends when
    plain against plain is within 1 %, or after ``seconds``. ``per``: calls that an arm makes."""
    names = list(arms)
    samples: dict[str, list[float]] = {name: [] for name in names}
    hosts: dict[str, list[float]] = {name: [] for name in names}
    began = time.monotonic()
    while True:
        found = {name: clock.time_of(arms[name], calls) for name in shuffled.sample(names, len(names))}
        flat = [found[name][which] for which in (0, 1) for name in names]
        *times, elapsed = clock.agree([*flat, time.monotonic() - began])
        for place, name in enumerate(names):
            samples[name].append(round(times[place] / per))
            hosts[name].append(round(times[len(names) + place] / per))
        count = len(samples["plain"])
        if count >= MOST_CYCLES or elapsed > seconds or (count >= FEWEST_CYCLES and _is_steady(samples)):
            return {"samples_ns": samples, "host_ns": hosts}


def _is_steady(samples: Mapping[str, list[float]]) -> bool:
    _, low, high = gain(samples, "plain_again", "plain")
    return low > 0.99 and high < 1.01


def join(rank: int, ranks: int, port: int, gloo: bool) -> torch.device:
    """One process group over all ranks, without torchrun."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port + ranks), LAGOM_CACHE="off")
    device = torch.device("cpu" if gloo else f"cuda:{rank % max(1, torch.cuda.device_count())}")  # ranks may share one
    if gloo:
        torch.set_num_threads(1)
    else:
        torch.cuda.set_device(device)
    backend, own = ("gloo", None) if gloo else ("nccl", device)
    limit = timedelta(seconds=60)
    dist.init_process_group(backend, rank=rank, world_size=ranks, timeout=limit, device_id=own)
    if rank:
        log.setLevel("ERROR")
    return device


def leave(clock: Clock) -> None:
    """All ranks together, without Python's own end, where threads of a group can abort it."""
    clock.agree([0.0])
    clock.wait()
    os._exit(0)


def read(file: Path) -> Data:
    """What a file holds: about the measurement, and its rows."""
    return json.loads(file.read_text())


def add_row(file: Path, row: Data) -> None:
    """By one rank, when it is done."""
    kept = read(file)
    kept["rows"].append(row)
    write_whole(file, json.dumps(kept, ensure_ascii=False) + "\n")


def add_options(parser: argparse.ArgumentParser, out: str) -> None:
    """Those that every such job has."""
    parser.add_argument("--out", default=out, help="FILE; one that exists is continued")
    parser.add_argument("--seconds", type=float, default=540, help="time limit of the whole")
    parser.add_argument("--gloo", action="store_true", help="rehearsal on the CPU")
    parser.add_argument("--port", type=int, default=29600)
    parser.add_argument("--table", default="", help="FILE: print its table and measure nothing")


def begin(file: Path, gloo: bool) -> str:
    """Make the file of a measurement; or why one that is there cannot be continued."""
    found = {**about(gloo), "dtype": "bfloat16", "rows": []}
    if not file.exists():
        write_whole(file, json.dumps(found) + "\n")
    elif any(read(file)[name] != found[name] for name in ("commit", "hardware", "versions", "regime")):
        return f"{file} was measured with other code or elsewhere; give another --out"
    return ""


def about(gloo: bool) -> Data:
    """What the numbers depend on."""
    commit = os.environ.get("LAGOM_COMMIT") or _printed("git", "rev-parse", "--short=8", "HEAD")
    names = ("NCCL_", "TORCH_", "NVSHMEM_", "OMP_", "LAGOM_", "CUDA_DEVICE_MAX")
    environment = {name: value for name, value in sorted(os.environ.items()) if name.startswith(names)}
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    hardware = f"{os.cpu_count()} CPU cores"
    if not gloo:
        driver = _printed("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0]
        name = torch.cuda.get_device_name(0)
        hardware = f"{torch.cuda.device_count()} x {name} of one host, {hardware}, driver {driver}"
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    date = datetime.now(timezone.utc).date().isoformat()
    regime = "host memory (NCCL_P2P_DISABLE=1)" if os.environ.get("NCCL_P2P_DISABLE") == "1" else "NVLink"
    is_shared = os.environ.get("NCCL_MULTI_RANK_GPU_ENABLE") == "1" and torch.cuda.device_count() == 1
    regime = "ranks that share one GPU" if is_shared else regime
    regime = "gloo on CPU: a rehearsal, no measurement" if gloo else regime
    found = {"commit": commit, "date": date, "hardware": hardware, "versions": versions, "regime": regime}
    return {**found, "environment": environment}


def _printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
