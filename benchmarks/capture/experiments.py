# SPDX-License-Identifier: Apache-2.0
"""What is tried on the one job: the join, the cost of capture, torch.profiler before, inside and after our windows."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.capture.kernels import (
    bounds_of,
    check_join,
    joined,
    kineto_kernels,
    own_kernels,
    per_step,
    summary,
)
from benchmarks.capture.training_job import CaptureJob, RegionReader, more_steps, until
from lagom.experiment.estimate import estimate_from_pairs
from lagom.wire.region import Capture, TimelineState

BLOCK = 6
#: Steps are timed before anything was ever on for one block in so many of the cost run's pairs, and for no fewer than:
NEVER_SHARE, NEVER_LEAST = 3, 8
ALL = Capture.CALLS | Capture.KERNELS


@dataclass
class Bench:
    """The running job, its reader, and where results go."""

    job: CaptureJob
    reader: RegionReader
    folder: Path
    results: dict[str, Any]
    out: Path
    pairs: int = 24

    def save(self, name: str, result: dict[str, Any]) -> None:
        """Keep one experiment's result."""
        self.results[name] = result
        self.out.write_text(json.dumps(self.results, indent=1))
        print(name, "done", flush=True)


def record(bench: Bench, steps: int) -> tuple[np.ndarray, np.ndarray, list[dict[str, Any]]]:
    """A window: (calls, kernels, the steps that lie wholly in it)."""
    bench.reader.take()
    bench.reader.set(ALL, True)
    until(lambda: bench.reader.in_state(TimelineState.ON, TimelineState.YIELDED), bench.job, 30)
    more_steps(bench.job, 2)
    first = len(bench.job.steps)
    more_steps(bench.job, steps)
    last = len(bench.job.steps)
    bench.reader.set(ALL, False)  # NCCL's events go on until CUPTI is off, or its last kernels have no launch
    more_steps(bench.job, 4)
    bench.reader.set(Capture.NOTHING, False)
    calls, kernels = bench.reader.take()
    return calls, kernels, bench.job.steps[first:last]


def join(bench: Bench) -> None:
    """First enable, one window, joined and unjoined by reason."""
    before = len(bench.job.steps)
    calls, kernels, steps = record(bench, 20)
    stall = max((s["ms"] for s in bench.job.steps[before : len(bench.job.steps) - len(steps)]), default=0.0)
    processes = bench.reader.processes()
    bench.save(
        "join",
        {
            "first_enable_ms": [round(p.timeline_first_enable_ns / 1e6, 1) for p in processes],
            "longest_step_while_enabling_ms": stall,
            "states": bench.reader.states,
            "remarks": sorted(bench.reader.remarks),
            "records": [p.timeline_records for p in processes],
            "lost": [p.timeline_lost for p in processes],
            "ring_drops": [p.kernel_drops for p in processes],
            **joined(kernels),
            "check": check_join(calls, kernels),
            "bytes_per_step_and_rank": round(64 * len(kernels) / max(len(processes), 1) / max(len(steps), 1)),
        },
    )
    np.savez_compressed(bench.folder / "window.npz", calls=calls, kernels=kernels)
    (bench.folder / "names.json").write_text(json.dumps(bench.reader.names(), indent=0))


def cost(bench: Bench) -> None:
    """Blocks of steps with and without capture, in turn; the steps before anything was ever on; NCCL's events alone."""
    medians = blocks_in_turn(bench, {"off": (Capture.NOTHING, False), "on": (ALL, True), "events": (ALL, False)})
    bench.save(
        "cost",
        {
            "on_over_off": ratio(medians["on"], medians["off"]),
            "events_over_off": ratio(medians["events"], medians["off"]),
            "off_after_on_over_never_on": against_never_on(bench, medians["off"]),
            **block_statistics(bench, medians),
        },
    )


def drift(bench: Bench) -> None:
    """The same blocks at the same times with everything off: what `cost` would find if capture cost nothing at all."""
    nothing = (Capture.NOTHING, False)
    medians = blocks_in_turn(bench, {"off": nothing, "off, as on": nothing, "off, as events": nothing})
    bench.save(
        "drift",
        {
            "as_on_over_off": ratio(medians["off, as on"], medians["off"]),
            "later_over_first": against_never_on(bench, medians["off"]),
            **block_statistics(bench, medians),
        },
    )


def blocks_in_turn(bench: Bench, arms: dict[str, tuple[int, bool]]) -> dict[str, list[float]]:
    """Each arm's blocks, in ms a step (the median of a block); every second cycle runs the arms backwards."""
    medians: dict[str, list[float]] = {name: [] for name in arms}
    for number in range(bench.pairs):
        for name in list(arms) if number % 2 == 0 else reversed(arms):
            bench.reader.set(*arms[name])
            if arms[name][1]:
                until(lambda: bench.reader.in_state(TimelineState.ON, TimelineState.YIELDED), bench.job, 5)
            more_steps(bench.job, 3)  # also lets the last buffers of the arm before drain
            medians[name].append(block(bench))
        bench.reader.take()
    bench.reader.set(Capture.NOTHING, False)
    return medians


def block(bench: Bench) -> float:
    """The median of the next few steps, in ms."""
    first = len(bench.job.steps)
    more_steps(bench.job, BLOCK)
    return float(np.median([step["ms"] for step in bench.job.steps[first : first + BLOCK]]))


def block_statistics(bench: Bench, medians: dict[str, list[float]]) -> dict[str, Any]:
    """What both say of their blocks; stock against itself, and every block."""
    off = medians["off"]
    pairs = list(zip(off[::2], off[1::2], strict=False))
    return {
        "pairs": len(off),
        "off_ms": float(np.median(off)),
        "a_over_a": ratio([a for a, _ in pairs], [b for _, b in pairs]),
        "ring_drops": [p.kernel_drops for p in bench.reader.processes()],
        "lost": [p.timeline_lost for p in bench.reader.processes()],
        "blocks_ms": medians,
    }


def against_never_on(bench: Bench, off: list[float]) -> dict[str, float]:
    """Blocks of steps over those before anything was ever on: not paired, minutes apart."""
    return against(np.array(off), np.array(bench.results["never_on"]["blocks_ms"]))


def ratio(ones: list[float], others: list[float]) -> dict[str, float]:
    """Ones over others, paired, with a 95 % interval."""
    found = estimate_from_pairs([math.log(other / one) for one, other in zip(ones, others, strict=True)])
    assert found is not None
    return {"median": round(found.value, 5), "low": round(found.low, 5), "high": round(found.high, 5)}


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
    blocks = [block(bench) for _ in range(max(NEVER_LEAST, bench.pairs // NEVER_SHARE))]
    bench.save("never_on", {"blocks_ms": blocks})


def run_torch_profiler(bench: Bench, number: int) -> dict[str, Any]:
    """Lets the job start its next torch.profiler window and waits until its traces are written."""
    (bench.folder / f"go-{number}").write_text("")
    began = until((bench.folder / f"begun-{number}").exists, bench.job, 30)
    first = len(bench.job.steps)
    yielded = until(lambda: bench.reader.in_state(TimelineState.YIELDED), bench.job, 2) if bench.reader.wanted else None
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
    found: dict[str, Any] = {}
    times_before = [s["ms"] for s in bench.job.steps[-20:]]
    found["ours_before"] = own_window(bench, 12)
    found["torch_before_ours"] = run_torch_profiler(bench, 0)
    found["ours_after_torch"] = own_window(bench, 12)
    bench.save("beside", found)
    found["torch_inside_ours"] = run_torch_profiler_inside(bench, 1)
    found["on_again_by_itself"] = until(lambda: bench.reader.in_state(TimelineState.ON), bench.job, 10)
    found["ours_after_yield"] = own_window(bench, 12)
    bench.save("beside", found)
    # What torch throws away then holds the loss.
    found["torch_warmed_up_inside_ours"] = run_torch_profiler_inside(bench, 2)
    bench.reader.set(Capture.NOTHING, False)
    bench.reader.take()
    bench.save("beside", found)
    found["torch_after_ours"] = run_torch_profiler(bench, 3)
    more_steps(bench.job, 3)
    first = len(bench.job.steps)
    more_steps(bench.job, 20)
    times_after = [s["ms"] for s in bench.job.steps[first:]]
    found["step_after_over_before"] = against(np.array(times_after), np.array(times_before))
    found["remarks"] = sorted(bench.reader.remarks)
    found["states"] = bench.reader.states
    bench.save("beside", found)


def run_torch_profiler_inside(bench: Bench, number: int) -> dict[str, Any]:
    """Its next window, begun while one of ours is on."""
    bench.reader.set(ALL, True)
    until(lambda: bench.reader.in_state(TimelineState.ON), bench.job, 10)
    more_steps(bench.job, 4)
    return run_torch_profiler(bench, number)


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


EXPERIMENTS: dict[str, Callable[[Bench], None]] = {
    "join": join,
    "cost": cost,
    "drift": drift,
    "beside": beside,
}
