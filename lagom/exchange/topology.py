"""The size of a communicator, and what ``bytes per rank`` means on it."""

from __future__ import annotations

from dataclasses import dataclass

from lagom.exchange.sizes import Interval
from lagom.records import Function
from lagom.wire.plan import NO_LIMIT

#: NCCL is asked with nRanks x count x size of an element for these, so their bytes are multiples of the ranks; for the
#: others with count x size (facts: NCCL's enqueue.cc, nBytes of getCollInfo = the larger of its two buffers).
SCALED = (Function.ALL_GATHER, Function.REDUCE_SCATTER)


@dataclass(frozen=True, slots=True)
class Topology:
    """``ranks`` of a communicator over ``nodes``."""

    ranks: int
    nodes: int

    @property
    def local_ranks(self) -> int:
        """Ranks a node as NCCLX counts them: rounded down."""
        return self.ranks // self.nodes

    @property
    def divisor(self) -> int:
        """What NCCLX divides a call's bytes by: nodes x ranks a node, which is fewer than the ranks if nodes differ."""
        return max(1, self.nodes * self.local_ranks)

    def total(self, per_rank: Interval) -> Interval:
        """The calls' bytes whose whole part a rank lies in ``per_rank``."""
        last = per_rank.largest
        largest = NO_LIMIT if last >= NO_LIMIT // self.divisor else last * self.divisor + self.divisor - 1
        return Interval(max(0, per_rank.smallest) * self.divisor, largest)

    def per_rank(self, function: Function, total: Interval) -> Interval | None:
        """The bytes a rank that say the same as ``total`` for every call there can be; ``None`` if none do."""
        if function in SCALED and self.divisor == self.ranks:
            total = self._reachable(total)
        low = -(-total.smallest // self.divisor)
        high = NO_LIMIT if total.largest == NO_LIMIT else (total.largest + 1) // self.divisor - 1
        found = Interval(low, high)
        return None if found.is_empty or self.total(found) != total else found

    def _reachable(self, total: Interval) -> Interval:
        """The same calls, by bounds that lie on whole ranks: sizes between two multiples never occur."""
        low = -(-total.smallest // self.ranks) * self.ranks
        if total.largest == NO_LIMIT:
            return Interval(low, NO_LIMIT)
        return Interval(low, total.largest // self.ranks * self.ranks + self.ranks - 1)

    def __str__(self) -> str:
        return f"{self.ranks} ranks on {self.nodes} node{'s' if self.nodes > 1 else ''}"
