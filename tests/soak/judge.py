# SPDX-License-Identifier: Apache-2.0
"""Was every call of a generation of ranks what had been agreed? Looks at nothing but the files that the ranks left.

1. Every rank's log is a beginning of the longest: nobody ever ran anything else than the others.
2. The same plans came into force on every rank, in the same order, from the same calls on.
3. Every call ran what the plan in force names for it (:mod:`tests.soak.oracle`): nothing before the first plan, the
   candidate in its turn and only while its lease lasts, the incumbent afterwards. What NCCL makes of a config is learnt
   by watching: one named config, function and size must always come out alike; and no config comes out as stock does.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lagom.records import STOCK, Function
from lagom.sim.virtual.call_log import FUNCTION_SHIFT, compare, load, pack, unpack
from lagom.sim.virtual.nccl import VirtualNccl
from lagom.sim.virtual.selection import CollectiveCall, nccl_version
from lagom.sim.virtual.spec import JobSpec
from tests.soak.oracle import Named, Schedule, Shape


@dataclass
class Verdict:
    """What was compared, and what did not hold."""

    counts: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    plans: list[tuple[int, int, int]] = field(default_factory=list)  # comm_id, epoch, first call


class Judge:
    """Knows, over all generations, how each config comes out."""

    def __init__(self) -> None:
        self._comes_out: dict[tuple[object, ...], int] = {}

    def generation(self, folder: Path, spec: JobSpec) -> Verdict:
        """One generation's files."""
        verdict = Verdict()
        for communicator in spec.communicators:
            _One(self._comes_out, folder, spec, communicator.comm_id, verdict).judge()
        return verdict


class _One:
    """One communicator of a generation."""

    def __init__(
        self, comes_out: dict[tuple[object, ...], int], folder: Path, spec: JobSpec, comm_id: int, verdict: Verdict
    ) -> None:
        self._comes_out, self._folder, self._spec, self._verdict = comes_out, folder, spec, verdict
        self._comm_id = comm_id
        fabric = spec.fabric
        self._machine = (spec.version, spec.ranks, fabric.channels, fabric.bandwidth_gbs, fabric.ll128)

    def judge(self) -> None:
        logs = [load(self._folder, self._comm_id, rank) for rank in self._ranks_with("calls")]
        if not logs:
            return
        self._verdict.counts["calls compared"] += sum(map(len, logs))
        self._alike(logs)
        plans = self._plans_in_force()
        longest = max(logs, key=len)
        shapes = self._shapes(len(longest))
        if len(shapes) < len(longest):
            self._fault(f"the shapes of only {len(shapes)} of {len(longest)} calls are known")
        self._as_named(longest, shapes, plans)

    def _fault(self, words: str) -> None:
        self._verdict.faults.append(f"communicator {self._comm_id:x}: {words}")

    def _ranks_with(self, ending: str) -> list[int]:
        names = (path.name.split(".") for path in self._folder.glob(f"{self._comm_id:x}.*.{ending}"))
        return sorted(int(rank) for _, rank, _ in names)

    def _alike(self, logs: Sequence[array[int]]) -> None:
        """Each log against as much of the longest."""
        longest = max(logs, key=len)
        for log in logs:
            difference = compare(self._comm_id, [longest, log], same_length=False)
            if difference is not None:
                self._fault(f"ranks differ: {difference}")
                return

    def _plans_in_force(self) -> list[tuple[int, int]]:
        """(epoch, first call), as the rank tells that got furthest; every other's list must be a beginning of it."""
        lists = [_pairs(self._folder / f"{self._comm_id:x}.{rank}.plans") for rank in self._ranks_with("plans")]
        longest = max(lists, key=len, default=[])
        for one in lists:
            if one != longest[: len(one)]:
                self._fault(f"other plans came into force on one rank than on another: {one} and {longest}")
        self._verdict.plans += [(self._comm_id, *plan) for plan in longest]
        self._verdict.counts["plans in force"] += len(longest)
        return longest

    def _shapes(self, count: int) -> list[Shape]:
        words: array[int] = array("Q")
        for rank in self._ranks_with("shapes"):
            path, read = self._folder / f"{self._comm_id:x}.{rank}.shapes", array("Q")
            with path.open("rb") as file:
                read.fromfile(file, path.stat().st_size // 8)
            words = max(words, read, key=len)
        mask = (1 << FUNCTION_SHIFT) - 1
        return [(word >> FUNCTION_SHIFT, word & mask) for word in words[:count]]

    def _as_named(self, log: array[int], shapes: list[Shape], plans: list[tuple[int, int]]) -> None:
        """Every call against what was in force there."""
        ends = [start for _, start in plans] + [len(shapes)]
        self._stretch(log, shapes, 0, [Named(STOCK)] * min(ends[0], len(shapes)), "no plan")
        for (epoch, start), end in zip(plans, ends[1:], strict=True):
            path = self._folder / f"{self._comm_id:x}.{epoch}.plan"
            if not path.exists():
                self._verdict.counts["plans that no rank found whole any more"] += 1
                continue
            schedule = Schedule(path.read_bytes())
            if schedule.start != start:
                self._fault(f"plan {epoch} names call {schedule.start} and began at {start}")
            self._verdict.counts["leases"] += schedule.leased
            self._stretch(log, shapes, start, list(schedule.names(shapes[start:end])), f"plan {epoch}")
            if schedule.leased and end > schedule.end:
                self._verdict.counts["calls past the end of a lease"] += end - schedule.end

    def _stretch(self, log: array[int], shapes: list[Shape], start: int, named: list[Named], plan: str) -> None:
        for call, one in enumerate(named, start):
            shape = shapes[call]
            key = (*self._machine, shape, one.config)
            if key not in self._comes_out:
                self._comes_out[key] = self._stock(shape) if one.config == STOCK else log[call]
            if log[call] != self._comes_out[key]:
                ran, should = unpack(log[call]), unpack(self._comes_out[key])
                turn = "candidate" if one.candidate else "incumbent"
                self._fault(f"call {call} under {plan}: {turn} {one.config} comes out as {should}, but ran {ran}")
                return
            self._verdict.counts["calls on a candidate"] += one.candidate
        self._verdict.counts["calls as named"] += len(named)

    def _stock(self, shape: Shape) -> int:
        """What NCCL alone does with such a call: no plugin is loaded for it."""
        nccl = VirtualNccl(None, nccl_version(self._spec.version))
        alone = nccl.communicator(1, self._spec.ranks, fabric=self._spec.fabric)
        (launched,) = alone.run([CollectiveCall(Function(shape[0]), shape[1])])
        return pack(launched.config)


def _pairs(path: Path) -> list[tuple[int, int]]:
    """Lines of two numbers; the last may be torn."""
    lines = (line.split() for line in path.read_text().splitlines(keepends=True) if line.endswith("\n"))
    return [(int(epoch), int(start)) for epoch, start in lines]
