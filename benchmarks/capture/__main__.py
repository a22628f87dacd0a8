# SPDX-License-Identifier: Apache-2.0
"""Kernel capture on GPUs: is it correct, what does it cost, does it work together with torch.profiler?

    python -m benchmarks.capture --gpus 4 --out results.json --traces FOLDER [--only join,cost,beside,traces]
    python -m benchmarks.capture --gpus 2 --out drift.json --only drift --pairs 96     # how noisy is `cost`?
    python -m benchmarks.capture --gpus 2 --out launches.json --only cost --script launches.py # by launch, on the host
    python -m benchmarks.capture --gpus 2 --out twins.json --only twins --pairs 32    # cost after it is switched off

One training job (FSDP2, or --script; it knows nothing about Lagom) runs throughout. This process is its controller, but
only switches the timeline on and off. Steps end in ``loss.item()``, so the host's clock bounds each step's kernels.
Results are written after every experiment. ``twins`` starts two jobs (fsdp.py, launches.py) that take turns, see
``twins.py``; ``traces`` and ``tp`` are jobs that only leave Kineto traces behind.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.capture.experiments import EXPERIMENTS, Bench, never_on
from benchmarks.capture.kineto_traces import TRACED, traces
from benchmarks.capture.training_job import CaptureJob, RegionReader, start, torchrun, until
from benchmarks.capture.twins import Twin, twins
from benchmarks.matrix.place import NO_MULTICAST
from lagom.wire.job_key import job_key
from lagom.wire.library import plugin_path
from lagom.wire.region import Region

#: ``launches.py``: its --tokens are launches a step.
SCRIPTS = ("fsdp.py", "ddp.py", "tp.py", "launches.py")


def one_job(arguments: argparse.Namespace, folder: Path, results: dict[str, Any], names: list[str]) -> None:
    """Start the job, watch it, run the experiments in order, end it."""
    profile = ["--profile-steps", "0:5,0:5,0:5:2,0:5", "--profile-to", str(folder), "--wait-for", str(folder)]
    began = time.monotonic()
    with controlled(arguments, "capture", profile) as (job, reader):
        bench = Bench(job, reader, folder, results, arguments.out, arguments.pairs)
        if not until(lambda: len(job.steps) >= 5, job, 120):
            bench.save("failed", {"output": job.other[-30:], "exit": job.process.poll()})
            return
        results["seconds_to_first_steps"] = round(time.monotonic() - began, 1)
        never_on(bench)
        for name in names:
            if job.runs:
                EXPERIMENTS[name](bench)
        results["job_alive_at_the_end"] = job.runs
        results["seconds"] = round(time.monotonic() - began, 1)
        results["job_said"] = job.other[-8:]


def two_jobs(arguments: argparse.Namespace, folder: Path, results: dict[str, Any]) -> None:
    """Start two jobs alike that take turns; capture one of them."""
    names = ("captured", "never")
    for name in names:
        (folder / name).write_text("0")
    with ExitStack() as stack:
        began = {n: stack.enter_context(controlled(arguments, n, ["--turns", str(folder / n)])) for n in names}
        (job, reader), (other, _) = (began[name] for name in names)
        bench = Bench(job, reader, folder, results, arguments.out, arguments.pairs)
        twins(bench, *(Twin(one, folder / name) for one, name in zip((job, other), names, strict=True)))


@contextmanager
def controlled(arguments: argparse.Namespace, name: str, more: list[str]) -> Iterator[tuple[CaptureJob, RegionReader]]:
    """A running job with our plugin, and the reader of its region as its only controller; both are ended."""
    os.environ["LAGOM_JOB_ID"] = f"{name}-{os.getpid()}"
    key = job_key()
    assert key is not None
    region = Region.create(key)
    plugin = str(plugin_path())
    environment = {**os.environ, "NCCL_TUNER_PLUGIN": plugin, "LAGOM_CONTROLLER": "none", "LAGOM_MODE": "tune"}
    environment["LAGOM_TIMELINE"] = "1"
    if not arguments.no_profiler:
        environment["NCCL_PROFILER_PLUGIN"] = plugin
    layers = "3" if arguments.script == "fsdp.py" else "6"
    shape = ["--layers", layers, "--tokens", str(arguments.tokens), "--steps", "1000000", *arguments.job]
    job = start(torchrun(arguments.gpus, arguments.script, *shape, *more), environment)
    reader = RegionReader(region, job)
    try:
        yield job, reader
    finally:
        job.process.terminate()
        try:
            job.process.wait(20)
        except subprocess.TimeoutExpired:
            job.process.kill()
        reader.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--traces", type=Path, help="folder for small Kineto traces and one raw window of ours")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--no-profiler", action="store_true", help="without the NCCL profiler plugin")
    parser.add_argument("--pairs", type=int, default=24, help="blocks of steps per arm in `cost`, `drift` and `twins`")
    parser.add_argument("--only", default="join,cost,beside,traces", help="experiments to run, in this order")
    parser.add_argument("--script", choices=SCRIPTS, default="fsdp.py", help="the job")
    parser.add_argument("--job", action="append", default=[], help="additional option of the job")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    for name, value in NO_MULTICAST.items():
        os.environ.setdefault(name, value)
    results: dict[str, Any] = {"command": sys.argv[1:], "gpus": arguments.gpus, "tokens": arguments.tokens}
    results |= {"script": arguments.script, "nccl": os.environ.get("LD_PRELOAD", "torch's")}
    with tempfile.TemporaryDirectory(prefix="capture_") as scratch:
        folder = Path(scratch)
        if wanted := [name for name in names if name in EXPERIMENTS]:
            one_job(arguments, folder, results, wanted)
        if "twins" in names:
            two_jobs(arguments, folder, results)
        out = arguments.traces or folder / "small"
        if "traces" in names:
            results["traces"] = traces(arguments.gpus, folder, out, TRACED)
        if "tp" in names:
            results["traces"] = traces(arguments.gpus, folder, out, {"nvlink": "tp-4096"})
        for kept in ("window.npz", "names.json"):
            if arguments.traces and (folder / kept).exists():
                arguments.traces.mkdir(parents=True, exist_ok=True)
                (arguments.traces / kept).write_bytes((folder / kept).read_bytes())
        arguments.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
