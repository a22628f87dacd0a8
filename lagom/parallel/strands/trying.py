# SPDX-License-Identifier: Apache-2.0
"""Which schedule the steps of one kind take: each is tried in real steps of the job, and sequential stays unless
another one is clearly faster, in the rounds that picked it and once more in rounds of its own. All ranks decide by the
same numbers. What is tried gives the same gradients, so nothing is lost with these steps."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lagom.parallel.measuring import best_of
from lagom.parallel.said_once import log, say_once
from lagom.parallel.strands.orders import (
    Kinds,
    Order,
    abreast,
    forward_beside_backward,
    one_after_the_other,
    peak_bytes,
)

SEQUENTIAL, MOVED, TURNS, ABREAST, TWO_STREAMS, TURNS_COPIES, ABREAST_COPIES = SCHEDULES = (
    "sequential",
    "weights_moved",
    "turns",
    "turns_abreast",
    "two_streams",
    "turns_copies",
    "turns_abreast_copies",
)
#: In the order of another schedule, with AllGather and ReduceScatter by copy engines.
BY_COPIES = {TURNS_COPIES: TURNS, ABREAST_COPIES: ABREAST}
#: Steps of each schedule that are measured, after one that is not; the same once more for what was picked.
TRIED_ROUNDS, CONFIRMED_ROUNDS = 4, 4


@dataclass(frozen=True, slots=True)
class StrandChoice:
    """What the steps of one kind take. Equal on all ranks. ``micro_batches``: how many; ``times_ns``: median
    nanoseconds a step by schedule; ``activation_bytes``: the most that is kept for the backward at once, by schedule,
    from what each piece of this rank keeps; ``refusals``: why a schedule was not tried."""

    micro_batches: int
    trains: bool
    chosen: str
    times_ns: dict[str, float] = field(default_factory=dict)
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
        refused = "; ".join(f"no {name}: {reason}" for name, reason in self.refusals.items())
        what = "training" if self.trains else "forward"
        more = "".join(f" ({part})" for part in (times, memory, refused) if part)
        return f"strands, {what} of {self.micro_batches} micro-batches: {self.chosen}{gain}{more}"


@dataclass(frozen=True, slots=True)
class TrialStep:
    """``is_timed``: whether it is on the way to a choice."""

    schedule: str
    order: Order
    is_timed: bool = False


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
        reason = (
            "it needs a collective, and but for weights_moved two micro-batches, and where it is not abreast a backward"
        )
        self._refusals = {name: reason for name in SCHEDULES if name not in self._orders}
        if not has_streams and named != TWO_STREAMS:
            self._refusals.setdefault(TWO_STREAMS, "the device has no streams")
        if no_copies:
            self._refusals |= dict.fromkeys(BY_COPIES, no_copies)
        least = self._bytes[SEQUENTIAL]
        for name, most in self._bytes.items():
            if most - least > room:
                self._refusals[name] = f"its activations need {(most - least) / 2**20:.0f} MiB more than is free"
        self._times: dict[str, list[float]] = {}
        self._steps = self._named(named) if named else self._trial()
        self._now = next(self._steps)
        self.choice: StrandChoice | None = None
        self._settle()

    @property
    def now(self) -> TrialStep:
        """What the next step does."""
        return self._now

    def add(self, time_ns: float) -> None:
        """What a timed step took on the slowest rank."""
        self._times.setdefault(self._now.schedule, []).append(time_ns)
        self._now = next(self._steps)
        self._settle()

    def _settle(self) -> None:
        if not self._now.is_timed and self.choice is None:
            medians = {name: statistics.median(took) for name, took in self._times.items()}
            about = self._count, self._trains, self._now.schedule
            self.choice = StrandChoice(*about, medians, self._bytes, self._refusals)
            log.info("%s", self.choice)

    def _named(self, named: str) -> Iterator[TrialStep]:
        chosen = named if named in self._orders and named not in self._refusals else SEQUENTIAL
        if chosen != named and self._trains:
            reason = self._refusals[named]
            say_once(
                f"The schedule {named} was asked for and cannot be used ({reason}), so steps are {chosen}.", reason
            )
        while True:
            yield TrialStep(chosen, self._orders[chosen])

    def _trial(self) -> Iterator[TrialStep]:
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
                yield TrialStep(name, self._orders[name], True)
            if not number:
                self._times.clear()


def _orders(count: int, kinds: Kinds, trains: bool) -> dict[str, Order]:
    """By schedule."""
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
