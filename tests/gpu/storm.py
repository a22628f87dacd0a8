# SPDX-License-Identifier: Apache-2.0
"""A controller that thinks of nothing: it has random legal plans agreed, one after the other, as fast as it can.

    python -m tests.gpu.storm FOLDER --world 2 --plans 200 --seconds 40

It holds the controller's lock of the job that the environment names. FOLDER/plans.jsonl gets a line for every plan in
force (first call, configs); FOLDER/report.json the count of what the ranks really ran, from their own call records, and
of calls at which two ranks differed; FOLDER/stop appears when it is enough, which ends the job.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from lagom.program import CallHistory, CallProgram, find_program
from lagom.program.detect import is_transparent
from lagom.records import Algorithm, Assignment, CommConfig, Function, Protocol, Site
from lagom.wire.job_key import job_key
from lagom.wire.layout import MAX_RULES
from lagom.wire.library import library
from lagom.wire.plan import Plan, Rule
from lagom.wire.region import Capture, Publication, Region, Verdict
from lagom.wire.views import CommunicatorView
from tests.gpu.jobs.operations import OPERATIONS

FIRST_RANK_SECONDS = 300.0  # a machine that has never loaded torch takes long over it
LEARN_SECONDS, LEARN_ITERATIONS = 300.0, 10
STOCK_SECONDS = 1.0  # untouched at first, to see how many channels NCCL has built
OFFER_SECONDS = 5.0
DEFAULT_CHANNELS = 4  # where no kernel told how many there are
APPLIED, PROGRAM, CANDIDATE, UNAVAILABLE = 4, 1, 2, 16  # enum lagom_call_flags
NCCL_EVENT = 1  # enum lagom_span_source
CHUNKS = tuple(1 << power for power in range(14, 21))
BY_WORD = {function.word: function for function in Function}


@dataclass(frozen=True)
class Legal:
    """What may be asked for here."""

    channels: int
    threads: bool
    chunk: bool

    def config(self, dice: random.Random, function: Function) -> CommConfig:
        """Any config; now and then stock."""
        protocol = dice.choice([None, *Protocol])
        algorithm = dice.choice(algorithms_of(function))
        channels = dice.choice([None, dice.randint(1, self.channels)])
        chunk = dice.choice([None, dice.choice(CHUNKS)]) if self.chunk else None
        counts = self.threads_of(algorithm, protocol)
        threads = dice.choice(counts) if counts and dice.random() < 0.5 else None
        return CommConfig(algorithm, protocol, channels, threads, chunk)

    def threads_of(self, algorithm: Algorithm | None, protocol: Protocol | None) -> range:
        """The thread counts that are ours to set; TREE's are not."""
        if not self.threads or algorithm != Algorithm.RING or protocol is None:
            return range(0)
        return range(160, 641, 32) if protocol == Protocol.LL128 else range(96, 513, 32)

    def count(self, offered: Iterable[tuple[Algorithm | None, Protocol | None]]) -> int:
        """How many configs there are of these algorithms and protocols, stock not among them."""
        others = (self.channels + 1) * (len(CHUNKS) + 1 if self.chunk else 1)
        return sum((len(self.threads_of(*pair)) + 1) * others - (pair == (None, None)) for pair in offered)


def algorithms_of(function: Function) -> list[Algorithm | None]:
    """TREE exists for AllReduce only."""
    return [None, Algorithm.RING] + [Algorithm.TREE] * (function == Function.ALL_REDUCE)


@dataclass
class Mix:
    """The job's iteration as plans see it."""

    shapes: list[tuple[Function, int]]  # that count, each once: the sites
    positions: list[int]  # of an iteration, each an index into shapes
    transparent: list[tuple[Function, int]]
    period: int  # calls of an iteration, transparent ones included
    a_start: int = 0  # a call that is position 0

    @classmethod
    def of_operations(cls, world: int) -> Mix:
        """What mixed.py calls."""
        shapes: list[tuple[Function, int]] = []
        transparent: list[tuple[Function, int]] = []
        for operation in OPERATIONS:
            shape = (BY_WORD[operation.function], operation.bytes(world))
            (transparent if is_transparent(*shape) else shapes).append(shape)
        return cls(shapes, [*range(len(shapes))], transparent, len(OPERATIONS))

    @classmethod
    def learnt(cls, program: CallProgram, history: CallHistory) -> Mix:
        """What a job was seen to call."""
        shapes = list(dict.fromkeys(program.positions))
        small = {(Function(f), size) for f, size in history.shapes if is_transparent(f, size)}
        positions = [shapes.index(position) for position in program.positions]
        return cls(shapes, positions, sorted(small), program.calls_per_iteration, program.first_call)

    def start_after(self, call: int) -> int:
        """The first position 0 at or after a call."""
        return self.a_start + -(-max(0, call - self.a_start) // self.period) * self.period

    def rule(self, shape: tuple[Function, int], legal: Legal, dice: random.Random) -> Rule:
        """A config for calls of exactly this shape."""
        return Rule(shape[0], shape[1], shape[1], legal.config(dice, shape[0]))

    def plan(self, start: int, legal: Legal, dice: random.Random) -> Plan:
        """Half of the plans are rules only; half are programs whose candidate alternates with an incumbent."""
        small = self.transparent[:MAX_RULES]
        if dice.random() < 0.5:
            return Plan(start, rules=tuple(self.rule(s, legal, dice) for s in (self.shapes + small)[:MAX_RULES]))
        sites = tuple(Site(index, *shape) for index, shape in enumerate(self.shapes))
        incumbent, candidate = (Assignment(tuple(legal.config(dice, s.function) for s in sites)) for _ in range(2))
        return Plan(
            start,
            sites=sites,
            positions=tuple(self.positions),
            incumbent=incumbent,
            candidate=candidate,
            rules=tuple(self.rule(shape, legal, dice) for shape in small),
            end_call=start + dice.randint(2, 8) * self.period,
            alternate_iterations=1,
        )


@dataclass
class Witness:
    """What the ranks say they ran."""

    chosen: dict[int, bytes] = field(default_factory=dict)  # by call, of whichever rank told first
    configs: set[tuple[int, ...]] = field(default_factory=set)
    kinds: Counter[str] = field(default_factory=Counter)
    by_function: dict[int, set[bytes]] = field(default_factory=dict)  # configs that were applied
    differing: list[int] = field(default_factory=list)
    channels: int = 0
    history: CallHistory = field(default_factory=CallHistory)  # of the first rank

    def drain(self, region: Region, communicator: int) -> None:
        """Every waiting record of every rank."""
        for place, slot in enumerate(region.slots(communicator, also_gone=True)):
            records = region.drain_calls(slot.index)
            if place == 0:
                self.history.extend(records)
            for record in records:
                self.note(record)
        for process in region.processes():
            spans = region.drain_kernels(process.index)
            spans = spans[spans["source"] == NCCL_EVENT]
            self.channels = max(self.channels, int(spans["channels"].max(initial=0)))

    def there_are(self, legal: Legal) -> int:
        """How many combinations of function, size and config there are of what NCCL offered (host memory: no LL128)."""
        offered: dict[tuple[int, int], set[tuple[Algorithm | None, Protocol | None]]] = {}
        for function, size, algorithm, protocol, *_ in self.configs:
            pair = (Algorithm(algorithm) if algorithm >= 0 else None, Protocol(protocol) if protocol >= 0 else None)
            offered.setdefault((function, size), set()).add(pair)
        return sum(map(legal.count, offered.values()))

    def note(self, record: Any) -> None:
        """One call record (a row of CALL_RECORD)."""
        call, flags, config = int(record["call"]), int(record["flags"]), record["chosen"].tobytes()
        self.kinds["calls recorded"] += 1
        for name, bit in (("applied", APPLIED), ("in a program", PROGRAM), ("candidate", CANDIDATE)):
            self.kinds[name] += bool(flags & bit)
        self.kinds["not offered by NCCL"] += bool(flags & UNAVAILABLE)
        if flags & APPLIED:
            self.configs.add((int(record["function"]), int(record["bytes"]), *map(int, record["chosen"].item())))
            self.by_function.setdefault(int(record["function"]), set()).add(config)
        if self.chosen.setdefault(call, config) != config:
            self.differing.append(call)


class Storm:
    """Publishes until it is enough or the ranks have gone."""

    def __init__(self, region: Region, wanted: argparse.Namespace, plans: TextIO) -> None:
        self.region, self.wanted, self.plans = region, wanted, plans
        self.mix, self.dice = Mix.of_operations(wanted.world), random.Random(wanted.seed)
        self.witness, self.outcomes = Witness(), Counter[str]()
        self.refusals: Counter[str] = Counter()
        self.margin = 1

    def run(self) -> dict[str, Any]:
        """The whole storm; returns the report."""
        communicator = self._wait_for_communicator()
        self.region.set_capture(communicator, Capture.CALLS | Capture.KERNELS)
        self._look_for(communicator, STOCK_SECONDS)
        self.region.set_capture(communicator, Capture.CALLS)
        if self.wanted.learn:
            self.mix = self._learn(communicator)
        legal, began = self._legal(), time.monotonic()
        while self._goes_on(time.monotonic() - began):
            self._once(communicator, legal)
        seconds = time.monotonic() - began
        self._look_for(communicator, 0.2)
        return self._report(legal, seconds)

    def _learn(self, communicator: int) -> Mix:
        """The job's iteration, once it has been seen often enough."""
        end = time.monotonic() + LEARN_SECONDS
        while time.monotonic() < end and self.region.processes_alive() > 0:
            self._look_for(communicator, 0.5)
            program = find_program(self.witness.history)
            if program is not None and program.iterations_seen >= LEARN_ITERATIONS:
                return Mix.learnt(program, self.witness.history)
        raise SystemExit(f"no iteration repeated {LEARN_ITERATIONS} times within {LEARN_SECONDS:.0f} s")

    def _goes_on(self, seconds: float) -> bool:
        """Until there were enough plans and it took long enough, or the time is over, or the ranks have gone."""
        enough = self.outcomes["committed"] >= self.wanted.plans and seconds >= self.wanted.at_least_seconds
        return not enough and seconds < self.wanted.seconds and self.region.processes_alive() > 0

    def _report(self, legal: Legal, seconds: float) -> dict[str, Any]:
        return {
            "plans": dict(self.outcomes),
            "seconds": round(seconds, 1),
            "distinct function-size-config combinations run": len(self.witness.configs),
            "distinct combinations there are": self.witness.there_are(legal),
            "distinct configs run, by function": {
                Function(function).word: len(found) for function, found in sorted(self.witness.by_function.items())
            },
            "calls": dict(self.witness.kinds),
            "calls compared between ranks": len(self.witness.chosen),
            "differing": self.witness.differing[:20],
            "refusals": dict(self.refusals),
            "legal": {"channels": legal.channels, "threads": legal.threads, "chunk": legal.chunk},
        }

    def _wait_for_communicator(self) -> int:
        end = time.monotonic() + FIRST_RANK_SECONDS
        while time.monotonic() < end:
            for view in self.region.communicators():
                if self._is_whole(view) and self.region.counters(view.index)[1] > 0:
                    return view.index
            time.sleep(0.01)
        raise SystemExit(f"no communicator of {self.wanted.world} ranks came within {FIRST_RANK_SECONDS:.0f} s")

    def _is_whole(self, view: CommunicatorView) -> bool:
        return view.rank_count == self.wanted.world == len(self.region.slots(view.index))

    def _legal(self) -> Legal:
        knobs = [process.knobs for process in self.region.processes()]
        lib = library()
        threads = all(k & lib.LAGOM_KNOB_THREADS for k in knobs)
        chunk = all(k & lib.LAGOM_KNOB_CHUNK for k in knobs)
        return Legal(self.witness.channels or DEFAULT_CHANNELS, threads, chunk)

    def _once(self, communicator: int, legal: Legal) -> None:
        """One offer and what became of it."""
        self.witness.drain(self.region, communicator)
        if not self.region.ready_to_publish(communicator):
            time.sleep(0.001)
            return
        _, _, largest = self.region.counters(communicator)
        start = self.mix.start_after(largest + 1 + self.margin * self.mix.period)
        plan = self.mix.plan(start, legal, self.dice)
        result, epoch = self.region.publish(communicator, plan)
        if result is not Publication.OK:
            self.outcomes[f"publish: {result.name.lower()}"] += 1
            time.sleep(0.001)
            return
        self._decided(self._settle(communicator), plan, epoch, communicator)

    def _settle(self, communicator: int) -> Verdict:
        end = time.monotonic() + OFFER_SECONDS
        while (verdict := self.region.poll(communicator)) is Verdict.OPEN and time.monotonic() < end:
            time.sleep(0.0005)
        return self.region.withdraw(communicator) if verdict is Verdict.OPEN else verdict

    def _decided(self, verdict: Verdict, plan: Plan, epoch: int, communicator: int) -> None:
        self.outcomes[verdict.name.lower()] += 1
        if verdict is Verdict.COMMITTED:
            self.margin = 1
            print(json.dumps(_line(plan, epoch)), file=self.plans, flush=True)
            return
        self.margin = min(2 * self.margin, 64)
        for slot in self.region.slots(communicator):
            if slot.refused_epoch == epoch:
                self.refusals[f"fault {slot.refused_fault}"] += 1

    def _look_for(self, communicator: int, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.witness.drain(self.region, communicator)
            time.sleep(0.002)


def _line(plan: Plan, epoch: int) -> dict[str, Any]:
    """A plan for people: which call it began at and what it says."""
    line: dict[str, Any] = {"epoch": epoch, "start": plan.start_call, "end": plan.end_call}
    line["rules"] = [f"{r.function.word} {r.bytes_min}: {r.config}" for r in plan.rules if r.function is not None]
    if plan.candidate is not None:
        line["sites"] = [f"{s}: {plan.incumbent[s.index]} | {plan.candidate[s.index]}" for s in plan.sites]
    return line


def main() -> None:
    """Hold the region, storm, report, end the job."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--plans", type=int, default=200, help="how many must have been in force")
    parser.add_argument("--at-least-seconds", type=float, default=0.0, help="however soon those plans were agreed")
    parser.add_argument("--seconds", type=float, default=40.0, help="at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--learn", action="store_true", help="any job: watch its iteration first. Default: mixed.py")
    wanted = parser.parse_args()
    key = job_key()
    assert key is not None, "LAGOM_JOB_ID names the job"
    simulated = os.environ.get("LAGOM_CLOCK") == "simulated"
    with Region.create(key, simulated_clock=simulated) as region, (wanted.folder / "plans.jsonl").open("w") as plans:
        (wanted.folder / "ready").touch()
        try:
            report = Storm(region, wanted, plans).run()
            (wanted.folder / "report.json").write_text(json.dumps(report, indent=1))
        finally:
            (wanted.folder / "stop").touch()


if __name__ == "__main__":
    main()
