# SPDX-License-Identifier: Apache-2.0
"""The contract between a strategy and the session that drives it.

The life of a strategy:

1. The session measures stock against itself and calls :meth:`Strategy.moves` once, with the measurements.
2. ``moves`` is a generator, so that an algorithm reads from top to bottom as it does in a paper. Each
   :class:`Proposal` it yields is measured against the incumbent, in as many windows as the question needs; what comes
   back is a :class:`Comparison` with the assignment that the proposal named.
3. After each comparison, before the next ``yield``, it calls :meth:`Strategy.explain` once: what it made of the answer.
4. It returns an :class:`Answer`. The session alone decides whether that is used: by a final A/B against stock.

A strategy is a pure function of the problem, its seed and options, and the comparisons it was given; no clock, no
global state. That is what makes a run replay from its log.
"""

from __future__ import annotations

import math
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from lagom.errors import LagomError
from lagom.records import Assignment, Choice, Observation, Problem
from lagom.search.measurements import Measurements, Trial
from lagom.search.space import Space

BETTER, WORSE, TIE, MISSING = "better", "worse", "tie", "missing"
JUDGED = (BETTER, WORSE, TIE, MISSING)
"""What a strategy may say of a comparison."""
NOT_WORSE = "not worse"  # a question only, never a verdict


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate worth measuring.

    ``against`` is what the strategy wants it compared with (``None`` = the incumbent); the windows still pair it with
    the incumbent, so a slow current point costs nothing more. ``cautious`` asks for a short first window: the candidate
    is expected to be slow. ``asks``: ``better`` (is Z lower?) or ``not worse`` (may resources be given back?); windows
    end as soon as that much is known. ``watch``: sites whose own time answers where Z leaves it open, because
    the iteration waits for them. ``once``: exactly one window, a fresh one even if the candidate is known. ``site``
    is the communication that moves, for the log.
    """

    candidate: Assignment
    why: str
    site: int | None = None
    against: Assignment | None = None
    cautious: bool = False
    asks: str = BETTER
    watch: tuple[int, ...] = ()
    once: bool = False


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer to a proposal. ``new`` is ``None`` if no window could be measured (verdict ``missing``).

    ``delta`` = ln(Z new / Z old), negative is faster; ``se`` its standard error. ``verdict`` weighs both.
    """

    old: Trial
    new: Trial | None
    delta: float = math.nan
    se: float = math.inf
    verdict: str = MISSING

    @property
    def better(self) -> bool:
        """Z fell by more than noise and epsilon."""
        return self.verdict == BETTER

    def x_change(self, sites: tuple[int, ...], certainty: float = 2.0) -> float:
        """ln(x_j new / x_j old) of these sites together if it stands out of the noise, else 0; X where x_j is
        unseen."""
        if self.new is None:
            return 0.0
        old, new = self.old.x_of(sites) or self.old.x, self.new.x_of(sites) or self.new.x
        if not sites or not old or not new:
            return 0.0
        change = math.log(new / old)
        return change if abs(change) > certainty * math.hypot(self.old.x_error(sites), self.new.x_error(sites)) else 0.0

    def not_worse(self, margin: float) -> bool:
        """Z surely did not rise by ``margin`` (one standard error of doubt): enough to give resources back."""
        return self.new is not None and self.delta + self.se <= margin


@dataclass(frozen=True, slots=True)
class Answer:
    """What the strategy would use, and the sentence that says why it stopped. ``cut_short``: a limit ended it, so that
    it has not looked everywhere it would have."""

    assignment: Assignment
    reason: str
    cut_short: bool = False


@dataclass(frozen=True, slots=True)
class KnobChange:
    """One knob's move at one communication: NC, C in bytes or NT, from one value to another."""

    knob: str
    before: int
    after: int

    def __str__(self) -> str:
        return f"{self.knob} {self._size(self.before)} to {self._size(self.after)}"

    def _size(self, value: int) -> str:
        return f"{value >> 10}K" if self.knob == "chunk" else str(value)


@dataclass(frozen=True, slots=True)
class MoveNote:
    """What a strategy made of one comparison; becomes part of the logged move."""

    reason: str
    verdict: str | None = None  # only if it differs from the comparison's own
    h: float | None = None
    kept: bool | None = None  # None: as the verdict says
    phase: str = ""
    change: KnobChange | None = None


Moves = Generator[Proposal, Comparison, Answer]


class Expectation(Protocol):
    """What a model expects of one assignment compared with another. ``ratio``: Z over Z, < 1 is faster; ``sigma``:
    standard deviation of its logarithm; ``hope``: expected improvement as a fraction of Z; ``surely_worse``: not worth
    a window."""

    @property
    def ratio(self) -> float: ...
    @property
    def sigma(self) -> float: ...
    @property
    def hope(self) -> float: ...
    @property
    def surely_worse(self) -> bool: ...


class Model(Protocol):
    """What a strategy may ask of a cost model; :class:`lagom.cost.FittedModel` is one."""

    def refit(self, observations: Sequence[Observation]) -> tuple[bool, str]:
        """Fit to everything measured, stock first. Whether the model may be trusted, and why or why not."""

    def ranking(self) -> Sequence[Assignment]:
        """What was measured, the fastest first, by measurement and model together."""

    def compare(self, candidates: Sequence[Assignment], base: Assignment) -> Sequence[Expectation]:
        """What is expected of each candidate compared with ``base``."""

    def optima(self, start: Assignment, count: int, seed: int) -> Iterator[Assignment]:
        """The best assignments under ``count`` parameter sets that the measurements leave plausible."""

    def optimum(self, start: Assignment) -> Assignment:
        """The best assignment under the fitted parameters."""


MakeModel = Callable[[Problem, Sequence[Sequence[Choice]]], Model]
"""Makes a model of a problem and of the alternatives of each unit of its space."""


class NonConforming(LagomError):
    """The strategy breaks the contract of :class:`lagom.Strategy`; the message says which part of it."""


class Strategy(ABC):
    """One way to search the configs of one communicator. A subclass sets :attr:`name` and implements :meth:`moves`.

    ``lagom run --strategy package.module:Class`` runs it; ``lagom.search.conformance.check_conformance(Class)`` says
    beforehand what it breaks. ``examples/own_strategy.py`` is one.
    """

    name: ClassVar[str]
    """What the log calls it."""
    uses_model: ClassVar[bool] = False
    """Whether ``__init__`` takes ``model``, a :data:`MakeModel`."""
    proves_early: ClassVar[bool] = True
    """Whether a long search confirms the best so far by Z, however small its gain. Not for a strategy that minimizes
    something else, or whose configs are all to be compared with stock."""
    checked: ClassVar[bool] = True
    """Refuse proposals that are off the ladders. Only configs given by hand may be: the plan format is their limit."""

    def __init__(self, problem: Problem, seed: int = 0, *, shared: bool = False) -> None:
        """Called by the controller once for each search of a communicator, before anything is measured. A subclass that
        has an ``__init__`` of its own takes the same arguments and calls this one first.

        Parameters
        ----------
        problem : Problem
            The sites of the communicator's iteration (sizes in bytes), NCCL's own pick at each as far as it is known,
            and what may be set there.
        seed : int
            Of ``self.random``, the only source of chance that a strategy may use.
        shared : bool
            One config for all sites instead of one a site.
        """
        self.problem = problem
        self.space = Space(problem, shared=shared)
        self.random = random.Random(seed)
        self._explanation: MoveNote | None = None
        #: What going on is expected to gain, as a fraction of Z; ``None`` where the strategy has no expectation.
        self.expected_gain: float | None = None

    @abstractmethod
    def moves(self, measurements: Measurements) -> Moves:
        """The search itself, as a generator. Called by the session once, when plain NCCL has been measured.

        Parameters
        ----------
        measurements : Measurements
            Everything measured so far; it grows with each window. To be read at any time and never written.

        Yields
        ------
        Proposal
            What to measure next. The session measures it against the incumbent in as many windows as the question
            needs, and sends back a :class:`Comparison`: ``comparison = yield Proposal(...)``.

        Returns
        -------
        Answer
            What the strategy would use. The session alone decides by a final A/B against plain NCCL whether it is.

        Raises
        ------
        lagom.LagomError
            Ends the search; the job goes on with what was confirmed. Any other exception does the same and is a fault
            of the strategy (:class:`NonConforming`).
        """

    def explain(
        self,
        reason: str,
        *,
        verdict: str | None = None,
        h: float | None = None,
        kept: bool | None = None,
        phase: str = "",
        change: KnobChange | None = None,
    ) -> None:
        """Called by the strategy, in :meth:`moves`, once after each comparison: what it made of it, for the log.

        Parameters
        ----------
        reason : str
            One sentence without a line break. It is printed and nothing is decided by it.
        verdict : str, optional
            ``better``, ``worse`` or ``tie`` where the strategy judges otherwise than the comparison did.
        h : float, optional
            The strategy's own measure of priority, for example the paper's H.
        kept : bool, optional
            Whether the search goes on from this candidate. Default: whether the verdict is ``better``.
        phase : str, optional
            The part of the search this is, in one word (``floor``, ``grow``).
        change : KnobChange, optional
            The knob that was moved, where it was one.
        """
        self._explanation = MoveNote(reason, verdict, h, kept, phase, change)

    def follow(self, other: Strategy, measurements: Measurements) -> Moves:
        """Called by a strategy that lets another one take over: ``answer = yield from self.follow(other,
        measurements)``. What the other one explains is explained."""
        course = other.moves(measurements)
        comparison: Comparison | None = None
        while True:
            try:
                proposal = course.send(comparison)  # type: ignore[arg-type]  # None starts a generator
            except StopIteration as stopped:
                answer: Answer = stopped.value
                return answer
            finally:
                # What was explained last stays until it is taken: this one may begin when that is not written yet.
                self._explanation = other.take_explanation() or self._explanation
                self.expected_gain = other.expected_gain
            comparison = yield proposal

    def take_explanation(self) -> MoveNote | None:
        """Called by the session after each comparison, to write the move: what :meth:`explain` was given since the last
        call, or None. A strategy neither calls nor overrides it."""
        taken, self._explanation = self._explanation, None
        return taken


def compare(new: Trial, old: Trial, epsilon: float, certainty: float) -> Comparison:
    """Better or worse only beyond both ``epsilon`` and ``certainty`` standard errors."""
    delta = math.log(new.z / old.z)
    se = math.hypot(new.z_se, old.z_se)
    threshold = max(epsilon, certainty * se)
    verdict = BETTER if delta < -threshold else WORSE if delta > threshold else TIE
    return Comparison(old, new, delta, se, verdict)


def percent(delta: float, than: str = "") -> str:
    """A log ratio in words: ``3.1 % faster``, ``12 % slower than stock``, ``equal to stock``."""
    if math.isnan(delta):
        return "not measured"
    change = math.expm1(abs(delta)) if delta > 0 else -math.expm1(-abs(delta))
    if change < 5e-4:
        return f"equal to {than}" if than else "equal"
    text = f"{100 * change:.{0 if change >= 0.1 else 1}f} % {'slower' if delta > 0 else 'faster'}"
    return f"{text} than {than}" if than else text
