# SPDX-License-Identifier: Apache-2.0
"""Named arms against stock, without any search: what ``lagom bench`` hands to the controller.

A cycle measures every arm once, each beside stock in one short window (stock, arm, arm, stock), in an order that is
drawn anew for each cycle: what drifts in the machine falls on all arms alike. Stock is one of the arms: the spread of
its ratios is what every other ratio is held to. Nothing is promoted and nothing is proven; all pairs go into the log.

Drives like :class:`~lagom.search.session.TuningSession`, so that the controller need not know which of the two it has.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from lagom.records import Assignment, Sample
from lagom.search import statistics
from lagom.search.moves import Pairs, SearchMove, SearchOutcome, WindowRequest, WindowResult
from lagom.search.time_lost import TimeLost

#: Pairs of one window: one whole round of A B B A.
PAIRS = 2
#: An arm this much slower than stock after ``SLOW_CYCLES`` cycles is not run again: the job pays for every iteration,
#: and six pairs are the fewest that give a 95 % interval.
SLOW_ABOVE, SLOW_CYCLES = 0.25, 3
#: Windows in a row that came back empty before the comparison is given up.
MISSING_LIMIT = 6


@dataclass(frozen=True, slots=True)
class Arm:
    """One setting of all sites, by name. An arm that is stock is measured like any other: it is the A/A arm. ``sweep``
    names the arms of which only the best is wanted."""

    name: str
    assignment: Assignment
    sweep: str = ""


@dataclass(slots=True)
class _ArmSamples:
    """What is known about one arm: all its pairs, and ln(Z of the arm / Z of stock) of each."""

    pairs: list[tuple[Sample, Sample]] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)

    def add(self, pairs: Pairs) -> None:
        self.pairs += pairs
        self.logs += [math.log(candidate.z / incumbent.z) for incumbent, candidate in pairs]

    @property
    def is_known(self) -> bool:
        return len(self.logs) >= SLOW_CYCLES * PAIRS

    @property
    def is_slow(self) -> bool:
        return self.is_known and float(np.median(self.logs)) > math.log1p(SLOW_ABOVE)

    @property
    def interval(self) -> tuple[float, float]:
        """Of ln(Z of the arm / Z of stock), 95 %."""
        return statistics.shift_interval(np.asarray(self.logs))


class ComparisonSession:
    """Measures ``arms`` against stock in ``cycles`` shuffled cycles, then is over."""

    def __init__(self, arms: Sequence[Arm], sites: int, *, cycles: int, seed: int = 0) -> None:
        self.outcome: SearchOutcome | None = None
        self.incumbent = Assignment.stock(sites)
        self._moves: list[SearchMove] = []
        self._arms = {arm.name: arm for arm in arms}
        self._kept = {arm.name: _ArmSamples() for arm in arms}
        self._iterations, self._missing = 0, 0
        self._noise, self._time_lost = statistics.Noise(), TimeLost()
        self._slow, self._beaten = set[str](), set[str]()  # not measured any further, and why
        self._order = self._cycles(cycles, random.Random(seed))
        self._arm: Arm | None = None
        self._wanted: WindowRequest | None = None
        self._why = ""
        self._next_window()

    @property
    def moves(self) -> tuple[SearchMove, ...]:
        """One move a window so far."""
        return tuple(self._moves)

    def request(self) -> WindowRequest | None:
        """The window wanted next; ``None`` = the comparison is over."""
        return self._wanted

    def report(self, result: WindowResult) -> SearchMove:
        """Hand in the wanted window. Raises RuntimeError if none was wanted."""
        if self._wanted is None or self._arm is None:
            raise RuntimeError("no window is wanted: the comparison is over (see its outcome)")
        kept = self._kept[self._arm.name]
        kept.add(result.pairs)
        self._missing = 0 if result.pairs else self._missing + 1
        self._count(self._wanted, result)
        move = self._move(self._arm, kept, self._wanted, result)
        self._moves.append(move)
        if self._missing >= MISSING_LIMIT:
            self.stop(f"{MISSING_LIMIT} windows in a row could not be measured")
        elif self.outcome is None:
            self._next_window()
        return move

    def should_cut(self, pairs: Sequence[tuple[Sample, Sample]]) -> bool:
        """Never: windows are short, and a slow arm is left out of later cycles instead."""
        return False

    def wrap_up(self, reason: str) -> None:
        """No more windows after the one under way; the pairs measured so far count."""
        self._order = iter(())
        self._why = reason

    def set_time_left(self, pairs: float, reason: str) -> None:
        """Nothing is kept back: a comparison has no final A/B."""

    def stop(self, reason: str) -> None:
        """End at once. No effect on a comparison that is over."""
        if self.outcome is None:
            self._finish(reason)

    # -- which arm is next

    def _cycles(self, cycles: int, draw: random.Random) -> Iterator[Arm]:
        for _ in range(cycles):
            self._leave_out()
            names = [name for name in self._arms if name not in self._slow | self._beaten]
            draw.shuffle(names)
            yield from (self._arms[name] for name in names)
        self._why = f"{cycles} cycles of {len(self._arms)} arms were measured"

    def _leave_out(self) -> None:
        """Before a cycle: what need not be measured any further. It does not come back."""
        self._slow.update(name for name, kept in self._kept.items() if kept.is_slow)
        for sweep in {arm.sweep for arm in self._arms.values() if arm.sweep}:
            self._beaten.update(self._surely_behind(sweep))

    def _surely_behind(self, sweep: str) -> list[str]:
        """The arms of a sweep whose interval lies beyond that of another one still measured: nobody will ask for their
        last digit."""
        known = {
            name: self._kept[name].interval
            for name, arm in self._arms.items()
            if arm.sweep == sweep and name not in self._slow | self._beaten and self._kept[name].is_known
        }
        best = min((high for _, high in known.values()), default=math.inf)
        return [name for name, (low, _) in known.items() if low > best]

    def _next_window(self) -> None:
        self._arm = next(self._order, None)
        if self._arm is None:
            self._finish(self._why)
            return
        purpose = "baseline" if self._arm.assignment.is_stock else "trial"
        number, why = len(self._moves) + 1, f"arm {self._arm.name}"
        self._wanted = WindowRequest(number, self.incumbent, self._arm.assignment, PAIRS, purpose, why)

    def _finish(self, reason: str) -> None:
        self._wanted = None
        for names, why in (
            (self._slow, f"left out after {SLOW_CYCLES} cycles, being over {SLOW_ABOVE:.0%} slower"),
            (self._beaten, "not measured any further once another of their sweep was surely faster"),
        ):
            reason += f"; {why}: {', '.join(sorted(names))}" if names else ""
        self.outcome = SearchOutcome(
            assignment=self.incumbent,
            verdict="compared",
            reason=reason,
            speedup=None,
            speedup_low=None,
            speedup_high=None,
            resolvable=None,
            configs=sum(bool(kept.pairs) for kept in self._kept.values()),
            windows=len(self._moves),
            iterations=self._iterations,
            regret_iterations=self._time_lost.lost,
            moves=self.moves,
        )

    # -- what a window meant

    def _count(self, request: WindowRequest, result: WindowResult) -> None:
        ran = result.candidate_iterations
        self._iterations += 2 * ran
        if result.pairs:
            self._time_lost.add(request.candidate, result.pairs, ran, sigma=self._noise.sigma)
            self._noise.add([math.log(candidate.z / incumbent.z) for incumbent, candidate in result.pairs])

    def _move(self, arm: Arm, kept: _ArmSamples, request: WindowRequest, result: WindowResult) -> SearchMove:
        ratio = low = high = None
        if kept.logs:
            logs = np.asarray(kept.logs)
            ends = statistics.shift_interval(logs)
            ratio = math.exp(statistics.hodges_lehmann(logs))
            low, high = math.exp(ends[0]), math.exp(min(ends[1], 700.0))
        candidates = [candidate for _, candidate in kept.pairs]
        return SearchMove(
            number=request.number,
            purpose=request.purpose,
            candidate=arm.assignment,
            verdict="compared" if result.pairs else "missing",
            reason=request.why if result.pairs else f"{request.why}: the window came back empty",
            ratio=ratio,
            ratio_low=low,
            ratio_high=high,
            x=statistics.median_of_known([sample.x for sample in candidates]),
            y=statistics.median_of_known([sample.y for sample in candidates]),
            z=statistics.median_of_known([sample.z for sample in candidates]),
            pairs=len(result.pairs),
            discarded=result.discarded,
            lost_iterations=self._time_lost.lost,
            incumbent=request.incumbent,
            against="stock",
            samples=result.pairs,
            iterations=result.iterations,
            arm=arm.name,
        )
