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

    def stop_at(self, iteration: int) -> None:
        """Parent: every rank ends before this iteration; 0 takes the wish back."""
        self._words[0] = iteration

    @property
    def stop(self) -> int:
        """The iteration to end before; 0 = none named."""
        return self._words[0]

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
