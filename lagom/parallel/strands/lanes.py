# SPDX-License-Identifier: Apache-2.0
"""AllGather and ReduceScatter of strands by copy engines: they leave the SMs to what runs beside them.

A lane stands in for the process group, one for each of the two micro-batches that are under way; it has one collective
at a time. Its copies and the barriers between ranks are on the copier stream of both lanes, in the same order on every
rank. A collective begins there after the caller's stream, and the caller's stream waits for it in ``finish``.
AllGather: the shard is written, barrier, peers read it, barrier. ReduceScatter: barrier (the owner has added up its
slots of before), peers write, barrier, the owner adds up in ``finish``. So no rank overwrites what a slow one still
needs, and a collective of either kind may follow one of the other in the same memory. Nothing is allocated on the
copier, and the host waits for nothing, so steps can be captured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from lagom.parallel import symmetric_pool
from lagom.parallel.copy_engine import copy_on
from lagom.parallel.rank_group import RankGroup

LANES = 2
#: Waits for a collective (on a GPU: the current stream does) and returns its result.
Finish = Callable[[], Tensor]


class CopyLane:
    """``handle``: the process group, for collectives that no copies can do."""

    def __init__(self, group: RankGroup, block: symmetric_pool.Block, copier: Any) -> None:
        self.handle = group.handle
        self._group, self._block, self._copier = group, block, copier
        self._begin, self._over = torch.cuda.Event(), torch.cuda.Event()

    def gather(self, x: Tensor) -> Finish:
        """Start the AllGather of x [rows, ...]; what waits for it returns [ranks * rows, ...]."""
        x, group, main = x.contiguous(), self._group, torch.cuda.current_stream(x.device)
        gathered = x.new_empty(group.size * x.shape[0], *x.shape[1:])
        shards = gathered.chunk(group.size)
        self._begin_after(main)
        copy_on(self._copier, self._part(group.rank, x), x)
        self._block.barrier_on(self._copier, main, 0)
        for owner in group.peers:
            copy_on(self._copier, shards[owner], self._part(owner, x))
        copy_on(self._copier, shards[group.rank], x)
        self._end(main)

        def finish(kept: Tensor = x) -> Tensor:
            torch.cuda.current_stream(kept.device).wait_event(self._over)
            return gathered

        return finish

    def scatter(self, x: Tensor) -> Finish:
        """Start the ReduceScatter of x [ranks * rows, ...]; what waits for it returns the sum's own [rows, ...]: added
        up in float32 and rounded once, where a ring of NCCL rounds at each rank."""
        x, group, main = x.contiguous(), self._group, torch.cuda.current_stream(x.device)
        parts = x.chunk(group.size)
        slots = self._block.part_of(group.rank, (group.size, *parts[0].shape), x.dtype)
        self._begin_after(main)
        self._block.barrier_on(self._copier, main, 0)
        for owner in [*group.peers, group.rank]:
            copy_on(self._copier, self._part(owner, parts[0], group.rank), parts[owner])
        self._end(main)

        def finish(kept: Tensor = x) -> Tensor:
            torch.cuda.current_stream(kept.device).wait_event(self._over)
            return torch.sum(slots, 0, dtype=kept.dtype)  # said, because torch.autocast would take float32

        return finish

    def _part(self, rank: int, like: Tensor, slot: int = 0) -> Tensor:
        return self._block.part_of(rank, tuple(like.shape), like.dtype, slot * math.prod(like.shape))

    def _begin_after(self, main: Any) -> None:
        self._begin.record(main)
        self._copier.wait_event(self._begin)

    def _end(self, main: Any) -> None:
        self._block.barrier_on(self._copier, main, 1)
        self._over.record(self._copier)


class CopyLanes:
    """Both. ``size``: bytes of the largest tensor that a collective is started with. Made by all ranks together; raises
    :class:`CannotPrepare` on all of them, or none."""

    def __init__(self, size: int, group: RankGroup, device: torch.device) -> None:
        self.size, self._blocks = size, [symmetric_pool.allocate(size, group, device) for _ in range(LANES)]
        copier = torch.cuda.Stream(device, priority=-1)
        self.lanes = [CopyLane(group, block, copier) for block in self._blocks]

    def release(self) -> None:
        """Their memory goes back; not while something uses it."""
        for block in self._blocks:
            symmetric_pool.release_block(block)
