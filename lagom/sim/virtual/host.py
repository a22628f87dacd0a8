"""The two clocks of a virtual rank: its host, which enqueues, and its GPU, which runs some iterations behind.

A host without ``.item()`` runs ahead until the launch queue is full; here that is ``run_ahead`` iterations. Kernels of
an iteration become visible when the GPU has finished it, as an activity API delivers them: always after the calls.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

LAUNCH_NS = 20_000  # from the host's first call of an iteration to its first kernel, with an empty queue
START_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Finished:
    """An iteration as the GPU ran it."""

    number: int
    gpu_start: int
    gpu_end: int


class HostAndGpu:
    """``begin`` an iteration, ``stamp`` its calls, ``end`` it with its length; ``finished``: what the GPU has run.

    All times are ns of the simulated clock. ``run_ahead`` is at least 1.
    """

    def __init__(self, run_ahead: int, host_share: float) -> None:
        self._run_ahead, self._host_share = run_ahead, host_share
        self._gpu_end = START_NS
        self._queue: deque[Finished] = deque()
        self._length = 0.0  # of the last iteration
        self._span = 1_000_000.0  # what the host needs for one iteration; learnt from the last one
        self._number = 0
        self._begun = START_NS
        self.now = START_NS

    def begin(self, late: float = 0.0) -> None:
        """The host starts to enqueue the next iteration: at once, or when the queue has room; ``late`` by a share of
        the last one's length, which the GPU does not notice while it has work."""
        if len(self._queue) >= self._run_ahead:
            self.now = max(self.now, self._queue[-self._run_ahead].gpu_start)
        self._begun = self.now = self.now + int(late * self._length)

    def pause(self, nanoseconds: float) -> None:
        """The host does something else; the GPU runs dry meanwhile."""
        self.now = max(self.now, self._gpu_end) + int(nanoseconds)
        self._gpu_end = self.now

    @property
    def idle_from(self) -> int:
        """When the GPU has run all that is enqueued, if it has not by now."""
        return max(self.now, self._gpu_end)

    def stamp(self, done: int, of: int) -> int:
        """The time of call ``done`` of ``of`` in this iteration."""
        self.now = self._begun + int(self._span * (done + 1) / (of + 1))
        return self.now

    def end(self, length: float) -> None:
        """The iteration is enqueued; the GPU will need ``length`` ns for it."""
        self.now = self._begun + int(self._span)
        start = max(self._gpu_end, self._begun + LAUNCH_NS)
        self._gpu_end = start + int(length)
        self._queue.append(Finished(self._number, start, self._gpu_end))
        self._length, self._span = length, length * self._host_share
        self._number += 1

    def finished(self, *, all_of_them: bool = False) -> list[Finished]:
        """Iterations the GPU has finished by now, oldest first, each handed out once."""
        done = []
        while self._queue and (all_of_them or self._queue[0].gpu_end <= self.now):
            done.append(self._queue.popleft())
        return done
