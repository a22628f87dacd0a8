# SPDX-License-Identifier: Apache-2.0
"""What passed by on each communicator: calls recorded and dropped, and what NCCL ran without asking a tuner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from lagom import journal
from lagom.wire.views import CommunicatorView, SlotView


class Counters:
    """Fed with every look at the slots; they may be gone when the job ends, so the largest counts are kept."""

    def __init__(self) -> None:
        self._calls: Counter[int] = Counter()  # by slot
        self._drops: Counter[int] = Counter()
        self._seen: dict[int, journal.NotAsked] = {}  # by communicator

    def look(self, slots: Iterable[SlotView], views: Mapping[int, CommunicatorView], *, profiled: bool) -> None:
        """``profiled``: the profiler plugin tells about send/recv and its like; without it their zeros mean nothing."""
        for slot in slots:
            self._calls[slot.index] = max(self._calls[slot.index], slot.calls)
            self._drops[slot.index] = max(self._drops[slot.index], slot.call_drops)
            if slot.communicator in views:
                self._note(views[slot.communicator], slot, profiled)

    def _note(self, view: CommunicatorView, slot: SlotView, profiled: bool) -> None:
        before = self._seen.get(view.index, journal.NotAsked(communicator=view.index))
        self._seen[view.index] = journal.NotAsked(
            communicator=view.index,
            name=view.name,
            calls=max(before.calls, slot.calls),
            send_recv=max(before.send_recv or 0, slot.p2p) if profiled else None,
            symmetric=max(before.symmetric or 0, slot.symmetric) if profiled else None,
            copy_engine=max(before.copy_engine or 0, slot.copy_engine) if profiled else None,
            nothing_offered=max(before.nothing_offered, slot.uncounted),
            captured=before.captured or slot.capturing,
        )

    @property
    def calls(self) -> int:
        """Calls counted, over all slots."""
        return sum(self._calls.values())

    @property
    def dropped(self) -> int:
        """Records that did not fit into a ring."""
        return sum(self._drops.values())

    def not_asked(self) -> tuple[journal.NotAsked, ...]:
        """One record a communicator."""
        return tuple(self._seen[index] for index in sorted(self._seen))
