# SPDX-License-Identifier: Apache-2.0
"""The kernel timeline from the controller's side: asked for while it helps, and told about in the log.

Each process records by itself (csrc/timeline) and yields to any other profiler; here is only the wish, one for all
processes, and what became of it.
"""

from __future__ import annotations

from collections.abc import Iterable

from lagom.controller.event_log import EventLog
from lagom.wire.region import Region, TimelineState
from lagom.wire.views import ProcessView

#: How long a window waits for the timeline to come on: its own warm-up is 0.1 s, and CUPTI's first start takes longer.
PATIENCE_SECONDS = 10.0
UNAVAILABLE = {TimelineState.ABSENT, TimelineState.YIELDED}


class TimelineControl:
    """Whether kernels are recorded in the processes of this node."""

    def __init__(self, region: Region, events: EventLog) -> None:
        self._region, self._events = region, events
        self._asked: dict[int, int] = {}  # process -> pid that was asked
        self._wanted = False
        self._since = 0.0

    def want(self, wanted: bool, now: float) -> None:
        """Wish for it, or no longer; ``now`` is a monotonic clock in seconds."""
        if wanted != self._wanted:
            self._wanted, self._since = wanted, now
            for process in self._asked:
                self._region.want_timeline(process, wanted)

    def follow(self, processes: Iterable[ProcessView]) -> None:
        """Ask those that have come since, and tell what has changed."""
        for process in processes:
            if self._asked.get(process.index) != process.pid:
                self._asked[process.index] = process.pid
                self._region.want_timeline(process.index, self._wanted)
            self._emit(process)

    def is_on(self, processes: Iterable[int]) -> bool:
        """Whether every one of these processes records."""
        return all(self._region.timeline_state(process) is TimelineState.ON for process in processes)

    def is_settled(self, processes: Iterable[int], now: float) -> bool:
        """Whether it is on, or will not come on soon in some process."""
        states = {self._region.timeline_state(process) for process in processes}
        return bool(states & UNAVAILABLE) or states == {TimelineState.ON} or now - self._since > PATIENCE_SECONDS

    def _emit(self, process: ProcessView) -> None:
        if process.timeline == TimelineState.ON:
            first = process.timeline_first_enable_ns / 1e6
            self._events.note(f"process {process.pid}: kernels are recorded; CUPTI took {first:.0f} ms to start")
        elif self._wanted and process.timeline in UNAVAILABLE and process.timeline_remark:
            self._events.note(f"process {process.pid}: {process.timeline_remark}")
