# SPDX-License-Identifier: Apache-2.0
"""The soak: ranks that train, a controller that tunes them, and everything that goes wrong on a node, for half an hour.

    make soak                         8 virtual ranks, SOAK_MINUTES=30
    python -m tests.soak --minutes 1 --seed 7 --json FILE

Exit status 1 if a promise did not hold; then the state is kept (--state) and its seed is in the summary.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import shutil
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagom.journal import LOG_NAME
from lagom.journal.writer import DEFAULT_MAX_BYTES
from lagom.sim.virtual.virtual_job import RankFailed
from tests.evidence import circumstances, save
from tests.soak.faults import Weather
from tests.soak.forked import warm
from tests.soak.generation import Generation, some_job
from tests.soak.judge import Judge
from tests.soak.keeper import Keeper
from tests.soak.process import open_files, resident_bytes
from tests.soak.story import Story

STUCK_SECONDS = 300.0  # without an iteration although everybody runs; pauses of the harness and a busy machine included
MOST_RESIDENT = 256 << 20  # of a controller and of a rank, with what they share
MOST_FILES = 64
MOST_SAID = 16 << 20  # controller.log
TICK = 0.02
LEAST_INJECTED = 5  # faults


@dataclass(frozen=True)
class Wanted:
    """What is asked for."""

    seconds: float
    seed: int
    ranks: int = 8
    haste: float = 1.0
    life: tuple[float, float] = (15.0, 45.0)  # seconds of a generation that nothing ends before
    small: bool = False


class Soak:
    """One soak in a folder of its own; :meth:`run` is the whole of it."""

    def __init__(self, wanted: Wanted, state: Path, shm: Path) -> None:
        self._wanted, self._state, self._log = wanted, state, state / "log"
        self._environ = {
            "LAGOM_JOB_ID": f"soak-{uuid.uuid4().hex[:12]}",
            "LAGOM_MODE": "tune",
            "LAGOM_CONTROLLER": "none",
        }
        self._environ |= {"LAGOM_DIR": str(self._log), "LAGOM_SHM_DIR": str(shm)}
        self._shm, self._dice, self._judge = shm, random.Random(wanted.seed), Judge()
        self._keeper = Keeper(self._environ, self._log, random.Random(wanted.seed + 1))
        self._weather = Weather(self._keeper, wanted.seed + 2, self._log, self._environ, wanted.haste)
        self._in_force: list[tuple[int, int, int]] = []
        self._looked = 0.0
        self.seen: Counter[str] = Counter()
        self.largest: Counter[str] = Counter()
        self.faults: list[str] = []

    def run(self) -> dict[str, Any]:
        """Until the time is over or something is wrong; the summary."""
        began, number = time.monotonic(), 0
        warm()
        with contextlib.closing(self._keeper):
            self._keeper.start()
            end = began + self._wanted.seconds
            while (time.monotonic() < end or not self._has_tested_enough()) and not self.faults:
                self._generation(number, end)
                number += 1
                self._say(number, time.monotonic() - began)
            self._weather.settle()
            self._keeper.stop(pause=1e9)
            self._until(lambda: not self._keeper.is_running(), STUCK_SECONDS)
        self.faults += self._weather.faults
        return self._summary(time.monotonic() - began)

    def _has_tested_enough(self) -> bool:
        """However short it was to be and however busy the machine is."""
        injected = sum(self._weather.counts.values())
        return self.seen["generations"] >= 2 and self.seen["plans in force"] > 0 and injected > LEAST_INJECTED

    # -- one generation

    def _generation(self, number: int, end: float) -> None:
        ranks = self._wanted.ranks if self._dice.random() < 0.7 else self._dice.choice([2, 4, self._wanted.ranks])
        spec = some_job(self._dice, number, ranks, self._wanted.small)
        now, life = time.monotonic(), self._dice.uniform(*self._wanted.life)
        until = min(end, now + life) if now < end else now + life
        with Generation(spec, self._state / f"ranks{number}", self._environ, number) as generation:
            self._weather.generation, self._weather.calm = generation, self._dice.choice([1.0, 1.0, 1.0, 6.0])
            self._until(lambda: generation.dying or time.monotonic() > until or bool(self.faults), float("inf"))
            self._weather.generation = None
            self._until(lambda: False, self._dice.uniform(0.05, 0.5))  # a launcher takes a moment to notice
            self._end(generation)
        self.seen["generations"] += 1

    def _end(self, generation: Generation) -> None:
        self._weather.settle()
        how = "cut off" if generation.dying else "ended in order"
        try:
            generation.end()
        except RankFailed as error:
            self.faults.append(f"generation {generation.number}: {error}")
        verdict = generation.judged(self._judge)
        self.seen[f"generations {how}"] += 1
        self.seen.update(verdict.counts)
        self.faults += [f"generation {generation.number}: {fault}" for fault in verdict.faults]
        self._in_force += verdict.plans

    def _until(self, over: Any, seconds: float) -> None:
        """Lets things happen, and watches them."""
        end = time.monotonic() + seconds
        while not over() and time.monotonic() < end:
            self._weather.blow()
            if complaint := self._keeper.look(self._weather.damaged_until):
                self.faults.append(complaint)
                return
            if (generation := self._weather.generation) is not None:
                self._watch(generation)
            time.sleep(TICK)

    # -- what is watched while it runs

    def _watch(self, generation: Generation) -> None:
        generation.wake()
        if generation.dying:
            return
        try:
            generation.job.running()
        except RankFailed as error:
            self.faults.append(f"generation {generation.number}: {error}")
        if generation.stuck_for() > STUCK_SECONDS:
            self.faults.append(f"generation {generation.number}: no iteration for {STUCK_SECONDS} s")
        if time.monotonic() - self._looked > 1.0:
            self._looked = time.monotonic()
            self._measure(generation)

    def _measure(self, generation: Generation) -> None:
        """Nothing may grow: memory, descriptors, files."""
        pids = [process.pid for process in generation.job.processes]
        said = self._log / "controller.log"
        regions = [path for path in self._shm.iterdir() if path.name.startswith("lagom-")]
        self._bound("controller's memory", self._keeper.largest, MOST_RESIDENT)
        self._bound("controller's files", self._keeper.files, MOST_FILES)
        self._bound("a rank's memory", max(map(resident_bytes, pids)), MOST_RESIDENT)
        self._bound("a rank's files", max(map(open_files, pids)), MOST_FILES)
        self._bound("regions", len([path for path in regions if ".tmp." not in path.name]), 1)
        self._bound("bytes of a region", max(map(_size, regions), default=0), 8 << 20)
        self._bound("bytes of decisions.jsonl", _size(self._log / LOG_NAME), DEFAULT_MAX_BYTES)
        self._bound("bytes of controller.log", _size(said), MOST_SAID)

    def _bound(self, what: str, value: int, most: int) -> None:
        self.largest[what] = max(self.largest[what], value)
        if value > most:
            self.faults.append(f"{what}: {value}, more than {most}")

    # -- the end

    def _say(self, number: int, seconds: float) -> None:
        plans, calls = self.seen["plans in force"], self.seen["calls compared"]
        words = f"{seconds:.0f} s: {number} generations, {plans} plans in force, {calls} calls compared"
        print(words, *self.faults, sep="; ", file=sys.stderr, flush=True)

    def _summary(self, seconds: float) -> dict[str, Any]:
        story = Story(self._log)
        self.faults += story.faults(self._keeper.lives, self._in_force)
        if not self.seen["plans in force"]:
            self.faults.append("no plan ever came into force: nothing was tested")
        lives = Counter(life.ended_by for life in self._keeper.lives)
        return {
            "seed": self._wanted.seed,
            "seconds": round(seconds, 1),
            "ranks": self._wanted.ranks,
            "injected": dict(self._weather.counts.most_common()),
            "controllers": {**lives, **self._keeper.counts},
            "seen": dict(self.seen.most_common()),
            "log": {"torn lines": story.torn, **dict(story.counts.most_common())},
            "largest": dict(self.largest),
            "violations": self.faults,
        }


def _size(path: Path) -> int:
    """Of a file that may go at any moment."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextlib.contextmanager
def shared_memory() -> Iterator[Path]:
    """A folder for the region."""
    with tempfile.TemporaryDirectory(prefix="lagom-soak-", dir="/dev/shm") as name:
        yield Path(name)


def soak(wanted: Wanted, state: Path) -> dict[str, Any]:
    """A whole soak; ``state`` is begun anew, and what is left in it afterwards is the log and what went wrong."""
    shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True)
    with shared_memory() as shm:
        made = Soak(wanted, state, shm)
        summary = made.run()
        for region in shm.iterdir() if summary["violations"] else ():
            shutil.copy(region, state)
    return summary


def main() -> int:
    """The soak of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument(
        "--seed", type=int, default=20261120, help="what is done is drawn from it; when, is the machine's"
    )
    parser.add_argument("--state", type=Path, default=Path("build/soak"), help="log, and the files of what went wrong")
    parser.add_argument("--json", type=Path, help="where the summary goes")
    asked = parser.parse_args()
    head = circumstances(
        "virtual ranks of many jobs, one after the other, tuned by the real controller through the real plugin while "
        "controllers and ranks are killed, stopped and paused and noise is written over rings, headers and plans; "
        "every call of every rank checked"
    )
    summary = soak(Wanted(60 * asked.minutes, asked.seed, asked.ranks), asked.state)
    save(asked.json, {**head, **summary})
    return 1 if summary["violations"] else 0


if __name__ == "__main__":
    sys.exit(main())
