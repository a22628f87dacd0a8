"""The one thing a session asks of the world, and the answer: a window of paired iterations."""

from __future__ import annotations

from dataclasses import dataclass

from lagom.records import Assignment, Sample

Pairs = tuple[tuple[Sample, Sample], ...]
"""(incumbent, candidate), in the order measured."""


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
    """Pairs as measured; ``discarded`` pairs were spoilt (stragglers, irregular iterations). ``ended_early`` when the
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


def roomier(pairs: int, empty: int) -> int:
    """How many pairs to ask for after ``empty`` windows in a row came back without any: a job that is interrupted often
    leaves nothing of a short window, but something of a longer one."""
    return pairs << empty
