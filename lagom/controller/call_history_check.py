# SPDX-License-Identifier: Apache-2.0
"""Have the ranks made the same calls? SearchEvent in the log when they have not; nothing is decided by it.

Acknowledgements carry the history of calls before a plan, so ranks that have parted get no plan. Between plans nobody
compares them; but every rank publishes a rolling hash of its calls beside its counter, and two ranks at the same
counter must show the same hash. A rank stores the hash just before the counter, so a look in between sees one of them
too new: only a difference that is there again at a later call, or stands for :data:`STILL_SECONDS`, is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from lagom.wire.views import SlotView

STILL_SECONDS = 2.0


Pair = tuple[int, int]  # two slots


class CallHistoryCheck:
    """The ranks of every communicator, compared at each look."""

    def __init__(self) -> None:
        self._suspected: dict[Pair, tuple[int, float]] = {}  # the call and the time it was first seen
        self._told: set[int] = set()

    def look(self, slots: Iterable[SlotView], now: float) -> list[str]:
        """One look at all slots; a sentence for each communicator whose ranks have parted, once."""
        sentences = []
        for one, other in combinations(slots, 2):
            if one.communicator != other.communicator or one.calls != other.calls:
                continue
            if self._have_parted(one, other, now) and one.communicator not in self._told:
                self._told.add(one.communicator)
                sentences.append(
                    f"communicator {one.communicator}: its ranks have made different calls (noticed at call "
                    f"{one.calls}); nothing new can be agreed there, and NCCL itself hangs or corrupts where different "
                    "collectives meet"
                )
        return sentences

    def forget(self, communicator: int) -> None:
        """The entry is another communicator's now."""
        self._told.discard(communicator)
        self._suspected.clear()

    def _have_parted(self, one: SlotView, other: SlotView, now: float) -> bool:
        """Histories that differ differ for ever: equal ones clear the pair of all suspicion."""
        pair = (one.index, other.index)
        if one.history_hash == other.history_hash:
            self._suspected.pop(pair, None)
            return False
        call, since = self._suspected.setdefault(pair, (one.calls, now))
        return one.calls > call or now - since >= STILL_SECONDS
