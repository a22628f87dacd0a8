# SPDX-License-Identifier: Apache-2.0
"""Which schedule the steps of one kind take: each is tried in real steps of the job, and sequential stays unless
another one is clearly faster, in the rounds that picked it and once more in rounds of its own. All ranks decide by the
same numbers. What is tried gives the same gradients, so nothing is lost with these steps."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lagom.parallel.measuring import best_of
from lagom.parallel.said_once import log
from lagom.parallel.strands.orders import (
    WEIGHTS,
    Kinds,
    Order,
    StrandOperator,
    abreast,
    backward_of,
    forward_beside_backward,
    forward_of,
    one_after_the_other,
    peak_bytes,
    starts_collective,
)
from lagom.parallel.strands.pairing import PairingPlan, TimedOperator, pair

SEQUENTIAL, MOVED, TURNS, ABREAST, TWO_STREAMS, PLANNED, TURNS_COPIES, ABREAST_COPIES = SCHEDULES = (
    "sequential",
    "weights_moved",
    "turns",
    "turns_abreast",
    "two_streams",
    "planned",
    "turns_copies",
    "turns_abreast_copies",
)
#: In the order of another schedule, with AllGather and ReduceScatter by copy engines.
BY_COPIES = {TURNS_COPIES: TURNS, ABREAST_COPIES: ABREAST}
#: Steps of each schedule that are measured, after one that is not; the same once more for what was picked.
TRIED_ROUNDS, CONFIRMED_ROUNDS = 4, 4
#: Pairs of positions above which nothing is planned: one second of the host.
MOST_PLANNED = 40_000
#: Nanoseconds by (phase, piece).
Times = dict[tuple[str, int], float]


@dataclass(frozen=True, slots=True)
class StrandChoice:
    """What the steps of one kind take. Equal on all ranks. ``micro_batches``: how many; ``times_ns``: median
    nanoseconds a step by schedule; ``predicted_ns``: of ``planned``, as the plan has it; ``activation_bytes``: the most
    that is kept for the backward at once, by schedule, from what each piece of this rank keeps; ``refusals``: why a
    schedule was not tried."""

    micro_batches: int
    trains: bool
    chosen: str
    times_ns: dict[str, float] = field(default_factory=dict)
    predicted_ns: float | None = None
    activation_bytes: dict[str, int] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    @property
    def gain(self) -> float | None:
        """2.0 = half of sequential's time; None = not measured."""
        took = self.times_ns
        return took[SEQUENTIAL] / took[self.chosen] if took.keys() >= {SEQUENTIAL, self.chosen} else None

    def __str__(self) -> str:
        """The line of the log."""
        gain = "" if self.gain is None else f", {self.gain:.3f} times as fast as sequential"
        times = ", ".join(f"{name} {took / 1e6:.3f} ms" for name, took in self.times_ns.items())
        before, after = (self.activation_bytes.get(name, 0) / 2**20 for name in (SEQUENTIAL, self.chosen))
        memory = f"activations {before:.1f} MiB sequential, {after:.1f} MiB {self.chosen}"
        predicted = "" if self.predicted_ns is None else f"planned predicted {self.predicted_ns / 1e6:.3f} ms"
        refused = "; ".join(f"no {name}: {reason}" for name, reason in self.refusals.items())
        what = "training" if self.trains else "forward"
        more = "".join(f" ({part})" for part in (times, predicted, memory, refused) if part)
        return f"strands, {what} of {self.micro_batches} micro-batches: {self.chosen}{gain}{more}"


@dataclass(frozen=True, slots=True)
class TrialStep:
    """``purpose``: ``use``, ``time`` or, for the plan, ``alone`` and ``pairs``."""

    schedule: str
    order: Order
    purpose: str = "use"


class ScheduleTrial:
    """On the way to a choice. ``saved``: as :func:`peak_bytes` takes it; ``room``: bytes that activations can have
    beside those of sequential, the least of all ranks; ``named``: what the user wants; ``no_copies``: why copy engines
    cannot move what is communicated; empty: they can."""

    def __init__(
        self,
        kinds: Kinds,
        count: int,
        trains: bool,
        saved: Mapping[tuple[int, int], int],
        room: float,
        named: str | None,
        seed: int,
        has_streams: bool,
        no_copies: str,
    ) -> None:
        self._kinds, self._count, self._trains = kinds, count, trains
        self._random = random.Random(seed)
        self._orders = _orders(count, kinds, trains)
        self._bytes = {name: peak_bytes(order, saved) for name, order in self._orders.items()}
        made = {*self._orders, *({PLANNED} if TURNS in self._orders else ())}
        reason = (
            "it needs a collective, and but for weights_moved two micro-batches, and where it is not abreast a backward"
        )
        self._refusals = {name: reason for name in SCHEDULES if name not in made}
        if not has_streams and named != TWO_STREAMS:
            self._refusals.setdefault(TWO_STREAMS, "the device has no streams")
        if no_copies:
            self._refusals |= dict.fromkeys(BY_COPIES, no_copies)
        least = self._bytes[SEQUENTIAL]
        for name, most in self._bytes.items():
            if most - least > room:
                self._refusals[name] = f"its activations need {(most - least) / 2**20:.0f} MiB more than is free"
        self._plan: PairingPlan | None = None
        self._predicted: float | None = None
        self._times: dict[str, list[float]] = {}
        self.alone: Times = {}
        self._steps = self._named(named) if named else self._trial()
        self._now = next(self._steps)
        self.choice: StrandChoice | None = None
        self._settle()

    @property
    def now(self) -> TrialStep:
        """What the next step does."""
        return self._now

    def add(self, time_ns: float, operators: Times) -> None:
        """What the step took on the slowest rank, and for ``alone`` and ``pairs`` its operators: the same on all."""
        if self._now.purpose == "time":
            self._times.setdefault(self._now.schedule, []).append(time_ns)
        elif self._now.purpose == "alone":
            self.alone = operators
        elif self._now.purpose == "pairs":
            self._make_plan(operators)
        if self._now.purpose != "use":
            self._now = next(self._steps)
            self._settle()

    def _settle(self) -> None:
        if self._now.purpose == "use" and self.choice is None:
            medians = {name: statistics.median(took) for name, took in self._times.items()}
            about = self._predicted, self._bytes, self._refusals
            self.choice = StrandChoice(self._count, self._trains, self._now.schedule, medians, *about)
            log.info("%s", self.choice)

    def _named(self, named: str) -> Iterator[TrialStep]:
        if named == PLANNED and PLANNED not in self._refusals:
            yield from self._planning()
        chosen = named if named in self._orders and named not in self._refusals else SEQUENTIAL
        while True:
            yield TrialStep(chosen, self._orders[chosen])

    def _trial(self) -> Iterator[TrialStep]:
        if PLANNED not in self._refusals:
            yield from self._planning()
        names = [name for name in self._orders if name == SEQUENTIAL or name not in self._refusals]
        best = SEQUENTIAL
        if len(names) > 1:
            yield from self._rounds(names, TRIED_ROUNDS)
            best = best_of(self._times, SEQUENTIAL)
        if best != SEQUENTIAL:
            tried, self._times = self._times, {}
            yield from self._rounds([SEQUENTIAL, best], CONFIRMED_ROUNDS)
            best = best_of(self._times, SEQUENTIAL)
            self._times = {**tried, **self._times}
        while True:
            yield TrialStep(best, self._orders[best])

    def _rounds(self, names: Sequence[str], count: int) -> Iterator[TrialStep]:
        """The first of each may load kernels and counts nothing."""
        for number in range(count + 1):
            for name in self._random.sample(names, len(names)):
                yield TrialStep(name, self._orders[name], "time")
            if not number:
                self._times.clear()

    def _planning(self) -> Iterator[TrialStep]:
        if len(self._kinds) * len(backward_of(0, self._kinds)) > MOST_PLANNED:
            self._refusals[PLANNED] = f"{len(self._kinds)} pieces are too many to plan for in a second"
            return
        yield TrialStep(SEQUENTIAL, one_after_the_other(self._count, self._kinds, True), "alone")
        yield TrialStep(TURNS, self._orders[TURNS], "pairs")

    def _make_plan(self, hidden: Times) -> None:
        """``hidden``: by collective, the share that overlap hides."""
        usual = statistics.median(hidden.values()) if hidden else 0.0

        def timed(order: Order) -> list[TimedOperator]:
            return [
                TimedOperator(
                    self.alone[one[1:]],
                    starts_collective(one, self._kinds),
                    one.phase == WEIGHTS,
                    hidden.get(one[1:], usual),
                )
                for one in order
            ]

        back, ahead = timed(backward_of(0, self._kinds)), timed(forward_of(0, self._kinds))
        plan = pair(back, ahead)
        self._orders[PLANNED] = forward_beside_backward(self._count, self._kinds, plan.steps)
        self._bytes[PLANNED] = self._bytes[TURNS]
        alone = sum(one.time for one in [*back, *ahead])
        self._predicted = (self._count - 1) * plan.makespan + alone


def _orders(count: int, kinds: Kinds, trains: bool) -> dict[str, Order]:
    """By schedule; the plan comes later."""
    found = {SEQUENTIAL: one_after_the_other(count, kinds, False, trains)}
    if not any(kinds):
        return found
    if trains:
        found[MOVED] = one_after_the_other(count, kinds, True)
    if count > 1:
        found[ABREAST] = found[TWO_STREAMS] = abreast(count, kinds, trains)
        if trains:
            found[TURNS] = forward_beside_backward(count, kinds)
    return found | {name: found[other] for name, other in BY_COPIES.items() if other in found}


class OperatorClock:
    """Times the operators of a step, which then wait for the device each. ``alone``: None, or the time of each alone:
    then collectives are timed with what runs beside them, and found is the share that is hidden."""

    def __init__(self, kinds: Kinds, alone: Times | None) -> None:
        self._kinds, self._alone = kinds, alone
        self._found: dict[tuple[str, int], list[float]] = {}
        self._group: list[StrandOperator] = []
        self._settle: Callable[[], None] = lambda: None
        self._began = time.perf_counter_ns()

    def watch(self, settle: Callable[[], None]) -> None:
        """Begin. ``settle`` waits for every collective and for the device."""
        self._settle = settle
        self._began = time.perf_counter_ns()

    def after(self, operator: StrandOperator) -> None:
        """Called when an operator was launched."""
        self._group.append(operator)
        if self._alone is None:
            self._found.setdefault(operator[1:], []).append(self._lap())

    def before(self, _: object) -> None:
        """Called before a collective is started: what runs beside the last one must be over."""
        took = self._lap()
        group, self._group = self._group, []
        if self._alone is None or not group or not starts_collective(group[0], self._kinds):
            return
        head, *others = group
        compute, own = sum(self._alone[one[1:]] for one in others), self._alone[head[1:]]
        free = all(one.micro_batch != head.micro_batch or one.phase == WEIGHTS for one in others)
        if free and compute > 0 and own > 0:
            share = (own + compute - took) / min(own, compute)
            self._found.setdefault(head[1:], []).append(min(1.0, max(0.0, share)))

    def times(self) -> Times:
        """The median of each."""
        return {key: statistics.median(took) for key, took in self._found.items()}

    def _lap(self) -> int:
        self._settle()
        ended = time.perf_counter_ns()
        took, self._began = ended - self._began, ended
        return took
