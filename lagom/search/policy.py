"""How much a tuning run may spend, and how sure it has to be. The defaults are meant for live training jobs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """The budget and the levels of certainty of one tuning run.

    A pair is one iteration of the incumbent and one of the candidate. Trials only guide the search and may err;
    ``confirm`` and ``final`` windows decide what the job runs with, on fresh samples, and share ``alpha`` between them.
    """

    pairs_baseline: int = 8
    """A/A pairs before anything is tried: the noise and the reference levels of X, Y and Z."""
    pairs_first: int = 4
    """Pairs of the first window of an ordinary candidate (two rounds of A B B A)."""
    pairs_cautious: int = 2
    """The same where the candidate is expected to be slow: its lease ends after two bad iterations."""
    pairs_max: int = 16
    """A candidate undecided after this many pairs counts as a tie."""
    confirm_looks: tuple[int, ...] = (8, 16, 32)
    """Pairs in hand at each look of a confirmation; the level is divided by the number of looks."""
    final_looks: tuple[int, ...] = (10, 32, 96)
    """The same for the final A/B against stock. The last look is paid for only where a gain is in sight: at 2 % noise
    48 pairs show 1.2 %, 96 show 0.8 %."""
    epsilon: float = 0.005
    """Differences in Z below this fraction are of no interest."""
    certainty: float = 2.0
    """Standard errors that a trial's difference must exceed to count."""
    alpha: float = 0.05
    """Probability that a run which has nothing to gain confirms anything at all (family-wise)."""
    promote_gain: float = 0.05
    """A trial this much faster than the incumbent is confirmed at once, so that the job profits during the search."""
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
    confirm_looks=(8, 12),
    final_looks=(8, 14),
    promote_gain=0.05,
    max_iterations=4000,
)
"""Where only host times are known and a "sample" is the mean of a block of some 20 iterations: fewer, better pairs."""
