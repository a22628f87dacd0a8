"""Where the virtual ranks of one job meet: a page of shared memory with one counter a rank.

A collective cannot finish before every rank has made the call, so no rank's host gets further ahead of the slowest
than its launch queue allows. Each rank writes only its own counter; who reads a stale value merely waits a little
longer.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable

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
