# SPDX-License-Identifier: Apache-2.0
"""How far a virtual rank is: its two clocks, and the counters by which the ranks of a job wait for each other.

A host without ``.item()`` runs ahead of its GPU until the launch queue is full; here that is ``run_ahead`` iterations.
Kernels of an iteration become visible when the GPU has finished it, as an activity API delivers them: always after the
calls. A collective cannot finish before every rank has made the call, so no rank's host gets further ahead of the
slowest than its launch queue allows. Each rank writes only its own counter, in a page of shared memory; a rank that
reads a stale value waits a little longer.
"""

from __future__ import annotations

import mmap
import os
import time
from collections import deque
from collections.abc import Callable
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


COUNTER_BYTES = 64  # one cache line a rank
HELD = (1 << 64) - 1  # instead of an iteration: it is about to be named


class Rendezvous:
    """``fd`` is a memfd of :meth:`make`, inherited by every rank."""

    def __init__(self, fd: int, ranks: int) -> None:
        self.fd, self.ranks = fd, ranks
        self._words = memoryview(mmap.mmap(fd, (ranks + 1) * COUNTER_BYTES)).cast("Q")

    @classmethod
    def make(cls, ranks: int) -> Rendezvous:
        """A fresh one; pass ``fd`` on with ``pass_fds``. It needs no cleaning up."""
        fd = os.memfd_create("lagom-virtual-ranks")
        os.ftruncate(fd, (ranks + 1) * COUNTER_BYTES)
        return cls(fd, ranks)

    def stop_soon(self) -> None:
        """Parent: every rank ends before the same iteration, one that none has begun. They are held while it is chosen:
        meanwhile each ends the iteration it is at, and begins no other."""
        if not self._words[0]:
            self._words[0] = HELD
            self._words[0] = max(self.counts()) + 1

    def end(self, alive: Callable[[], bool]) -> int | None:
        """Rank: the iteration to end before, None = the parent has named none. At once if ``alive`` says so while
        ranks are held."""
        while self._words[0] == HELD:
            if not alive():
                return 0
            time.sleep(20e-6)
        return self._words[0] or None

    def arrive(self, rank: int, count: int) -> None:
        """Rank: ``count`` iterations are enqueued."""
        self._words[(rank + 1) * COUNTER_BYTES // 8] = count

    def counts(self) -> list[int]:
        """Every rank's count."""
        return [self._words[(rank + 1) * COUNTER_BYTES // 8] for rank in range(self.ranks)]

    def wait_for(self, count: int, alive: Callable[[], bool]) -> bool:
        """Until every rank has arrived at ``count``; False if ``alive`` says so meanwhile."""
        delay = 20e-6
        while min(self.counts()) < count:
            if not alive():
                return False
            time.sleep(delay)
            delay = min(delay * 1.5, 2e-3)
        return True
