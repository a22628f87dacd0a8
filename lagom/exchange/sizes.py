"""Intervals of message sizes, both ends included."""

from __future__ import annotations

from dataclasses import dataclass

from lagom.wire.plan import NO_LIMIT


@dataclass(frozen=True, slots=True)
class Interval:
    """``smallest`` to ``largest``; ``largest`` is NO_LIMIT where there is none. Empty if they cross."""

    smallest: int = 0
    largest: int = NO_LIMIT

    @property
    def is_empty(self) -> bool:
        """Whether nothing lies in it."""
        return self.smallest > self.largest

    def __contains__(self, value: int) -> bool:
        return self.smallest <= value <= self.largest

    def meets(self, other: Interval) -> bool:
        """Whether they have a value in common."""
        return max(self.smallest, other.smallest) <= min(self.largest, other.largest)

    def without(self, other: Interval) -> list[Interval]:
        """What is left of this one: none, one or two intervals."""
        if not self.meets(other):
            return [self]
        below = Interval(self.smallest, min(self.largest, other.smallest - 1))
        above = Interval(max(self.smallest, other.largest + 1), self.largest)
        return [part for part in (below, above) if not part.is_empty]
