# SPDX-License-Identifier: Apache-2.0
"""What goes into a session and what comes out: a window asked for, its pairs, the move logged for it, the outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from lagom.records import Against, Assignment, MoveVerdict, OutcomeVerdict, Sample

Pairs = tuple[tuple[Sample, Sample], ...]
"""(incumbent, candidate), in the order measured."""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A candidate from elsewhere, tried before the strategy begins. ``origin``: where it is from, for people."""

    assignment: Assignment
    origin: str


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """Measure ``candidate`` against ``incumbent``: ``pairs`` pairs in the order incumbent, candidate, candidate,
    incumbent.

    ``purpose`` is ``baseline`` (both are the incumbent: A/A), ``trial``, ``confirm`` (fresh samples before a candidate
    becomes the incumbent) or ``final`` (the end result against stock, whatever the incumbent is).
    """

    number: int
    incumbent: Assignment
    candidate: Assignment
    pairs: int
    purpose: str
    why: str


@dataclass(frozen=True, slots=True)
class WindowResult:
    """Pairs as measured; ``discarded`` pairs were spoilt (outliers, irregular iterations). ``ended_early`` when the
    driver cut a clearly bad candidate. An empty ``pairs`` is a missing window and no error. ``iterations`` ran with the
    candidate in force: more than pairs where a pair takes several, or some were dropped (0 = one a pair)."""

    pairs: Pairs
    discarded: int = 0
    ended_early: bool = False
    iterations: int = 0

    @property
    def candidate_iterations(self) -> int:
        """Iterations that ran with the candidate in force."""
        return self.iterations or len(self.pairs) + self.discarded

    def plausible(self) -> WindowResult:
        """Without pairs that no clock can have shown (a driver's wrap-around must not poison the run)."""
        good = tuple(pair for pair in self.pairs if all(_is_possible(sample) for sample in pair))
        return replace(self, pairs=good, discarded=self.discarded + len(self.pairs) - len(good))


@dataclass(frozen=True, slots=True)
class SearchMove:
    """One logged decision: everything needed to replay and to explain it.

    ``verdict`` is one of :data:`lagom.records.MoveVerdict`. ``against`` is what it compares the candidate with:
    ``stock``, the ``incumbent``, or a ``point`` that the strategy named; ``ratio`` is always over ``incumbent``. ``x``,
    ``y`` and ``z`` are medians on the clock of the
    baseline window: drift since then is divided out by the incumbent's iterations beside them.
    """

    number: int
    purpose: str
    candidate: Assignment
    verdict: MoveVerdict
    reason: str  # one sentence, with what ended it; for people: nothing is decided by it
    ratio: float | None = None  # candidate over incumbent in Z; < 1 is faster
    ratio_low: float | None = None  # 95 % interval
    ratio_high: float | None = None
    h: float | None = None  # Eq. 7, ns of compute lost per ns of communication won
    site: int | None = None  # the communication that was moved
    x: float | None = None  # candidate's medians, ns
    y: float | None = None
    z: float | None = None
    z_error: float | None = None  # one standard error of z, ns
    pairs: int = 0  # of this window, outliers included
    discarded: int = 0  # pairs that the driver had to throw away
    stragglers: int = 0  # pairs of this candidate so far that lie > 5 MAD off and are set aside
    resolvable: float | None = None  # smallest effect (as a fraction of Z) these data could resolve
    lost_iterations: float = 0.0  # regret so far: time lost against stock while searching, in stock iterations
    incumbent: Assignment | None = None  # what the candidate was measured against
    ran: Assignment | None = None  # what this window measured, where that is not the candidate but what it is held to
    samples: Pairs = ()  # the window itself: with these in the log a run can be replayed exactly
    ended_early: bool = False
    iterations: int = 0  # with the candidate in force, as the driver counted them
    arm: str = ""  # of a comparison of named arms (`lagom bench`)
    kept: bool = False  # the search goes on from it, or the job runs with it
    phase: str = ""  # the strategy's own: floor, grow, polish...
    against: Against = "incumbent"
    knob: str | None = None  # channels, chunk or threads, where one of them was moved
    before: int | None = None  # its value at the first site that moved; chunk in bytes
    after: int | None = None


@dataclass(frozen=True, slots=True)
class SearchOutcome:
    """How a tuning run ended. ``proposed`` is what the strategy itself would have used, before the final A/B.

    ``verdict``: *improved*; *stock_is_best* after a search that came to its own end; *cut_short* where a limit ended it
    and nothing found until then is proven to be faster than stock, with which the job is left; *stopped* without a
    final A/B."""

    assignment: Assignment
    verdict: OutcomeVerdict
    reason: str
    speedup: float | None  # of the final A/B, stock over tuned
    speedup_low: float | None
    speedup_high: float | None
    resolvable: float | None  # None = nothing was measured
    configs: int
    windows: int
    iterations: int
    regret_iterations: float
    payback_iterations: float | None = None  # of the tuned job, until what the search lost is made up for
    moves: tuple[SearchMove, ...] = field(default=())
    proposed: Assignment | None = None
    cut_short: bool = False  # whatever the verdict: a limit ended the search, so not everything was looked at
    expected_gain: float | None = None  # of a search cut short: what its next window promised, as a fraction of Z
    best: Assignment | None = None  # of a search that ended before its proof: the best it measured
    best_speedup: float | None = None  # its speed-up over stock, with a 95 % interval
    best_low: float | None = None
    best_high: float | None = None
    missing_pairs: int | None = None  # of the final A/B, about so many would have proven it


def roomier(pairs: int, empty: int) -> int:
    """How many pairs to ask for after ``empty`` windows in a row came back without any: a job that is interrupted often
    leaves nothing of a short window, but something of a longer one."""
    return pairs << empty


def _is_possible(sample: Sample) -> bool:
    """Z above 0, the rest not below it, nothing infinite."""
    others = [time for time in (sample.x, sample.y, *(sample.x_by_site or ())) if time is not None]
    return 0.0 < sample.z < math.inf and all(0.0 <= time < math.inf for time in others)
