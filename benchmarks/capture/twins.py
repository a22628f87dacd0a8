# SPDX-License-Identifier: Apache-2.0
"""What capture leaves behind once it is off, to a thousandth: two jobs alike take turns on the same GPUs, a few steps
each, and only one of them was ever captured. Neighbouring turns are seconds apart, so what the machine does by itself
falls on both; the turns before anything was switched on show how far the two differ anyway.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.capture.experiments import BLOCK, Bench, against, cost, ratio
from benchmarks.capture.training_job import CaptureJob, until

SETTLE = 3  # steps of a turn that are not counted: clocks and caches are another job's
FIRST_STEPS = 12  # each job's own, allocations and all
FREE = 10**9
PATIENCE_SECONDS = 120.0


@dataclass
class Twin:
    """A job whose steps wait for a file, see ``--turns`` of the jobs."""

    job: CaptureJob
    file: Path
    times: list[float] = field(default_factory=list)  # ms a step, the median of each turn

    @property
    def done(self) -> int:
        """Steps that are over."""
        return len(self.job.steps)

    def let(self, first_waiting: int) -> None:
        """Steps before this one may run. Replaced at once: a rank never reads half a number."""
        beside = self.file.with_suffix(".new")
        beside.write_text(str(first_waiting))
        os.replace(beside, self.file)

    def until_step(self, last: int) -> None:
        """Let it run so far, and wait until it has; raises RuntimeError if it does not get there."""
        self.let(last)
        if not until(lambda: self.done >= last, self.job, PATIENCE_SECONDS):
            raise RuntimeError(f"a job stopped at step {self.done}: {self.job.process.poll()}, {self.job.other[-20:]}")

    def turn(self) -> None:
        """A turn, timed; the job waits again after it."""
        last = self.done + SETTLE + BLOCK
        self.until_step(last)
        self.times.append(float(np.median([step["ms"] for step in self.job.steps[last - BLOCK : last]])))

    def halt(self) -> None:
        """Stop a job that runs freely, before a step that no rank can have reached."""
        self.until_step(self.done + 5)


def twins(bench: Bench, captured: Twin, never: Twin) -> None:
    """Turns, capture of the one job while the other waits, turns again."""
    for twin in (captured, never):
        twin.until_step(FIRST_STEPS)
    before = in_turn(captured, never, bench.pairs)
    captured.let(FREE)
    bench.save("never_on", {"blocks_ms": before["captured"]})
    cost(bench)
    captured.halt()
    after = in_turn(captured, never, 2 * bench.pairs)
    bench.save(
        "twins",
        {
            "before": ratio(before["captured"], before["never"]),
            "after": ratio(after["captured"], after["never"]),
            "after_over_before": against(*(np.divide(t["captured"], t["never"]) for t in (after, before))),
            "pairs": {"before": bench.pairs, "after": 2 * bench.pairs},
            "turns_ms": {"before": before, "after": after},
        },
    )


def in_turn(captured: Twin, never: Twin, pairs: int) -> dict[str, list[float]]:
    """The turns' times; who begins changes from pair to pair."""
    first = len(captured.times)
    for number in range(pairs):
        for twin in (captured, never) if number % 2 == 0 else (never, captured):
            twin.turn()
    return {"captured": captured.times[first:], "never": never.times[first:]}
