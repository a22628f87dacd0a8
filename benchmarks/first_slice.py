"""The first whole slice on GPUs: does the plugin load, do configs take effect everywhere at once, does the search work?

    python -m benchmarks.first_slice --gpus 8 --out results.json [--nccl-230 /tmp/libnccl.so.2] [--only modes,channels]

Every experiment runs benchmarks/jobs/fsdp.py, which knows nothing of us, and checks what happened against two
independent witnesses: the decision log with its raw records, and torch.profiler's kernel trace. The regimes are NVLink
(as is) and the host-memory path (NCCL_P2P_DISABLE=1, our PCIe class).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.matrix.plain import steps_of
from lagom.bench.process import Start, run_process

JOB = Path(__file__).parent / "jobs" / "fsdp.py"
TUNABLE = re.compile(r"ncclDevKernel_(AllGather|ReduceScatter|AllReduce)")
LAGOM = [sys.executable, "-m", "lagom"]


@dataclass
class Bench:
    """Where and how this run measures."""

    gpus: int
    folder: Path
    nccl_230: str | None
    tokens: int = 16384
    tune_steps: int = 900
    results: dict[str, Any] = field(default_factory=dict)

    def environment(self, regime: str, nccl: str, **extra: str) -> dict[str, str]:
        """The environment of a job: regime `nvlink` or `host`, nccl `bundled` or `2.30`."""
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "NCCL_NVLS_ENABLE": "0", **extra}
        if regime == "host":
            environment["NCCL_P2P_DISABLE"] = "1"
        if nccl == "2.30":
            assert self.nccl_230 is not None
            environment["LD_PRELOAD"] = self.nccl_230
        return environment

    def job(self, *arguments: str) -> list[str]:
        """The job's command line."""
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(self.gpus), "--standalone"]
        return [*launcher, str(JOB), *arguments]

    def log_folder(self, name: str) -> Path:
        """A log folder of its own for each experiment."""
        return self.folder / name


def run(command: list[str], environment: dict[str, str], meanwhile: Callable[[], None] | None = None) -> dict[str, Any]:
    """Run a job; its steps, losses and what it printed that was no step."""
    with tempfile.TemporaryDirectory() as folder:
        if meanwhile is not None:
            threading.Thread(target=meanwhile, daemon=True).start()
        ended = run_process(Start(command, Path(folder), "job", None, environment))
        steps = steps_of(Path(folder) / "job.out")
        lines = (Path(folder) / "job.out").read_text(errors="replace").splitlines()
    other = [line for line in lines if not line.startswith('{"')]
    times = sorted(step["ms"] for step in steps[len(steps) // 3 :])
    return {
        "exit": ended.exit,
        "seconds": round(ended.seconds, 1),
        "median_ms": times[len(times) // 2] if times else None,
        "ms": [step["ms"] for step in steps],
        "loss_bits": [step["bits"] for step in steps],
        "output": other[-12:] if ended.exit else [line for line in other if "lagom" in line][-12:],
    }


def events(folder: Path) -> list[dict[str, Any]]:
    """The decision log of a run."""
    path = folder / "decisions.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def kernels(trace: Path) -> list[dict[str, int | str]]:
    """The tunable NCCL kernels of one rank's trace, in order of start."""
    found = [e for e in json.loads(trace.read_text())["traceEvents"] if TUNABLE.match(str(e.get("name", "")))]
    found.sort(key=lambda event: event["ts"])
    return [
        {
            "function": TUNABLE.match(event["name"]).group(1),  # type: ignore[union-attr]
            "grid": event["args"]["grid"][0],
            "block": event["args"]["block"][0],
        }
        for event in found
    ]


def modes(bench: Bench) -> dict[str, Any]:
    """The same job without us, with the environment only (off, tune), and under `lagom run`."""
    plugin = subprocess.run([*LAGOM, "plugin-path"], capture_output=True, text=True, check=True).stdout.strip()
    job = bench.job("--layers", "4", "--tokens", "4096", "--steps", "120")
    both = {"NCCL_TUNER_PLUGIN": plugin, "NCCL_PROFILER_PLUGIN": plugin}
    arms: dict[str, Any] = {"without": run(job, bench.environment("nvlink", "bundled"))}
    for mode in ("off", "tune"):
        folder = bench.log_folder(f"modes_env_{mode}")
        environment = bench.environment("nvlink", "bundled", LAGOM_MODE=mode, LAGOM_DIR=str(folder), **both)
        arms[f"environment_{mode}"] = {**run(job, environment), "log": summary(folder)}
    folder = bench.log_folder("modes_run")
    command = [*LAGOM, "run", "--dir", str(folder), "--", *job]
    arms["lagom_run"] = {**run(command, bench.environment("nvlink", "bundled")), "log": summary(folder)}
    return arms


def channels(bench: Bench) -> dict[str, Any]:
    """NC pinned for AllGather on the host path, and pinned anew in mid-run: the kernels of every rank, call by call."""
    folder, traces = bench.log_folder("channels"), bench.folder / "channels_traces"
    first, second = "allgather:>=1M:nc=3", "allgather:>=1M:nc=2"

    def pin_again() -> None:
        wait_for(folder, "plan_committed", 1)
        time.sleep(4)
        subprocess.run([*LAGOM, "set", "--dir", str(folder), second], check=True)

    job = bench.job("--layers", "2", "--tokens", "8192", "--steps", "40", "--trace", str(traces))
    command = [*LAGOM, "run", "--record", "--dir", str(folder), "--set", first, "--", *job]
    ran = run(command, bench.environment("host", "bundled"), pin_again)
    return {**ran, "rules": [first, second], **witness(folder, traces, "AllGather")}


def threads(bench: Bench) -> dict[str, Any]:
    """NT = 128 for AllGather on NVLink: blocks of 160 threads (RING/SIMPLE adds a warp)."""
    folder, traces = bench.log_folder("threads"), bench.folder / "threads_traces"
    job = bench.job("--layers", "2", "--tokens", "2048", "--steps", "30", "--trace", str(traces))
    command = [*LAGOM, "run", "--record", "--dir", str(folder), "--set", "allgather:>=1M:nt=128", "--", *job]
    ran = run(command, bench.environment("nvlink", "bundled", LAGOM_NT="1"))
    return {**ran, **witness(folder, traces, "AllGather")}


def bitwise(bench: Bench) -> dict[str, Any]:
    """Stock twice, then AllGather-only changes, deterministic kernels: the losses bit by bit."""
    job = bench.job("--layers", "2", "--tokens", "2048", "--sequence", "1024", "--steps", "30", "--deterministic")
    nccl = "2.30" if bench.nccl_230 else "bundled"
    arms = {name: run(job, bench.environment("host", nccl)) for name in ("stock", "stock_again")}
    rules = ["allgather:>=1M:nc=2" + (",chunk=256K" if nccl == "2.30" else "")]
    command = [*LAGOM, "run", "--dir", str(bench.log_folder("bitwise")), "--set", rules[0], "--", *job]
    arms["allgather_pinned"] = run(command, bench.environment("host", nccl))
    bits = {name: arm["loss_bits"] for name, arm in arms.items()}
    return {
        "rules": rules,
        "steps": len(bits["stock"]),
        "stock_identical": bits["stock"] == bits["stock_again"] and len(bits["stock"]) > 0,
        "allgather_identical": bits["stock"] == bits["allgather_pinned"] and len(bits["stock"]) > 0,
        "committed": [e for e in events(bench.log_folder("bitwise")) if e["event"] == "plan_committed"],
        "arms": arms,
    }


def chunk(bench: Bench) -> dict[str, Any]:
    """C = 256 KiB, C = 512 KiB, NC = 3 for all on the host path, NCCL 2.30: against stock in one job, A/A beside it."""
    folder = bench.log_folder("chunk")
    job = bench.job("--layers", "3", "--tokens", str(bench.tokens), "--steps", "330")
    arms = ("any:>=1M:chunk=256K", "any:>=1M:chunk=512K", "any:>=1M:nc=3")
    compared = [word for arm in arms for word in ("--compare", arm)]
    command = [*LAGOM, "run", "--dir", str(folder), *compared, "--", *job]
    ran = run(command, bench.environment("host", "2.30"))
    return {**ran, "tokens": bench.tokens, "arms": arms, "log": summary(folder)}


def tune(bench: Bench) -> dict[str, Any]:
    """`lagom run` on the host path, NCCL 2.30: what the search finds by itself."""
    folder = bench.log_folder("tune")
    job = bench.job("--layers", "3", "--tokens", str(bench.tokens), "--steps", str(bench.tune_steps))
    command = [*LAGOM, "run", "--dir", str(folder), "--", *job]
    ran = run(command, bench.environment("host", "2.30"))
    profile = folder / "profile.lagom"
    text = profile.read_text() if profile.exists() else None
    readable = subprocess.run([*LAGOM, "log", str(folder)], capture_output=True, text=True).stdout.splitlines()
    return {**ran, "tokens": bench.tokens, "log": summary(folder), "profile": text, "readable": readable}


def replay(bench: Bench) -> dict[str, Any]:
    """The profile that `tune` has just written, replayed without a controller: kernels of every rank."""
    profile, traces = bench.log_folder("tune") / "profile.lagom", bench.folder / "replay_traces"
    if not profile.exists():
        return {"skipped": "`tune` wrote no profile"}
    job = bench.job("--layers", "3", "--tokens", str(bench.tokens), "--steps", "40", "--trace", str(traces))
    folder = bench.log_folder("replay")
    command = [*LAGOM, "run", "--dir", str(folder), "--profile", str(profile), "--", *job]
    ran = run(command, bench.environment("host", "2.30"))
    ranks = {trace.stem: _runs_of_grids(kernels(trace)) for trace in sorted(traces.glob("rank*.json"))}
    return {**ran, "ranks_agree": len({json.dumps(runs) for runs in ranks.values()}) == 1, "ranks": ranks}


def _runs_of_grids(launched: list[dict[str, int | str]]) -> list[list[Any]]:
    """[function, grid, first kernel with it] for each change of a function's grid."""
    last: dict[str, int] = {}
    runs: list[list[Any]] = []
    for index, kernel in enumerate(launched):
        name, grid = str(kernel["function"]), int(kernel["grid"])
        if last.get(name) != grid:
            runs.append([name, grid, index])
            last[name] = grid
    return runs


EXPERIMENTS = {
    "modes": modes,
    "channels": channels,
    "threads": threads,
    "bitwise": bitwise,
    "chunk": chunk,
    "tune": tune,
    "replay": replay,
}


def wait_for(folder: Path, kind: str, count: int, seconds: float = 120.0) -> None:
    """Until the log of a running job holds so many events of a kind."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and sum(e["event"] == kind for e in events(folder)) < count:
        time.sleep(0.2)


def summary(folder: Path) -> dict[str, Any]:
    """What the log of a run says, without the samples."""
    log = events(folder)
    counted: dict[str, int] = {}
    for event in log:
        counted[event["event"]] = counted.get(event["event"], 0) + 1
    told = ("rank_joined", "program", "outcome", "standing_aside", "note", "job_end", "move")
    return {
        "events": counted,
        "told": [{k: v for k, v in e.items() if k != "schema"} for e in log if e["event"] in told],
    }


def witness(folder: Path, traces: Path, function: str) -> dict[str, Any]:
    """What the kernels of every rank show, by the call number at which each plan began."""
    starts = [e["start_call"] for e in events(folder) if e["event"] == "plan_committed"]
    ranks = {trace.stem: kernels(trace) for trace in sorted(traces.glob("rank*.json"))}
    bounds = [0, *starts, 1 << 60]
    seen: dict[str, Any] = {}
    for name, launched in ranks.items():
        parts = [
            sorted(
                {(k["grid"], k["block"]) for i, k in enumerate(launched) if a <= i < b and k["function"] == function}
            )
            for a, b in itertools.pairwise(bounds)
        ]
        seen[name] = {"kernels": len(launched), "grid_and_block_by_plan": parts}
    return {"plan_starts": starts, "ranks": seen, "records": record_counts(folder)}


def record_counts(folder: Path) -> dict[str, Any]:
    """Call records and NCCL events by slot, from the raw records."""
    import numpy as np

    if not (folder / "calls.npy").exists():
        return {}
    calls, spans = np.load(folder / "calls.npy"), np.load(folder / "kernels.npy")
    counts: dict[str, Any] = {}
    for slot in np.unique(calls["slot"]).tolist():
        ours = calls[calls["slot"] == slot]["record"]
        launched = spans[spans["span"]["slot"] == slot]["span"]
        told = launched[launched["source"] == 1]
        counts[str(slot)] = {
            "calls": len(ours),
            "first": int(ours["call"].min()),
            "last": int(ours["call"].max()),
            "nccl_events": len(told),
            "channels_seen": sorted({int(c) for c in told["channels"]}),
            "threads_seen": sorted({int(t) for t in told["threads"]}),
        }
    return counts


def versions() -> dict[str, str]:
    """What this was measured with."""
    import torch

    commit = os.environ.get("LAGOM_COMMIT", "")
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    nvls = os.environ.get("NCCL_NVLS_ENABLE", "0, set by this script")
    found = {"torch": torch.__version__, "nccl": nccl, "gpu": gpu, "python": platform.python_version()}
    return {**found, "commit": commit, "nccl_nvls_enable": nvls}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nccl-230", help="a libnccl.so.2 of release 2.30.3 or later, to preload")
    parser.add_argument("--tokens", type=int, default=16384, help="per GPU and step, in chunk, tune and replay")
    parser.add_argument("--tune-steps", type=int, default=900)
    parser.add_argument("--only", default=",".join(EXPERIMENTS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first_slice_") as scratch:
        bench = Bench(arguments.gpus, Path(scratch), arguments.nccl_230, arguments.tokens, arguments.tune_steps)
        bench.results = {"command": sys.argv, "gpus": arguments.gpus, "versions": versions()}
        for name in arguments.only.split(","):
            if name in ("chunk", "tune", "replay") and arguments.nccl_230 is None:
                bench.results[name] = {"skipped": "needs --nccl-230"}
                continue
            bench.results[name] = EXPERIMENTS[name](bench)
            arguments.out.write_text(json.dumps(bench.results, indent=1))
            print(name, "done", flush=True)


if __name__ == "__main__":
    main()
