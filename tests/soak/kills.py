# SPDX-License-Identifier: Apache-2.0
"""Controllers killed by the thousand: each attaches to the region of running ranks, publishes, and dies somewhere.

    python -m tests.soak.kills --kills 10000 --json FILE

A warm process forks the real controller again and again. Half of them get a SIGKILL at a moment drawn from their whole
life, half step on a mine (mines.py): while they publish, commit, withdraw, write the log. The ranks are C programs with
the real plugin that make the same calls every iteration; every call goes to the referee of the agreement storm.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lagom.controller.__main__ import main as controller_main
from lagom.journal import LOG_NAME
from lagom.journal.reader import parse
from lagom.wire.job_key import JOB_VARIABLES
from lagom.wire.layout import MAX_COMMUNICATORS, MAX_SLOTS, ffi
from tests.evidence import circumstances, save
from tests.soak.forked import Forked, warm
from tests.soak.mines import Mine
from tests.system.storm import Control, Site, Weather, difference_text, site_of_its_own

RANKS, COMMUNICATORS = 4, 2
PAUSE_MICROSECONDS = 1000  # between two iterations of a rank
#: Longest life of a controller in the time that one needs to attach, which is what a busy machine stretches: one that
#: pins rules publishes at once, one that tunes has to learn first.
PINNING_LIFE, TUNING_LIFE = 4.0, 60.0
TUNING_SHARE = 0.1
MINE_LIFE = 12.0  # for a mine that nobody steps on, where rules are pinned
STUCK_SECONDS = 300.0
PREPARED, COMMITTED, READY, HAS_CANDIDATE = 1, 0, 2, 1  # lagom_protocol.h


@dataclass
class Counters:
    """What was done and what was found, over all kills."""

    kills: Counter[str] = field(default_factory=Counter)  # by how
    left: Counter[str] = field(default_factory=Counter)  # what lay in the region just after a kill, by communicator
    ended: Counter[str] = field(default_factory=Counter)  # controllers that ended before they were killed: exit codes
    worst_gap: float = 0.0  # seconds without any call of some rank, as seen from outside


class Witness:
    """Reads the region without taking part: what a dead controller left there."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        # A controller forked from here would take the mapping for another copy of the library in its process.
        self._map.madvise(mmap.MADV_DONTFORK)
        self._region = ffi.cast("struct lagom_region *", ffi.from_buffer(self._map))

    def generation(self) -> int:
        """How many controllers have attached."""
        return int(self._region.header.controller_generation)

    def left(self) -> Iterator[str]:
        """In what state each communicator was left, in words."""
        for index in range(MAX_COMMUNICATORS):
            if self._region.communicators[index].comm_id:
                yield self._state(index)

    def _state(self, index: int) -> str:
        entry = self._region.communicators[index]
        state, epoch, plan = entry.word & 3, entry.word >> 2, self._region.plans[index]
        if state == PREPARED:
            return "an offer nobody had decided on"
        if plan.epoch > epoch:
            return "a plan that no word points to"
        if state != COMMITTED or not epoch:
            return "nothing open"
        slots = [slot for slot in self._slots() if slot.communicator == index]
        if any(slot.active_epoch != epoch for slot in slots):
            return "a plan agreed on and not begun everywhere"
        trial = plan.flags & HAS_CANDIDATE and min((slot.calls for slot in slots), default=0) < plan.end_call
        return "a trial under way" if trial else "nothing open"

    def _slots(self) -> Iterator[Any]:
        slots = (self._region.slots[index] for index in range(MAX_SLOTS))
        return (slot for slot in slots if slot.state == READY)


class Executioner:
    """Forks controllers and kills them."""

    def __init__(self, site: Site, log: Path, seed: int) -> None:
        self._site, self._log, self._dice = site, log, random.Random(seed)
        own = {name: value for name, value in os.environ.items() if not name.startswith(JOB_VARIABLES)}
        self._environ = {**own, **site.environ}
        self._attach_seconds = 0.02
        self.tally = Counters()

    def life(self, number: int, witness: Witness) -> None:
        """One controller from its birth to its end."""
        tunes = self._dice.random() < TUNING_SHARE
        mine = Mine.somewhere(self._dice, tunes) if self._dice.random() < 0.5 else None
        if mine is not None:
            life = TUNING_LIFE if tunes else MINE_LIFE
        else:
            life = self._dice.random() * (TUNING_LIFE if tunes else PINNING_LIFE)
        child = Forked(self._main(mine), self._arguments(number, tunes), self._environ, self._log / "controller.log")
        self._await_end(child, life * self._attach_seconds, witness)
        stepped_on_it = mine is not None and child.poll() is not None
        child.kill()
        if (code := child.wait()) != -9:
            self.tally.ended[str(code)] += 1
        else:
            self.tally.kills[f"mine: {mine.step}" if mine and stepped_on_it else "any moment"] += 1

    def _await_end(self, child: Forked, seconds: float, witness: Witness) -> None:
        """Until it has ended, or its time is over; learns meanwhile how long attaching takes here."""
        began, before, attached, lived = time.monotonic(), witness.generation(), False, 0.0
        while (lived := time.monotonic() - began) < seconds and child.poll() is None:
            if not attached and witness.generation() != before:
                attached = True
                self._attach_seconds += 0.1 * (min(lived, 0.5) - self._attach_seconds)
            time.sleep(0.0005)
        if not attached and child.poll() is None and lived > self._attach_seconds:  # where it is slow, none would
            self._attach_seconds += 0.1 * (min(lived, 10.0) - self._attach_seconds)

    def _main(self, mine: Mine | None) -> Any:
        def main(arguments: list[str]) -> int:
            if mine is not None:
                mine.lay()
            return controller_main(arguments)

        return main

    def _arguments(self, number: int, tunes: bool) -> list[str]:
        line = ["--job-key", self._site.key, "--dir", str(self._log), "--launcher", str(os.getpid())]
        line += ["--seed", str(number), "--stable-iterations", "5"]
        return line if tunes else [*line, "--set", self._rule()]

    def _rule(self) -> str:
        config = [f"nc={self._dice.randint(1, 24)}"]
        if self._dice.random() < 0.5:
            config.append(f"chunk={1 << self._dice.randint(14, 20)}")
        if self._dice.random() < 0.3:
            config.append(f"algo=ring,proto={self._dice.choice(['ll', 'simple'])}")
        return f"any:>=64K:{','.join(config)}"


@contextmanager
def steady_ranks(site: Site, control: Control) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Ranks at work; afterwards none is left."""
    environ = {**os.environ, **site.environ}
    line = [site.programs / "steady_rank", site.plugin, site.page]
    ranks = [subprocess.Popen([*line, str(r), str(PAUSE_MICROSECONDS)], env=environ) for r in range(control.ranks)]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


class Watch:
    """That every rank lives and goes on, whatever becomes of controllers."""

    def __init__(self, ranks: list[subprocess.Popen[bytes]], control: Control, tally: Counters) -> None:
        self._ranks, self._control, self._tally = ranks, control, tally
        self._calls, self._since = self._now(), time.monotonic()

    def _now(self) -> list[int]:
        return [calls for row in self._control.calls() for calls in row]

    def look(self) -> None:
        """Raises :class:`AssertionError` with what is wrong."""
        now, calls = time.monotonic(), self._now()
        codes = [rank.poll() for rank in self._ranks]
        assert codes == [None] * len(codes), f"a rank ended: {codes}"
        assert not self._control["difference"], difference_text(self._control)
        if all(new > old for new, old in zip(calls, self._calls, strict=True)):
            self._calls, self._since = calls, now
        self._tally.worst_gap = max(self._tally.worst_gap, now - self._since)
        assert now - self._since < STUCK_SECONDS, f"a rank made no call for {STUCK_SECONDS} s: {self._calls} {calls}"


def run(kills: int, seed: int, site: Site, log: Path, report_every: float = 60.0) -> tuple[dict[str, Any], list[str]]:
    """So many lives; what was seen, and what did not hold."""
    log.mkdir(parents=True, exist_ok=True)
    control = Control(site.page, Weather(0, 0, RANKS, COMMUNICATORS, seed=seed))
    executioner, began, faults = Executioner(site, log, seed), time.monotonic(), []
    tally, said = executioner.tally, began
    warm()
    with steady_ranks(site, control) as ranks:
        while not site.region.exists():
            time.sleep(0.001)
        witness, watch = Witness(site.region), Watch(ranks, control, tally)
        try:
            while _goes_on(sum(tally.kills.values()), kills, control, log):
                executioner.life(sum(tally.kills.values()), witness)
                tally.left.update(witness.left())
                watch.look()
                if time.monotonic() - said > report_every:
                    said = time.monotonic()
                    print(f"{said - began:.0f} s: {sum(tally.kills.values())} kills", file=sys.stderr, flush=True)
        except AssertionError as error:
            faults.append(str(error))
        attached = witness.generation()
        control["stop"] = 1
        codes = [rank.wait() for rank in ranks]
    report = _report(control, tally, log, attached, time.monotonic() - began)
    return report, faults + _faults(report, control, codes)


def _goes_on(killed: int, wanted: int, control: Control, log: Path) -> bool:
    """Until there were enough, plans came into force and controllers died in mid-offer: on a busy machine that may take
    more of them."""
    if killed < wanted or killed >= 10 * wanted:
        return killed < wanted
    found = _log_of(log)
    shown = found["lines"].get("plan_committed", 0) > 0 and found["offers_still_open_at_death"] > 0
    return not shown or control.changed() == 0


def _report(control: Control, tally: Counters, log: Path, attached: int, seconds: float) -> dict[str, Any]:
    worst, mean = control.nanoseconds()
    return {
        "seconds": round(seconds, 1),
        "ranks": control.ranks,
        "communicators": control.communicators,
        "kills": sum(tally.kills.values()),
        "kills_by_how": dict(tally.kills.most_common()),
        "left_in_the_region": dict(tally.left.most_common()),
        "controllers_attached": attached,
        "ended_by_themselves": dict(tally.ended),
        "log": _log_of(log),
        "calls_compared": sum(map(sum, control.calls())),
        "calls_changed": control.changed(),
        "waits_in_a_call": control.waits(),
        "page_faults_in_a_call": control.faults(),
        "processor_ns_a_call": {"mean": round(mean), "dearest": worst},
        "longest_without_a_call_s": round(tally.worst_gap, 2),
        "differences": control["difference"],
    }


def _log_of(folder: Path) -> dict[str, Any]:
    """What the controllers wrote before they died."""
    kinds: Counter[str] = Counter()
    path = folder / LOG_NAME
    with path.open("rb") as lines:
        for line in lines:
            event = parse(line.decode(errors="replace")) if line.strip() else None
            kinds["torn lines" if event is None else event.kind] += 1
    said = folder / "controller.log"
    decided = kinds["plan_committed"] + kinds["plan_aborted"]
    return {
        "bytes": path.stat().st_size,
        "offers_still_open_at_death": kinds["plan_published"] - decided,
        "lines": dict(kinds.most_common()),
        "tracebacks": said.read_text(errors="replace").count("Traceback"),
    }


def _faults(report: dict[str, Any], control: Control, codes: list[int]) -> list[str]:
    lines = report["log"]["lines"]
    held = {
        difference_text(control): report["differences"] == 0,
        f"ranks ended with {codes}": codes == [0] * len(codes),
        f"ranks waited {report['waits_in_a_call']} times while the tuner had a call": report["waits_in_a_call"] == 0,
        f"controllers ended by themselves: {report['ended_by_themselves']}": not report["ended_by_themselves"],
        "a controller raised an exception; see controller.log": report["log"]["tracebacks"] == 0,
        "more torn lines in the log than kills": lines.get("torn lines", 0) <= report["kills"],
        "no plan was ever agreed on": lines.get("plan_committed", 0) > 0,
        "the plans changed nothing": report["calls_changed"] > 0,
    }
    return [words for words, holds in held.items() if not holds]


def main() -> int:
    """The whole of it; 1 if a promise did not hold, and then the log is kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=20261120)
    parser.add_argument("--log", type=Path, default=Path("build/kills"), help="the controllers' log folder, begun anew")
    parser.add_argument("--json", type=Path, help="where the evidence goes")
    wanted = parser.parse_args()
    head = circumstances(
        "the real controller, forked from a warm process, attaches to running ranks, publishes, and is killed -9: half "
        "at any moment of its life, half while it publishes, commits, drains or writes its log"
    )
    (wanted.log / LOG_NAME).unlink(missing_ok=True)
    with site_of_its_own() as site:
        report, faults = run(wanted.kills, wanted.seed, site, wanted.log)
    save(wanted.json, {**head, "seed": wanted.seed, **report, "violations": faults})
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
