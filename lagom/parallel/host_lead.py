# SPDX-License-Identifier: Apache-2.0
"""Whether the host's launches limit a job, so that calls which need fewer of them are faster, whatever they take alone.

A choice is measured call by call. In a step the host launches more than these calls, and where that takes longer than
the device's work, the device waits. So every rank looks at its own job: some calls after an event was recorded, has the
device reached it? Where the host is far ahead it has not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

#: Calls since the last choice that are not looked at, because first steps load kernels and allocate; and then so many
#: that are.
SKIPPED, LOOKED = 512, 256
#: An event is looked at when so many calls came after it. Where a job waits for its device once a step, the first calls
#: of each step find theirs reached, too.
LAG = 2
#: The device waits for the host where it has reached this share of the events.
LIMITING = 0.8


class HostLead:
    """Of the calls of one group on this rank."""

    def __init__(self, make_event: Callable[[], Any] = torch.cuda.Event) -> None:
        self._make_event = make_event
        self._calls = self._looked = self._reached = 0
        self._events: deque[Any] = deque()
        #: Whether launches limit the job, as all ranks know; None: not known yet.
        self.limits: bool | None = None

    def look(self, stream: Any, agree: Callable[[float], float]) -> None:
        """At a call on a stream, before it is made, as long as it is not known. ``agree``: the largest share of all
        ranks, a collective that every rank enters at the same call."""
        self._calls += 1
        if self._calls > SKIPPED:
            self._look(stream)
        if self._looked == LOOKED:
            self.limits = agree(self._reached / LOOKED) >= LIMITING
            self._events.clear()

    def _look(self, stream: Any) -> None:
        if len(self._events) == LAG:
            event = self._events.popleft()
            self._looked += 1
            self._reached += event.query()
        else:
            event = self._make_event()
        event.record(stream)
        self._events.append(event)
