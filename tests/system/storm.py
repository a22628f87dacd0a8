# SPDX-License-Identifier: Apache-2.0
"""The agreement storm: ranks that call as fast as they can, plans as fast as they are taken, and everything that may go
wrong meanwhile. A referee in shared memory compares every call of every rank.

    python -m tests.system.storm --plans 1000000 --ranks 8 --communicators 8 --window 120 --json FILE
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagom.wire.job_key import key_and_region
from lagom.wire.library import plugin_path
from tests.evidence import circumstances, save
from tests.system.programs import build
from tests.waiting import wait_until

HEADER = (Path(__file__).parent / "native" / "storm.h").read_text()
FIELDS = [  # of struct storm_control, in order
    *("stop", "seed", "ranks", "communicators", "window"),
    *("difference", "communicator", "call", "rank", "mine", "theirs"),
]
COUNTS = [  # of struct storm_plans, in order
    *("published", "committed", "aborted", "overtaken", "refused", "late", "leases", "torn", "stale", "stale_won"),
]
CONTROLLER, INTRUDER = 0, 1
WORDS = 16  # of storm_control before its plans; of one storm_plans
LINE = 8  # words of a cache line


def constant(name: str) -> int:
    """A #define of storm.h."""
    return int(HEADER.split(f"#define {name} ")[1].split()[0].rstrip("u"))


MAX_RANKS, MAX_COMMUNICATORS, CELLS = (
    constant(f"STORM_{name}") for name in ("MAX_RANKS", "MAX_COMMUNICATORS", "CELLS")
)
PROGRESS = 3 * WORDS  # where the counts of calls begin
CELLS_START = PROGRESS + MAX_COMMUNICATORS * MAX_RANKS * LINE
CONTROL_BYTES = (CELLS_START + MAX_COMMUNICATORS * CELLS) * 8


@contextmanager
def held(ranks: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Inside, none of them makes a call."""
    for rank in ranks:
        rank.send_signal(signal.SIGSTOP)
    for rank in ranks:  # a signal takes a moment
        os.waitid(os.P_PID, rank.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    try:
        yield
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGCONT)


@dataclass(frozen=True)
class Weather:
    """How hard it blows. Times in seconds, on average; ``window``: calls a rank may be ahead of the slowest."""

    plans: int
    seconds: float
    ranks: int = 8
    communicators: int = 4
    window: int = 400
    kills: int = 100
    kill_every: float = 0.5
    pause_every: float = 0.05
    seed: int = 20261120


@dataclass(frozen=True)
class Site:
    """Where a storm takes place."""

    programs: Path
    plugin: Path
    key: str
    region: Path
    environ: dict[str, str]
    page: Path


class Control:
    """The storm's shared page."""

    def __init__(self, path: Path, weather: Weather) -> None:
        path.write_bytes(bytes(CONTROL_BYTES))
        with path.open("r+b") as file:
            self.words = memoryview(mmap.mmap(file.fileno(), CONTROL_BYTES)).cast("Q")
        self.ranks, self.communicators = weather.ranks, weather.communicators
        for name in ("seed", "ranks", "communicators", "window"):
            self[name] = getattr(weather, name)

    def __getitem__(self, name: str) -> int:
        return self.words[FIELDS.index(name)]

    def __setitem__(self, name: str, value: int) -> None:
        self.words[FIELDS.index(name)] = value

    def count(self, name: str, whose: int = CONTROLLER) -> int:
        """What a publisher has counted, over all its lives."""
        return self.words[WORDS * (1 + whose) + COUNTS.index(name)]

    def calls(self) -> list[list[int]]:
        """Calls made, by communicator and rank."""
        return self._column(0)

    def changed(self) -> int:
        """Calls that differed from stock, over all ranks."""
        return sum(map(sum, self._column(1)))

    def waits(self) -> int:
        """How often a rank gave its processor away while the tuner had a call; steady ranks only."""
        return sum(map(sum, self._column(2)))

    def faults(self) -> int:
        """Page faults while the tuner had a call; steady ranks only."""
        return sum(map(sum, self._column(5)))

    def nanoseconds(self) -> tuple[int, float]:
        """Processor time of a call: the dearest, and the mean; steady ranks only."""
        total, calls = sum(map(sum, self._column(4))), sum(map(sum, self.calls()))
        return max(map(max, self._column(3))), total / max(calls, 1)

    def _column(self, word: int) -> list[list[int]]:
        starts = [PROGRESS + c * MAX_RANKS * LINE + word for c in range(self.communicators)]
        return [[self.words[start + rank * LINE] for rank in range(self.ranks)] for start in starts]


class Publisher:
    """The storm's controller, or the intruder: killed without notice, and replaced."""

    def __init__(self, site: Site, *, intruder: bool) -> None:
        self._line = [str(site.programs / "storm_publisher"), site.key, str(site.page)]
        self._role = ["intruder"] if intruder else []
        self._environ = {**os.environ, **site.environ}
        self.lives = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """The next one. Its predecessor's lock is free: it is dead."""
        self.lives += 1
        self._process = subprocess.Popen([*self._line, str(self.lives), *self._role], env=self._environ)

    def send(self, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, wherever it is."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def died_by_itself(self) -> bool:
        """A publisher that ends without being killed found something wrong."""
        return self._process is not None and self._process.poll() not in (None, 0, -signal.SIGKILL)


class Storm:
    """Ranks, publisher and intruder of one storm; :meth:`blow` is the storm."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.publisher, self.intruder = Publisher(site, intruder=False), Publisher(site, intruder=True)
        self.ranks: list[subprocess.Popen[bytes]] = []
        self.pauses = self.kills = self.intruder_pauses = 0

    @contextmanager
    def running(self, control: Control, *, intruder: bool = True) -> Iterator[None]:
        """Everybody at work; afterwards nobody is left."""
        self.publisher.start()
        while not self._site.region.exists():
            time.sleep(0.01)
        if intruder:
            self.intruder.start()
        line = [self._site.programs / "storm_rank", self._site.plugin, self._site.page]
        environ = {**os.environ, **self._site.environ}
        self.ranks = [subprocess.Popen([*line, str(rank)], env=environ) for rank in range(control.ranks)]
        try:
            yield
        finally:
            for publisher in (self.publisher, self.intruder) if intruder else (self.publisher,):
                publisher.kill()
            for rank in self.ranks:
                rank.kill()
                rank.wait()

    def blow(self, control: Control, weather: Weather) -> None:
        """Pauses and kills until enough plans are committed."""
        dice, end = random.Random(weather.seed), time.monotonic() + weather.seconds
        next_kill, committed = time.monotonic() + weather.kill_every, 0
        while not control["stop"] and time.monotonic() < end:
            meddled = control.count("torn", INTRUDER) and control.count("stale", INTRUDER)
            if control.count("committed") >= weather.plans and self.kills >= weather.kills and meddled:
                return
            assert all(rank.poll() is None for rank in self.ranks), "a rank ended by itself"
            assert not self.publisher.died_by_itself(), "the publisher ended by itself"
            time.sleep(dice.uniform(0, 2 * weather.pause_every))
            self._disturb(dice)
            # Where a publisher commits nothing in its time (a busy machine), it lives until it has, or a second more.
            late = time.monotonic() - next_kill
            if late > 1.0 or (late > 0.0 and control.count("committed") > committed):
                self.publisher.kill()
                committed = control.count("committed")
                self.publisher.start()
                self.kills += 1
                next_kill = time.monotonic() + dice.uniform(0, 2 * weather.kill_every)

    def _disturb(self, dice: random.Random) -> None:
        """Stops one or two ranks for a moment, or the intruder for longer, in the middle of whatever they do."""
        if dice.random() < 0.2:
            self.intruder.send(signal.SIGSTOP)
            self.intruder_pauses += 1
        chosen = dice.sample(self.ranks, dice.randint(1, 2))
        for rank in chosen:
            rank.send_signal(signal.SIGSTOP)
        time.sleep(dice.uniform(0.001, 0.02))
        for rank in chosen:
            rank.send_signal(signal.SIGCONT)
        self.pauses += 1
        if dice.random() < 0.5:
            self.intruder.send(signal.SIGCONT)

    def finish(self, control: Control) -> list[int | None]:
        """Ends the ranks in order; their exit codes, None = it did not end."""
        control["stop"] = 1
        with contextlib.suppress(AssertionError):
            wait_until(lambda: all(rank.poll() is not None for rank in self.ranks), "the ranks to end")
        return [rank.returncode for rank in self.ranks]


def report_of(storm: Storm, control: Control, weather: Weather, seconds: float) -> dict[str, Any]:
    """What was injected and what was seen."""
    return {
        "seconds": round(seconds, 1),
        "ranks": weather.ranks,
        "communicators": weather.communicators,
        "window": weather.window,
        "seed": weather.seed,
        **{name: control.count(name) for name in COUNTS[:7]},
        "calls_compared": sum(map(sum, control.calls())),
        "calls_changed": control.changed(),
        "rank_pauses": storm.pauses,
        "publisher_kills": storm.kills,
        "intruder": {name: control.count(name, INTRUDER) for name in COUNTS},
        "intruder_pauses": storm.intruder_pauses,
        "differences": control["difference"],
    }


def difference_text(control: Control) -> str:
    """The first call on which a rank ran something else than the one before it."""
    names = ("communicator", "call", "rank", "mine", "theirs")
    return "two ranks differ: " + ", ".join(f"{name} {control[name]:#x}" for name in names)


def faults_of(control: Control, weather: Weather, report: dict[str, Any], codes: list[int | None]) -> list[str]:
    """Every promise that did not hold, in words."""
    made = {
        difference_text(control): control["difference"] == 0,
        f"ranks ended with {codes}": codes == [0] * weather.ranks,
        "a swap by a stale word went through": control.count("stale_won", INTRUDER) == 0,
        "the publisher made an illegal plan, so it tested less than it says": report["refused"] == 0,
        "no plan was committed": report["committed"] > 0,
        "too few of the plans were leases": report["leases"] > report["committed"] // 3,
        "the plans changed nothing": report["calls_changed"] > report["committed"],
    }
    return [words for words, held in made.items() if not held]


def blow(weather: Weather, site: Site) -> tuple[dict[str, Any], list[str]]:
    """A whole storm: the report, and what did not hold."""
    control, began = Control(site.page, weather), time.monotonic()
    storm, faults = Storm(site), []
    with storm.running(control):
        try:
            storm.blow(control, weather)
        except AssertionError as error:
            faults.append(str(error))
        codes = storm.finish(control)
    report = report_of(storm, control, weather, time.monotonic() - began)
    return report, faults + faults_of(control, weather, report, codes)


@contextmanager
def site_of_its_own() -> Iterator[Site]:
    """A folder in shared memory, a job's name, the programs."""
    with tempfile.TemporaryDirectory(prefix="lagom-storm-", dir="/dev/shm") as name:
        folder = Path(name)
        environ = {"LAGOM_JOB_ID": f"storm-{uuid.uuid4().hex[:12]}", "LAGOM_SHM_DIR": name, "LAGOM_MODE": "tune"}
        environ |= {"LAGOM_DIR": f"{name}/log", "LAGOM_CONTROLLER": "none"}
        key, region = key_and_region(environ)
        programs = build()
        yield Site(programs, plugin_path(), key, region, environ, folder / "control")


def main() -> int:
    """One storm of the size that is asked for; 1 if a promise did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=1_000_000, help="how many must be in force")
    parser.add_argument("--minutes", type=float, default=60.0, help="at most")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--communicators", type=int, default=8, help="ranks x communicators is at most 64")
    parser.add_argument("--window", type=int, default=120, help="calls a rank may be ahead of the slowest")
    parser.add_argument("--seed", type=int, default=20261120)
    parser.add_argument("--json", type=Path, help="where the evidence goes")
    wanted = parser.parse_args()
    weather = Weather(
        wanted.plans, 60 * wanted.minutes, wanted.ranks, wanted.communicators, wanted.window, seed=wanted.seed
    )
    head = circumstances(
        f"random legal plans on {wanted.communicators} communicators of {wanted.ranks} virtual ranks, as fast as they "
        "are taken; ranks paused, the publisher killed, a second one meddling without the lock; every call of every "
        "rank compared"
    )
    with site_of_its_own() as site:
        report, faults = blow(weather, site)
    if report["committed"] < wanted.plans:
        faults.append(f"only {report['committed']} plans in {weather.seconds} s")
    save(wanted.json, {**head, **report, "violations": faults})
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
