# SPDX-License-Identifier: Apache-2.0
"""Who gets the records that the ranks of one communicator have written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

#: (slot, call records of that rank), (process, kernel spans of that process).
OnCalls = Callable[[int, NDArray[Any]], None]
OnSpans = Callable[[int, NDArray[Any]], None]


class RecordFeed:
    """Hands what the ranks of one communicator recorded to those who subscribed, in their order."""

    def __init__(self) -> None:
        self._subscribers: list[Subscription] = []

    def subscribe(self, on_calls: OnCalls | None = None, on_spans: OnSpans | None = None) -> Subscription:
        """From now on until the subscription is closed."""
        self._subscribers.append(Subscription(self._subscribers, on_calls, on_spans))
        return self._subscribers[-1]

    def add_calls(self, slot: int, records: NDArray[Any]) -> None:
        for one in tuple(self._subscribers):
            if one.on_calls is not None:
                one.on_calls(slot, records)

    def add_spans(self, process: int, spans: NDArray[Any]) -> None:
        for one in tuple(self._subscribers):
            if one.on_spans is not None:
                one.on_spans(process, spans)


class Subscription:
    """One subscriber of a :class:`RecordFeed`."""

    def __init__(self, among: list[Subscription], on_calls: OnCalls | None, on_spans: OnSpans | None) -> None:
        self._among, self.on_calls, self.on_spans = among, on_calls, on_spans

    def close(self) -> None:
        """No more records; a second call does nothing."""
        if self in self._among:
            self._among.remove(self)
