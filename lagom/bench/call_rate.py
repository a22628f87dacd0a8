"""How fast a job calls NCCL, from the plugin's own counters: an iteration's length without a word of the job's.

The counters lie in shared memory and are written whatever the mode, as long as the plugin has joined a region; reading
them takes no lock. Two arms of one job make the same calls an iteration, so seconds a call compare like iterations do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from lagom.wire.job_key import JOB_VARIABLES, key_and_region
from lagom.wire.peek import peek_region

#: Seconds between two looks: an iteration's calls come in bursts, so short spans would only show those.
SPAN_SECONDS = 2.0


class CallRate:
    """Looks at the region of one job now and then; :meth:`samples` are seconds a call of the busiest communicator."""

    def __init__(self, region: Path) -> None:
        self._region = region
        self._looks: list[tuple[float, float, dict[int, int]]] = []  # (monotonic, wall, communicator -> calls)

    def look(self) -> None:
        """Call it often; it looks once every span."""
        now = time.monotonic()
        if self._looks and now - self._looks[-1][0] < SPAN_SECONDS:
            return
        calls = self._calls()
        if calls:
            self._looks.append((now, time.time(), calls))

    def _calls(self) -> dict[int, int]:
        """Calls made so far on each communicator, by its slowest rank."""
        groups = peek_region(self._region).groups if self._region.exists() else ()
        return {group.view.index: min(slot.calls for slot in group.slots) for group in groups if group.slots}

    @property
    def saw_calls(self) -> bool:
        """Whether any call was seen at all."""
        return bool(self._looks)

    def samples(self) -> list[tuple[float, float]]:
        """(wall clock at the end, seconds a call) of each span in which calls were made."""
        if not self._looks:
            return []
        last = self._looks[-1][2]
        busiest = max(last, key=lambda index: last[index])
        spans = []
        for (begin, _, before), (end, wall, after) in zip(self._looks, self._looks[1:], strict=False):
            made = after.get(busiest, 0) - before.get(busiest, 0)
            if made > 0:
                spans.append((wall, (end - begin) / made))
        return spans


def region_of(environ: Mapping[str, str]) -> Path:
    """The region of a job that LAGOM_JOB_ID names in ``environ``."""
    return key_and_region({name: value for name, value in environ.items() if name.startswith(JOB_VARIABLES)})[1]
