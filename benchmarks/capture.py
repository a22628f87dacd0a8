"""Kernel capture on GPUs: is it right, what does it cost, does it live beside torch.profiler?

    python -m benchmarks.capture --gpus 4 --out results.json --traces FOLDER [--only join,cost,beside,traces]

One training job (FSDP2, benchmarks/jobs/fsdp.py, which knows nothing of us) runs from begin to end; this process
is its controller, but only switches the timeline on and off. Steps end in ``loss.item()``, so the host's clock bounds
each step's kernels. Results are written after every experiment. Two more jobs only leave Kineto traces behind.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from lagom.controller.recorder import CALL_ROW, KERNEL_ROW
from lagom.wire.layout import NO_CALL
from lagom.wire.library import plugin_path
from lagom.wire.region import Capture, Region, TimelineState, job_key

JOBS = Path(__file__).parent / "jobs"
CUPTI, COMPUTE, COLLECTIVE, P2P = 3, 0, 1, 2
JOIN_WORDS = ("not tried", "call", "slot", "ambiguous", "mismatch", "disputed", "no launch", "graph")
PAIRS, BLOCK = 24, 6
#: NVLink multicast stays off: where it is not set up it fails, or worse, and nothing here needs it.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


# -- the job and its steps


@dataclass
class Job:
    """A running job and what its first rank printed."""

    process: subprocess.Popen[str]
    steps: list[dict[str, Any]] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    def read(self) -> None:
        """Collect its lines; runs in a thread until the job ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith('{"step"'):
                self.steps.append(json.loads(line))
            elif not line.startswith('{"'):
                self.other.append(line.rstrip())

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None


def start(command: list[str], environment: dict[str, str]) -> Job:
    """Start a job and the thread that reads it."""
    pipe = subprocess.PIPE
    job = Job(subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True))
    threading.Thread(target=job.read, daemon=True).start()
    return job


def torchrun(gpus: int, script: str, *arguments: str) -> list[str]:
    """The command line of a job of this folder."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(gpus), "--standalone"]
    return [*launcher, str(JOBS / script), *arguments]


# -- the region, drained by a thread


class Watch:
    """Holds the region, drains it all the time, and switches the timeline."""

    def __init__(self, region: Region, job: Job) -> None:
        self.region, self.job = region, job
        self.calls: list[np.ndarray] = []
        self.kernels: list[np.ndarray] = []
        self.states: list[tuple[int, int, str]] = []  # (ns, process, state)
        self._last: dict[int, TimelineState] = {}
        self._lock = threading.Lock()
        self.remarks: set[str] = set()
        self.wanted = False
        self._over = False
        self._thread = threading.Thread(target=self._drain_always, daemon=True)
        self._thread.start()

    def _drain_always(self) -> None:
        while not self._over:
            with self._lock:
                self._drain()
            time.sleep(0.002)

    def _drain(self) -> None:
        for slot in self.region.slots(also_gone=True):
            records = self.region.drain_calls(slot.index)
            rows = np.zeros(len(records), CALL_ROW)
            rows["slot"], rows["record"] = slot.index, records
            self.calls.append(rows)
        for process in self.region.processes():
            spans = self.region.drain_kernels(process.index)
            rows = np.zeros(len(spans), KERNEL_ROW)
            rows["process"], rows["span"] = process.index, spans
            self.kernels.append(rows)
            state = self.region.timeline_state(process.index)
            if self._last.get(process.index) is not state:
                self._last[process.index] = state
                self.states.append((time.monotonic_ns(), process.index, state.name))
            if process.remark:
                self.remarks.add(process.remark)

    def set(self, capture: Capture | int, timeline: bool) -> None:
        """What the ranks record from now on."""
        with self._lock:
            self.wanted = timeline
            for view in self.region.communicators():
                self.region.set_capture(view.index, int(capture))
            for process in self.region.processes():
                self.region.want_timeline(process.index, timeline)

    def in_state(self, *states: TimelineState) -> bool:
        """Whether every process is in one of these states."""
        with self._lock:
            processes = self.region.processes()
            return bool(processes) and all(self.region.timeline_state(p.index) in states for p in processes)

    def take(self) -> tuple[np.ndarray, np.ndarray]:
        """(calls, kernels) since the last take."""
        with self._lock:
            calls, kernels = self.calls, self.kernels
            self.calls, self.kernels = [], []
        return np.concatenate([np.zeros(0, CALL_ROW), *calls]), np.concatenate([np.zeros(0, KERNEL_ROW), *kernels])

    def processes(self) -> list[Any]:
        """The process entries."""
        with self._lock:
            return self.region.processes()

    def names(self) -> dict[int, str]:
        """Kernel names by number."""
        with self._lock:
            return self.region.kernel_names()

    def close(self) -> None:
        """Let go."""
        self._over = True
        self._thread.join()
        self.region.close(unlink=True)


def until(condition: Callable[[], bool], job: Job, seconds: float) -> bool:
    """Wait for something as long as the job runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.runs and not condition():
        time.sleep(0.002)
    return condition()


def more_steps(job: Job, count: int, seconds: float = 60) -> None:
    """Wait for some more steps."""
    target = len(job.steps) + count
    until(lambda: len(job.steps) >= target, job, seconds)


# -- intervals


def merged(spans: np.ndarray) -> np.ndarray:
    """Union of [start, end) rows."""
    if not len(spans):
        return np.zeros((0, 2))
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(spans[:, 1])
    first = np.r_[True, spans[1:, 0] > ends[:-1]]
    return np.column_stack([spans[first, 0], np.r_[ends[:-1][first[1:]], ends[-1]]])


def length(spans: np.ndarray) -> float:
    """Busy time."""
    return float((merged(spans)[:, 1] - merged(spans)[:, 0]).sum())


def per_step(kernels: np.ndarray, nccl: np.ndarray, bounds: list[tuple[int, int]]) -> list[dict[str, float]]:
    """X, Y, overlap (ms) and counts of each step; ``kernels`` are [start, end) rows, ``nccl`` says which are NCCL's."""
    rows = []
    for begin, end in bounds:
        inside = (kernels[:, 0] >= begin) & (kernels[:, 0] < end)
        comm, compute = kernels[inside & nccl], kernels[inside & ~nccl]
        x, y, both = length(comm), length(compute), length(kernels[inside])
        counts = {"nccl": int((inside & nccl).sum()), "compute": int((inside & ~nccl).sum())}
        rows.append({"x": x / 1e6, "y": y / 1e6, "overlap": (x + y - both) / 1e6, **counts})
    return rows


def summary(rows: list[dict[str, float]]) -> dict[str, Any]:
    """Median and spread of each quantity over steps."""
    if not rows:
        return {"steps": 0}
    told: dict[str, Any] = {"steps": len(rows)}
    for key in rows[0]:
        values = np.array([row[key] for row in rows])
        told[key] = {
            "median": round(float(np.median(values)), 4),
            "min": float(values.min()),
            "max": float(values.max()),
        }
    return told


def bounds_of(steps: list[dict[str, Any]], clock: str) -> list[tuple[int, int]]:
    """[begin, end) of whole steps on a clock: from one step's end to the next's."""
    return [(int(a[clock]), int(b[clock])) for a, b in itertools.pairwise(steps)]


def kineto_kernels(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """(start and end on the wall clock, which are NCCL's) of a Kineto trace; copies are left out."""
    document = json.loads(path.read_text())
    base = int(document.get("baseTimeNanoseconds", 0))
    events = [e for e in document["traceEvents"] if e.get("cat") == "kernel" and e.get("ph") == "X"]
    start_ns = np.array([base + round(e["ts"] * 1000) for e in events], np.int64)
    taken = np.array([round(e["dur"] * 1000) for e in events], np.int64)
    rows = np.column_stack([start_ns, start_ns + taken]) if events else np.zeros((0, 2), np.int64)
    return rows, np.array([e["name"].startswith("ncclDevKernel") for e in events], bool)


def own_kernels(kernels: np.ndarray, process: int) -> tuple[np.ndarray, np.ndarray]:
    """The same of our own records of one process."""
    spans = kernels[kernels["process"] == process]["span"]
    spans = spans[spans["source"] == CUPTI]
    rows = np.column_stack([spans["start_ns"], spans["end_ns"]]).astype(np.int64)
    return rows, np.isin(spans["kind"], (COLLECTIVE, P2P))


# -- experiments on the one job


@dataclass
class Bench:
    """The running job, its watch, and where results go."""

    job: Job
    watch: Watch
    folder: Path
    results: dict[str, Any]
    out: Path

    def tell(self, name: str, result: dict[str, Any]) -> None:
        """Keep one experiment's result."""
        self.results[name] = result
        self.out.write_text(json.dumps(self.results, indent=1))
        print(name, "done", flush=True)


ALL = Capture.CALLS | Capture.KERNELS


def record(bench: Bench, steps: int) -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]]]:
    """A window: (calls, kernels, the steps that lie wholly in it)."""
    bench.watch.take()
    bench.watch.set(ALL, True)
    until(lambda: bench.watch.in_state(TimelineState.ON, TimelineState.YIELDED), bench.job, 30)
    more_steps(bench.job, 2)
    first = len(bench.job.steps)
    more_steps(bench.job, steps)
    last = len(bench.job.steps)
    bench.watch.set(ALL, False)  # NCCL's events go on until CUPTI is off, or its last kernels have no launch
    more_steps(bench.job, 4)
    bench.watch.set(Capture.NOTHING, False)
    calls, kernels = bench.watch.take()
    return calls, kernels, bench.job.steps[first:last]


def joined(kernels: np.ndarray) -> dict[str, Any]:
    """Kernels of NCCL by how their join went, and P2P apart."""
    spans = kernels["span"][kernels["span"]["source"] == CUPTI]
    nccl = spans[spans["kind"] == COLLECTIVE]
    by_reason = Counter(JOIN_WORDS[min(int(j), 7)] for j in nccl["join"])
    return {
        "collectives": len(nccl),
        "joined": int((nccl["call"] != NO_CALL).sum()),
        "by_reason": dict(by_reason),
        "p2p": int((spans["kind"] == P2P).sum()),
        "compute": int((spans["kind"] == COMPUTE).sum()),
    }


def check_join(calls: np.ndarray, kernels: np.ndarray) -> dict[str, Any]:
    """Independent check: what the call records say of the calls that kernels were joined with."""
    spans = kernels["span"][kernels["span"]["source"] == CUPTI]
    spans = spans[(spans["kind"] == COLLECTIVE) & (spans["call"] != NO_CALL)]
    known = {(int(row["slot"]), int(row["record"]["call"])): row["record"] for row in calls}
    pairs = [(span, known[key]) for span in spans if (key := (int(span["slot"]), int(span["call"]))) in known]
    function = sum(int(span["function"]) == int(call["function"]) for span, call in pairs)
    causal = sum(int(span["start_ns"]) >= int(call["time_ns"]) for span, call in pairs)
    twice = len(spans) - len({(int(s["slot"]), int(s["call"])) for s in spans})
    return {"compared": len(pairs), "same_function": function, "after_the_call": causal, "call_joined_twice": twice}


def join(bench: Bench) -> None:
    """First enable, one window, joined and unjoined by reason."""
    before = len(bench.job.steps)
    calls, kernels, steps = record(bench, 20)
    stall = max((s["ms"] for s in bench.job.steps[before : len(bench.job.steps) - len(steps)]), default=0.0)
    processes = bench.watch.processes()
    bench.tell(
        "join",
        {
            "first_enable_ms": [round(p.timeline_first_enable_ns / 1e6, 1) for p in processes],
            "longest_step_while_enabling_ms": stall,
            "states": bench.watch.states,
            "remarks": sorted(bench.watch.remarks),
            "records": [p.timeline_records for p in processes],
            "lost": [p.timeline_lost for p in processes],
            "ring_drops": [p.kernel_drops for p in processes],
            **joined(kernels),
            "check": check_join(calls, kernels),
            "bytes_per_step_and_rank": round(64 * len(kernels) / max(len(processes), 1) / max(len(steps), 1)),
        },
    )
    np.savez_compressed(bench.folder / "window.npz", calls=calls, kernels=kernels)
    (bench.folder / "names.json").write_text(json.dumps(bench.watch.names(), indent=0))


def cost(bench: Bench) -> None:
    """Blocks of steps with and without capture, in turn; the steps before anything was ever on; NCCL's events alone."""
    arms: dict[str, tuple[int, bool]] = {
        "off": (Capture.NOTHING, False),
        "on": (ALL, True),
        "events": (ALL, False),
    }
    medians: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(PAIRS):
        order = ("off", "on", "events") if number % 2 == 0 else ("events", "on", "off")
        for name in order:
            bench.watch.set(*arms[name])
            if name == "on":
                until(lambda: bench.watch.in_state(TimelineState.ON, TimelineState.YIELDED), bench.job, 5)
            more_steps(bench.job, 3)  # also lets the last buffers of the arm before drain
            first = len(bench.job.steps)
            more_steps(bench.job, BLOCK)
            medians[name].append(float(np.median([s["ms"] for s in bench.job.steps[first:]])))
        bench.watch.take()
    bench.watch.set(Capture.NOTHING, False)
    off = np.array(medians["off"])
    halves = (off[: len(off) // 2 * 2].reshape(-1, 2)).tolist()
    bench.tell(
        "cost",
        {
            "pairs": len(off),
            "off_ms": float(np.median(off)),
            "on_over_off": ratio(medians["on"], medians["off"]),
            "events_over_off": ratio(medians["events"], medians["off"]),
            "a_over_a": ratio([a for a, _ in halves], [b for _, b in halves]),
            "off_after_on_over_never_on": against(off, np.array(bench.results["never_on"]["blocks_ms"])),
            "ring_drops": [p.kernel_drops for p in bench.watch.processes()],
            "lost": [p.timeline_lost for p in bench.watch.processes()],
            "blocks_ms": medians,
        },
    )


def ratio(ones: list[float], others: list[float]) -> dict[str, float]:
    """Median of paired ratios with a 95 % bootstrap interval."""
    ratios = np.array(ones) / np.array(others)
    draws = np.random.default_rng(0).choice(ratios, (4000, len(ratios)))
    low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
    return {"median": round(float(np.median(ratios)), 5), "low": round(float(low), 5), "high": round(float(high), 5)}


def against(ones: np.ndarray, others: np.ndarray) -> dict[str, float]:
    """Ratio of medians of two unpaired samples, with a 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    draws = [np.median(rng.choice(ones, len(ones))) / np.median(rng.choice(others, len(others))) for _ in range(4000)]
    low, high = np.percentile(draws, [2.5, 97.5])
    middle = float(np.median(ones) / np.median(others))
    return {"median": round(middle, 5), "low": round(float(low), 5), "high": round(float(high), 5)}


def never_on(bench: Bench) -> None:
    """Step times before anything was ever switched on."""
    more_steps(bench.job, 10)
    first = len(bench.job.steps)
    more_steps(bench.job, 8 * BLOCK)
    times = np.array([s["ms"] for s in bench.job.steps[first : first + 8 * BLOCK]])
    blocks = np.median(times[: len(times) // BLOCK * BLOCK].reshape(-1, BLOCK), axis=1)
    bench.tell("never_on", {"blocks_ms": blocks.tolist()})


def let_profile(bench: Bench, number: int) -> dict[str, Any]:
    """Lets the job start its next torch.profiler window and waits until its traces are written."""
    (bench.folder / f"go-{number}").write_text("")
    began = until((bench.folder / f"begun-{number}").exists, bench.job, 30)
    first = len(bench.job.steps)
    yielded = until(lambda: bench.watch.in_state(TimelineState.YIELDED), bench.job, 2) if bench.watch.wanted else None
    until((bench.folder / f"written-{number}").exists, bench.job, 60)
    steps = [s for s in bench.job.steps[max(0, first - 1) :] if _between(bench.folder, number, int(s["at_ns"]))]
    counts, rows = [], []
    for path in sorted(bench.folder.glob(f"window{number}-rank*.json")):
        kernels, nccl = kineto_kernels(path)
        counts.append({"kernels": len(kernels), "nccl": int(nccl.sum())})
        rows.append(summary(per_step(kernels, nccl, bounds_of(steps, "wall_ns"))))
    return {"began": began, "yielded": yielded, "steps_inside": len(steps), "traces": counts, "per_step": rows}


def _between(folder: Path, number: int, at_ns: int) -> bool:
    begun, ended = (folder / f"{word}-{number}" for word in ("begun", "ended"))
    return begun.exists() and ended.exists() and int(begun.read_text()) <= at_ns <= int(ended.read_text()) + 10**8


def beside(bench: Bench) -> None:
    """torch.profiler before, inside and after our windows: each trace complete, ours yields and works again."""
    told: dict[str, Any] = {}
    times_before = [s["ms"] for s in bench.job.steps[-20:]]
    told["ours_before"] = own_window(bench, 12)
    told["torch_before_ours"] = let_profile(bench, 0)
    told["ours_after_torch"] = own_window(bench, 12)
    bench.tell("beside", told)
    bench.watch.set(ALL, True)
    until(lambda: bench.watch.in_state(TimelineState.ON), bench.job, 10)
    more_steps(bench.job, 4)
    told["torch_inside_ours"] = let_profile(bench, 1)
    told["on_again_by_itself"] = until(lambda: bench.watch.in_state(TimelineState.ON), bench.job, 10)
    told["ours_after_yield"] = own_window(bench, 12)
    bench.tell("beside", told)
    told["torch_after_ours"] = let_profile(bench, 2)
    more_steps(bench.job, 3)
    first = len(bench.job.steps)
    more_steps(bench.job, 20)
    times_after = [s["ms"] for s in bench.job.steps[first:]]
    told["step_after_over_before"] = against(np.array(times_after), np.array(times_before))
    told["remarks"] = sorted(bench.watch.remarks)
    told["states"] = bench.watch.states
    bench.tell("beside", told)


def own_window(bench: Bench, count: int) -> dict[str, Any]:
    """One window of ours: per step X, Y, overlap and counts of each rank, and the join."""
    calls, kernels, steps = record(bench, count)
    ranks = sorted({int(p) for p in kernels["process"]})
    bounds = bounds_of(steps, "at_ns")
    return {
        "per_step": [summary(per_step(*own_kernels(kernels, rank), bounds)) for rank in ranks],
        **joined(kernels),
        "check": check_join(calls, kernels),
    }


# -- traces to keep


def small(path: Path, name: str, out: Path) -> dict[str, Any]:
    """A Kineto trace with its kernels alone, gzipped; what it holds."""
    document = json.loads(path.read_text())
    kept = [e for e in document["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    wanted = {"device", "stream", "correlation", "grid", "block", "Collective name", "In msg nelems", "Out msg nelems"}
    wanted |= {"dtype", "Process Group Name"}
    for event in kept:
        event["args"] = {key: value for key, value in event.get("args", {}).items() if key in wanted}
    head = ("schemaVersion", "baseTimeNanoseconds", "distributedInfo", "deviceProperties", "displayTimeUnit")
    reduced = {key: document[key] for key in head if key in document}
    reduced["traceEvents"] = kept
    raw = gzip.compress(json.dumps(reduced, separators=(",", ":")).encode(), 9, mtime=0)
    (out / f"{name}.json.gz").write_bytes(raw)
    return {"kernels": len(kept), "bytes": len(raw)}


TRACED = {"nvlink": "fsdp-2048,fsdp-8192,ddp-4096,tp-4096", "host": "fsdp-2048,fsdp-8192"}


def traces(gpus: int, folder: Path, out: Path, wanted: dict[str, str]) -> dict[str, Any]:
    """Kineto traces of FSDP2 (two sizes, NVLink and the host path), DDP and TP: rank 0's, for tests/data/kineto."""
    told: dict[str, Any] = {}
    out.mkdir(parents=True, exist_ok=True)
    for regime, jobs in wanted.items():
        to = folder / regime
        environment = {**os.environ, **({"NCCL_P2P_DISABLE": "1"} if regime == "host" else {})}
        began = time.monotonic()
        done = subprocess.run(
            torchrun(gpus, "traces.py", "--jobs", jobs, "--to", str(to)),
            env=environment, capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip
        told[regime] = {"exit": done.returncode, "seconds": round(time.monotonic() - began, 1)}
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "Error" in line or "error" in line]
            told[regime]["output"] = done.stdout.splitlines()[-5:] + errors[:15]
        for name in jobs.split(","):
            path = to / f"{name}-rank0.json"
            if path.exists():
                told[f"{name}-{regime}"] = small(path, f"{name}-{regime}", out)
    return told


# -- all of it


EXPERIMENTS: dict[str, Callable[[Bench], None]] = {"join": join, "cost": cost, "beside": beside}


def one_job(arguments: argparse.Namespace, folder: Path, results: dict[str, Any], names: list[str]) -> None:
    """Start the job, watch it, run the experiments in order, end it."""
    os.environ["LAGOM_JOB_ID"] = f"capture-{os.getpid()}"
    key = job_key()
    assert key is not None
    region = Region.create(key)
    plugin = str(plugin_path())
    environment = {**os.environ, "NCCL_TUNER_PLUGIN": plugin, "LAGOM_CONTROLLER": "none", "LAGOM_MODE": "tune"}
    environment["LAGOM_TIMELINE"] = "1"
    if not arguments.no_profiler:
        environment["NCCL_PROFILER_PLUGIN"] = plugin
    profile = ["--profile-steps", "0:5,0:5,0:5", "--profile-to", str(folder), "--wait-for", str(folder)]
    shape = ["--layers", "3", "--tokens", str(arguments.tokens), "--steps", "1000000", *arguments.job]
    began = time.monotonic()
    job = start(torchrun(arguments.gpus, "fsdp.py", *shape, *profile), environment)
    bench = Bench(job, Watch(region, job), folder, results, arguments.out)
    try:
        if not until(lambda: len(job.steps) >= 5, job, 120):
            bench.tell("failed", {"output": job.other[-30:], "exit": job.process.poll()})
            return
        results["seconds_to_first_steps"] = round(time.monotonic() - began, 1)
        never_on(bench)
        for name in names:
            if job.runs:
                EXPERIMENTS[name](bench)
        results["job_alive_at_the_end"] = job.runs
        results["seconds"] = round(time.monotonic() - began, 1)
        results["job_said"] = job.other[-8:]
    finally:
        job.process.terminate()
        try:
            job.process.wait(20)
        except subprocess.TimeoutExpired:
            job.process.kill()
        bench.watch.close()
        arguments.out.write_text(json.dumps(results, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=4)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--traces", type=Path, help="folder for small Kineto traces and one raw window of ours")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument(
        "--no-profiler", action="store_true", help="without NCCL's profiler half: the join by questions"
    )
    parser.add_argument("--only", default="join,cost,beside,traces", help="in this order")
    parser.add_argument("--job", action="append", default=[], help="a further option of the job, for rehearsals")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    for name, value in NO_MULTICAST.items():
        os.environ.setdefault(name, value)
    results: dict[str, Any] = {"command": sys.argv[1:], "gpus": arguments.gpus, "tokens": arguments.tokens}
    with tempfile.TemporaryDirectory(prefix="capture_") as scratch:
        folder = Path(scratch)
        if wanted := [name for name in names if name in EXPERIMENTS]:
            one_job(arguments, folder, results, wanted)
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
