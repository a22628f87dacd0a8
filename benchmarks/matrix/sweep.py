# SPDX-License-Identifier: Apache-2.0
"""How long communication and computation take side by side under each of many settings: figures 3 and 5 of the paper.

One job runs throughout and prints x, y and z of every iteration. The settings are pinned one after the other from
outside, in an order of each cycle's own, and an iteration counts for the setting that all ranks had agreed on before it
began.
Stock is among the settings, in each cycle twice.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.matrix.place import Place
from benchmarks.matrix.rows import Row
from benchmarks.matrix.single_runs import steps_of, summarize_log
from lagom import journal
from lagom.cli.pin import write_pins
from lagom.experiment.process import ProcessStart, run_process
from lagom.journal.reader import Tail

HOLD_SECONDS = 0.5
#: From the agreement to the first iteration that counts: what the host had enqueued before is through by then.
SETTLE_SECONDS = 0.25
#: A setting that nobody agrees on in this time is passed over.
PATIENCE_SECONDS = 15.0
KEPT = 80
#: A rule that no call fits: the ranks agree on it, and stock is what runs.
NOTHING = "allreduce:=1:nc=1"
SMALL, LARGE = 32 << 20, 128 << 20  # what contention.py sends


@dataclass(frozen=True, slots=True)
class Point:
    """One setting: which part of the figure it belongs to, its knobs, and the rules that pin it."""

    part: str
    knobs: dict[str, int]
    rules: tuple[str, ...]
    cycle: int = 0


def points(row: Row) -> list[Point]:
    """Every setting of a row, stock twice."""
    found = [*_figure5()] if row.name == "fig5" else [*_figure3()]
    return [Point("stock", {}, (NOTHING,)), Point("stock again", {}, (NOTHING,)), *found]


def _figure3() -> Iterator[Point]:
    for channels, chunk in itertools.product((2, 8, 16, 32), (16, 128, 1024)):
        yield _one("3a: NC x C at NT = 128", nc=channels, chunk=chunk << 10, nt=128)
    for channels in (1, 2, 4, 8, 16, 32):
        yield _one("3b: NC at C = 16 KiB", nc=channels, chunk=16 << 10)
    for chunk in (16, 32, 64, 128, 256, 512, 1024):
        yield _one("3c: C at NC = 4", nc=4, chunk=chunk << 10)
    for threads in (128, 256, 384, 512):
        yield _one("NT alone, NC = 8", nc=8, nt=threads)


def _figure5() -> Iterator[Point]:
    """Both at one channel; then one of them grows."""
    for first, second in ((1, 1), *((n, 1) for n in (2, 4, 8, 16)), *((1, n) for n in (2, 4, 8, 16))):
        rules = (f"allreduce:={SMALL}:nc={first}", f"allreduce:={LARGE}:nc={second}")
        yield Point("5: NC of one at a time", {"nc of A": first, "nc of B": second}, rules)


def _one(part: str, **knobs: int) -> Point:
    words = ",".join(f"{name}={value}" for name, value in knobs.items())
    return Point(part, knobs, (f"allreduce:={SMALL}:{words}",))


class SettingSweep:
    """Pins one setting after the other; :meth:`look` is called all the time while the job runs."""

    def __init__(self, order: list[Point], log: Path) -> None:
        self.spans: list[tuple[Point, float, float]] = []  # (setting, from, to), wall clock
        self.passed_over: list[Point] = []
        self._waiting = list(order)
        self._log, self._tail = log, Tail(log)
        self._point: Point | None = self._waiting.pop(0)
        self._asked_at = time.time()
        self._agreed_at: float | None = None
        self.events: list[journal.schema.Base] = []

    @property
    def is_over(self) -> bool:
        """Whether every setting had its turn."""
        return self._point is None

    def look(self) -> None:
        """One step."""
        new = self._tail.unread()
        self.events += new
        agreed = [event.t for event in new if isinstance(event, journal.PlanCommitted)]
        if self._point is None:
            return
        if agreed and self._agreed_at is None:
            self._agreed_at = agreed[-1]
        now = time.time()
        if self._agreed_at is not None and now - self._agreed_at >= HOLD_SECONDS + SETTLE_SECONDS:
            self.spans.append((self._point, self._agreed_at + SETTLE_SECONDS, now))
            self._next(now)
        elif self._agreed_at is None and self._has_begun() and now - self._asked_at > PATIENCE_SECONDS:
            self.passed_over.append(self._point)
            self._next(now)

    def _has_begun(self) -> bool:
        """Ranks are there: before that, starting up takes as long as it takes."""
        if any(isinstance(event, journal.Communicator) for event in self.events):
            return True
        self._asked_at = time.time()
        return False

    def _next(self, now: float) -> None:
        self._agreed_at, self._asked_at = None, now
        self._point = self._waiting.pop(0) if self._waiting else None
        if self._point is not None:
            write_pins(self._log, list(self._point.rules))


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """The whole course in one job."""
    order = waiting(row, earlier)
    if not order:
        return {**earlier, "complete": True}
    folder = place.folder / row.name
    course = SettingSweep(order, folder / "sweep")
    first = ["--set", ";".join(order[0].rules)]
    start = ProcessStart(
        place.command(row), folder, "sweep", first, place.environ(row), budget,
        enough=lambda seen: course.is_over, while_it_runs=course.look,
    )  # fmt: skip
    ended = run_process(start)
    steps = steps_of(folder / "sweep.out")
    visits = [_visit(point, begin, end, steps) for point, begin, end in course.spans]
    return {
        "complete": course.is_over,
        "exit": ended.exit,
        "ended": ended.ended,
        "visits": [*earlier.get("visits", []), *visits],
        "passed_over": [*earlier.get("passed_over", []), *([p.cycle, p.part, p.rules] for p in course.passed_over)],
        "log": summarize_log(ended.seen.events),
        "notes": [event.text for event in ended.seen.events if isinstance(event, journal.Note)],
        "output": ended.seen.last_lines() if not visits else [],
    }


def waiting(row: Row, earlier: dict[str, Any]) -> list[Point]:
    """Every setting once in each cycle, without those that earlier sessions have seen or passed over."""
    seen = {(visit["cycle"], visit["part"], *visit["rules"]) for visit in earlier.get("visits", []) if visit["samples"]}
    seen |= {(cycle, part, *rules) for cycle, part, rules in earlier.get("passed_over", [])}
    every = points(row)
    order = []
    for cycle in range(row.cycles):
        order += [replace(point, cycle=cycle) for point in random.Random(cycle).sample(every, len(every))]
    return [point for point in order if (point.cycle, point.part, *point.rules) not in seen]


def _visit(point: Point, begin: float, end: float, steps: list[dict[str, Any]]) -> dict[str, Any]:
    """The iterations that ran wholly within one setting's turn, thinned evenly; ms."""
    inside = [s for s in steps if begin <= s["wall_ns"] / 1e9 - s["ms"] / 1e3 and s["wall_ns"] / 1e9 <= end]
    kept = inside[:: max(1, len(inside) // KEPT)]
    samples = [[s["x_ms"], s["y_ms"], s["ms"]] for s in kept]
    return {
        "cycle": point.cycle,
        "part": point.part,
        "knobs": point.knobs,
        "rules": point.rules,
        "iterations": len(inside),
        "samples": samples,
    }
