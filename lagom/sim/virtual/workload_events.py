# SPDX-License-Identifier: Apache-2.0
"""What interrupts the iterations of a real job: evaluations, checkpoints, new shapes, graph captures, a slower machine.

Events are part of the job's spec and happen at the same iteration on every rank, as NCCL demands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lagom.records import Function
from lagom.sim.virtual.selection import CollectiveCall

ALIGNED = 4096  # bytes: sizes of other shapes stay multiples of this


@dataclass(frozen=True, slots=True)
class WorkloadEvent:
    """Before iteration ``at``, and with ``every`` before each so many further ones (not beyond ``last``).

    calls      (function, bytes) made on communicator ``communicator``, ``repeat`` times over: evaluation batches, the
               gathers of a checkpoint, a logging gather
    pause_s    what else the host does meanwhile, calls included; the GPU is idle (a checkpoint, a recompilation)
    slower     from now on iterations take so many times as long (0 = as before): the machine has changed
    share      from now on collectives have this share of their bytes (0 = as before): other sequence lengths
    captured   the calls of this iteration are captured into a CUDA graph, and from then on replayed: no calls at all
    """

    at: int
    every: int = 0
    last: int = 1 << 62
    communicator: int = 0
    calls: tuple[tuple[int, int], ...] = ()
    repeat: int = 1
    pause_s: float = 0.0
    slower: float = 0.0
    share: float = 0.0
    captured: bool = False

    def happens(self, iteration: int) -> bool:
        """Whether it comes before this iteration."""
        since = iteration - self.at
        return since == 0 or (self.every > 0 and since > 0 and since % self.every == 0 and iteration <= self.last)

    @property
    def collectives(self) -> list[CollectiveCall]:
        """The calls it makes, in order."""
        return [CollectiveCall(Function(function), size) for function, size in self.calls] * self.repeat


@dataclass(slots=True)
class EventScript:
    """The events of a job as its iterations go by: :meth:`before` each one, then ``slower``, ``share`` and
    ``captured`` say how it is run."""

    events: tuple[WorkloadEvent, ...]
    slower: float = 1.0
    share: float = 1.0
    captured_at: int | None = None

    def before(self, iteration: int) -> list[WorkloadEvent]:
        """What happens before ``iteration``, in the order of the spec."""
        now = [event for event in self.events if event.happens(iteration)]
        for event in now:
            self.slower = event.slower or self.slower
            self.share = event.share or self.share
            if event.captured:
                self.captured_at = iteration
        return now

    def shaped(self, group: Sequence[CollectiveCall], iteration: int) -> list[CollectiveCall]:
        """The collectives as they are called now: of another size, or with registered buffers while captured."""
        if self.share == 1.0 and self.captured_at != iteration:
            return list(group)
        captured = self.captured_at == iteration
        return [CollectiveCall(one.function, int(shaped(float(one.bytes), self.share)), captured) for one in group]

    def is_replayed(self, iteration: int) -> bool:
        """Whether a graph has taken the calls over."""
        return self.captured_at is not None and iteration > self.captured_at


def shaped(size: Any, share: float) -> Any:
    """Bytes of a collective at ``share`` of its usual size; ``bytes`` may be an array."""
    return size if share == 1.0 else np.maximum(ALIGNED, size * share // ALIGNED * ALIGNED)


def evaluation(
    at: int, *, every: int = 0, batches: int = 8, calls: Sequence[tuple[int, int]] = (), pause_s: float = 0.5
) -> WorkloadEvent:
    """Forward passes between two iterations, then the metrics are summed over the ranks."""
    gathers = tuple(call for call in calls if call[0] == int(Function.ALL_GATHER))
    return WorkloadEvent(
        at, every, calls=(*gathers, (int(Function.ALL_REDUCE), 1 << 20)), repeat=batches, pause_s=pause_s
    )


def checkpoint(at: int, *, every: int = 0, shards: int = 3, pause_s: float = 5.0) -> WorkloadEvent:
    """Shards of odd sizes are gathered, then written."""
    sizes = tuple((int(Function.ALL_GATHER), (70 + 30 * shard) << 20) for shard in range(shards))
    return WorkloadEvent(at, every, calls=sizes, pause_s=pause_s)
