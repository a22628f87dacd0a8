# SPDX-License-Identifier: Apache-2.0
"""All shared-memory regions of one job, read at intervals: its calls, and the settings its ranks were started with.

A job whose ranks have a NCCL_HOSTID each has one region for each of them; all have the name of the job.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lagom.experiment.region_watch import RegionWatch
from lagom.start import VARIABLES
from lagom.wire.job_key import JOB_VARIABLES, key_and_region
from lagom.wire.layout import ffi
from lagom.wire.library import library
from lagom.wire.peek import HeldRegion, RegionView
from lagom.wire.region import unlink_if_unheld

#: Seconds between two looks: an iteration's calls come in bursts, so short spans would only show those.
SPAN_SECONDS = 2.0
#: Until every rank was seen: short jobs are over soon. So many looks at most: those on other machines never are.
FIRST_SECONDS, FIRST_LOOKS = 0.2, 100
#: Regions that stay mapped: a process can have 16 at once.
MOST_HELD = 8


@dataclass(frozen=True, slots=True)
class RankStart:
    """How one rank was started: ``settings`` are digests in the order of :data:`lagom.start.VARIABLES`."""

    rank: int | None
    pid: int
    nccl_version: int
    gpu: str
    peer_access: bool
    settings: bytes
    simulated: bool = False  # a virtual rank

    @property
    def name(self) -> str:
        """For a sentence."""
        return f"process {self.pid}" if self.rank is None else f"rank {self.rank}"


class JobRegions:
    """Looks at the regions of the job that LAGOM_JOB_ID names in ``environ``. ``is_new``: it has not begun, so that
    what ranks have left in a region is of this job: short ones may come and end between two looks. As a context
    manager: once the job is over, nothing of it is left behind."""

    def __init__(self, environ: Mapping[str, str], *, is_new: bool = False) -> None:
        named = {name: value for name, value in environ.items() if name.startswith(JOB_VARIABLES)}
        key, self.region = key_and_region(named)
        self._key = key.rpartition(" host=")[0]
        self._others: set[Path] = set()
        self._last = self._last_count = 0.0
        self._first_looks = FIRST_LOOKS
        self._looks: list[tuple[float, float, dict[tuple[Path, int], int]]] = []  # (monotonic, wall, calls)
        self.starts: dict[tuple[Path, int], RankStart] = {}
        self.last_new = time.monotonic()  # when a rank was seen for the first time
        self.ranks = self.nodes = 0  # of the largest communicator
        self._watch = RegionWatch(self.region) if is_new else None
        self._held: dict[Path, HeldRegion] = {}  # seen with a rank of the job: the last one to end removes the file

    def __enter__(self) -> JobRegions:
        return self

    def __exit__(self, *ending: object) -> None:
        if self._watch is not None:
            self._watch.close()
        for region in self._held.values():
            region.let_go()
        for path in {self.region, *(path for path, _ in self.starts)}:
            unlink_if_unheld(path)  # which killed ranks leave behind

    def look(self) -> None:
        """Call it often. It counts calls once every span, and looks for ranks more often until it has seen them all."""
        now = time.monotonic()
        is_due = now - self._last_count >= SPAN_SECONDS
        if now - self._last < FIRST_SECONDS or not (is_due or self._first_looks):
            return
        self._last = now
        calls = {
            (view.path, group.view.index): min(slot.calls for slot in group.slots)
            for view in self.see_ranks()
            for group in view.groups
            if group.slots
        }
        if not calls:
            return
        self._first_looks = 0 if self._knows_every_rank() else max(0, self._first_looks - 1)
        if is_due:
            self._last_count = now
            self._looks.append((now, time.time(), calls))

    def sleep(self, seconds: float) -> None:
        """So long; but a region that appears is looked at, and kept, at once: a job's ranks may be over before the next
        look, and the last one removes the file."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._watch is None:
                time.sleep(left)
            elif self._watch.wait(left):
                self.see_ranks()

    def see_ranks(self) -> list[RegionView]:
        """Every region of the job now; what its ranks were started with is kept in ``starts``."""
        views = list(self._views())
        for view in views:
            self._note_starts(view)
            for group in view.groups:
                if group.view.rank_count > self.ranks:
                    self.ranks, self.nodes = group.view.rank_count, group.view.node_count
        return views

    @property
    def saw_all_ranks(self) -> bool:
        """Whether every rank of the largest communicator has said how it was started."""
        return len(self.starts) >= self.ranks > 0

    def _knows_every_rank(self) -> bool:
        """Also by its number, which the communicator says later than the process how it was started."""
        return self.saw_all_ranks and all(start.rank is not None for start in self.starts.values())

    def _views(self) -> Iterator[RegionView]:
        for path in sorted({*self.region.parent.glob(f"lagom-{os.getuid()}-*"), *self._held}):
            if path in self._others or ".tmp." in path.name:
                continue
            region = self._held.pop(path, None) or HeldRegion(path)
            is_there, view = region.is_there, region.peek()  # in this order: a removed file is read once more
            is_ours = view.job_key.rpartition(" host=")[0] == self._key
            if is_ours and is_there and self._watch is not None and len(self._held) < MOST_HELD:
                self._held[path] = region
            else:
                region.let_go()
            if is_ours:
                yield view
            elif view.job_key:
                self._others.add(path)

    def was_made(self) -> bool | None:
        """Whether a region of the job has appeared since it was new; None if that is not known. With one more look now,
        for its ranks and for files that are other jobs' regions. To be called once."""
        self.see_ranks()
        return None if self._watch is None else self._watch.was_made({path.name for path in self._others})

    def _note_starts(self, view: RegionView) -> None:
        ranks = {slot.process: slot.rank for group in view.groups for slot in group.slots if slot.rank is not None}
        ended = () if self._watch is None else view.ended
        for process in (*view.processes, *ended):
            key = view.path, process.index
            is_known = key in self.starts and self.starts[key].pid == process.pid
            if process.knobs and not (is_known and process in ended):  # described itself, and has a number as it lives
                if key not in self.starts:
                    self.last_new = time.monotonic()
                self.starts[key] = RankStart(
                    ranks.get(process.index), process.pid, process.nccl_version, process.gpu, process.peer_access,
                    process.start_settings, process.simulated,
                )  # fmt: skip

    @property
    def saw_calls(self) -> bool:
        """Whether any call was seen at all."""
        return bool(self._looks)

    def samples(self) -> list[tuple[float, float]]:
        """(wall clock at the end, seconds a call of the busiest communicator) of each span in which calls were made."""
        if not self._looks:
            return []
        last = self._looks[-1][2]
        busiest = max(last, key=lambda place: last[place])
        spans = []
        for (begin, _, before), (end, wall, after) in zip(self._looks, self._looks[1:], strict=False):
            made = after.get(busiest, 0) - before.get(busiest, 0)
            if made > 0:
                spans.append((wall, (end - begin) / made))
        return spans

    def unlike(self, wanted: Mapping[str, str]) -> str:
        """One sentence on the first rank that was not started with ``wanted``, or not as another rank was where all
        must be alike; empty where every rank that was seen is right."""
        starts = list(self.starts.values())
        for place, variable in enumerate(VARIABLES):
            name, expected = variable.name, digest(wanted.get(variable.name, ""))
            for start in starts:
                if name in wanted and start.settings[place] != expected:
                    return f"{start.name} was not started with {name}={wanted[name]}: set it for every rank."
                if variable.equal and start.settings[place] != starts[0].settings[place]:
                    return f"{start.name} was started with another {name} than {starts[0].name}: make them the same."
        return ""


def digest(value: str) -> int:
    """As the plugin computes it."""
    return int(library().lagom_environment_value_digest(ffi.new("char[]", os.fsencode(value))))
