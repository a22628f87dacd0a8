# SPDX-License-Identifier: Apache-2.0
"""How much a tuning run may spend, when a trial's question is answered, and which assignment is measured next.

A question is "is the new one faster than the old one?" or "is it at least not slower?", both known only beside the
incumbent. It is answered when the difference stands out of the noise, when it is known to be too small to care, when it
leans the wrong way (most candidates are no better than what there is; finding that out should be cheap), or when the
pairs are used up. How small is too small depends on where we are: far below the incumbent every iteration is expensive
and only large steps matter.
"""

from __future__ import annotations

from dataclasses import dataclass

from lagom.records import Assignment
from lagom.search.base import NOT_WORSE, TIE, Comparison, Proposal, compare
from lagom.search.measurements import Measurements, Trial

COARSENING = 4.0  # how fast the wanted resolution grows with the distance from the incumbent
LEANING = 0.5  # standard errors to the wrong side of nothing at which a question is dropped


@dataclass(frozen=True, slots=True)
class Policy:
    """The budget and the levels of certainty of one tuning run.

    A pair is one iteration of the incumbent and one of the candidate. Trials only guide the search and may err;
    ``confirm`` and ``final`` windows decide what the job runs with, on fresh samples, and share ``alpha`` between them.
    """

    pairs_baseline: int = 4
    """A/A pairs before anything is tried: the noise and the reference levels of X, Y and Z."""
    pairs_first: int = 4
    """Pairs of the first window of an ordinary candidate (two rounds of A B B A)."""
    pairs_cautious: int = 2
    """The same where the candidate is expected to be slow: its lease ends after two bad iterations."""
    pairs_max: int = 16
    """A candidate undecided after this many pairs counts as a tie."""
    looks: tuple[int, ...] = (10, 16, 32, 96)
    """Pairs in hand at each look of a confirmation, and of the final A/B against stock; the level is divided by the
    number of looks. Those after the first are paid for only where a gain is in sight that the last one would show: at
    2 % noise 48 pairs show 1.2 %, 96 show 0.8 %."""
    epsilon: float = 0.005
    """Differences in Z below this fraction are of no interest."""
    certainty: float = 2.0
    """Standard errors that a trial's difference must exceed to count."""
    alpha: float = 0.05
    """Probability that a run which has nothing to gain confirms anything at all (family-wise)."""
    promote_gain: float = 0.05
    """A trial this much faster than the incumbent is confirmed at once, so that the job profits during the search."""
    patience: float = 4.0
    """With nothing proven, the best so far is confirmed, however small its gain, once the search has taken this many
    times the pairs that most likely prove it."""
    cut_above: float = 0.10
    """A candidate surely slower than the incumbent by this fraction is cut in mid-window."""
    retries: int = 2
    """Empty windows in a row before a move is given up."""
    missing_limit: int = 4
    """Moves given up in a row before the run ends: nothing can be measured here."""
    max_configs: int | None = None
    """Different assignments tried; ``None`` = 24 and 16 more a site."""
    max_iterations: int | None = 2400
    """Iterations spent searching (the final A/B comes on top); ``None`` = no limit."""

    def configs_for(self, sites: int) -> int:
        """The limit on different assignments for a problem of ``sites`` sites."""
        return self.max_configs if self.max_configs is not None else 24 + 16 * sites


LIVE = Policy()
"""The defaults: for training jobs that must not be disturbed much, where each iteration's time is seen."""

BLOCKS = Policy(
    pairs_baseline=4,
    pairs_first=2,
    pairs_max=6,
    looks=(8, 14),
    promote_gain=0.05,
    max_iterations=4000,
)
"""Where only host times are known and a "sample" is the mean of a block of some 20 iterations: fewer, better pairs."""


class StoppingRule:
    """Pure decisions on what the measurements holds."""

    def __init__(self, measurements: Measurements, policy: Policy) -> None:
        self._measurements = measurements
        self._policy = policy

    def comparison(self, new: Assignment, old: Assignment) -> Comparison:
        """The answer as it stands. ``old`` must have been measured."""
        fresh, known = self._measurements.trial(new), self._measurements.known(old)
        if fresh is None:
            return Comparison(known, None)
        return compare(fresh, known, self._policy.epsilon, self._policy.certainty)

    def undecided(self, proposal: Proposal, old: Assignment) -> bool:
        """True while more pairs could still change the answer."""
        new = proposal.candidate
        fresh = self._measurements.trial(new)
        if fresh is None:
            return True
        if new == old:
            return False
        answer = self.comparison(new, old)
        if answer.verdict != TIE or self._policy.certainty * answer.se <= self._resolution(answer):
            return False
        if fresh.pairs >= self._policy.pairs_first and self._solid(answer.old) and self._leaning(answer, proposal):
            return False
        return self._may_repeat(fresh) or self._may_repeat(answer.old)

    def _leaning(self, answer: Comparison, proposal: Proposal) -> bool:
        """Likely enough settled: the watched communication tells, or Z leans to "no" (for "not worse" either way)."""
        if told := answer.x_change(proposal.watch, self._policy.certainty):
            return told > 0.0 or answer.delta < LEANING * answer.se
        if proposal.asks == NOT_WORSE:
            return answer.not_worse(self._policy.epsilon) or answer.delta > LEANING * answer.se
        return answer.delta > -LEANING * answer.se

    def less_sure(self, new: Assignment, old: Assignment) -> Assignment:
        """Which one to measure: the new one first, then whichever is known less well."""
        fresh, known = self._measurements.trial(new), self._measurements.known(old)
        if fresh is None or not self._may_repeat(known):
            return new
        if not self._may_repeat(fresh) or (fresh.pairs >= self._policy.pairs_first and not self._solid(known)):
            return old
        return new if fresh.z_se >= known.z_se else old

    def pairs_for(self, target: Assignment, old: Assignment, cautious: bool) -> int:
        """A short first window where the candidate is likely slow; later windows double what there is."""
        known = self._measurements.trial(target)
        if known is not None:
            return max(2, min(known.pairs, self._policy.pairs_max - known.pairs))
        best = self._measurements.known(self._measurements.incumbent).z
        slow = self._measurements.known(old).z > (1.0 + self._policy.cut_above) * best
        return self._policy.pairs_cautious if slow or cautious else self._policy.pairs_first

    def _resolution(self, answer: Comparison) -> float:
        """The difference worth resolving, as a fraction of Z."""
        nearest = min(trial.z for trial in (answer.old, answer.new) if trial is not None)
        excess = max(0.0, nearest / self._measurements.known(self._measurements.incumbent).z - 1.0)
        return self._policy.epsilon * (1.0 + COARSENING * excess)

    def _solid(self, trial: Trial) -> bool:
        """Known well enough to hold others against it. What was kept after a few lucky pairs looks better than it is,
        and everything compared with it looks worse; where iterations are cheap that is worth a second window."""
        slow = trial.z > (1.0 + self._policy.cut_above) * self._measurements.known(self._measurements.incumbent).z
        return slow or not self._may_repeat(trial) or trial.pairs >= 2 * self._policy.pairs_first

    def _may_repeat(self, trial: Trial) -> bool:
        """Stock and the incumbent are the yardsticks; everything else may be measured up to the limit."""
        fixed = trial.assignment in (self._measurements.incumbent, self._measurements.stock)
        return not fixed and trial.pairs < self._policy.pairs_max
