# SPDX-License-Identifier: Apache-2.0
"""Shards moved by copy engines on a stream of their own, beside the products of those that are here already.

Why buffers are safe: all copies of a rank and the barriers between ranks are on one stream, the copier, in the same
order on every rank; AllGather's first barrier is on the caller's. Each call begins on the copier after the caller's
stream, and the caller's stream waits for it at the end. AllGather: the shard is written, barrier, peers read it,
barrier: when a call is over, every peer has read. So neither the next call nor the caller can overwrite what a slow
peer still reads; a second buffer would not do instead, because a replayed CUDA graph uses the same one every time.
ReduceScatter: barrier (the owner has added up its slots of the call before), peers write, barrier, the owner adds up.
Events order everything on the GPU; the host waits for nothing, and nothing is allocated on the other streams, so calls
can be captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from lagom.parallel.copy_engine import On, copy_on
from lagom.parallel.matmul_call import GATHER, MatmulCall, multiply
from lagom.parallel.rank_group import RankGroup
from lagom.parallel.symmetric_pool import Block, Workspace, find_pooled, reserve, workspace_for
from lagom.parallel.torch_gate import symmetric_refusal

_NOTHING = nullcontext()


class Copies:
    """``streams``: 2 = products alternate between the caller's stream and another one, which fills the GPU where one
    shard's product is small."""

    def __init__(self, name: str, streams: int) -> None:
        self.name = name
        self._streams = streams

    def refusal(self, call: MatmulCall, group: RankGroup, device: torch.device) -> str:
        if self._streams > 1 and group.size < 3:
            return "two ranks have no two shards to alternate"
        return symmetric_refusal() or group.no_peer_access(device)

    def prepare(self, call: MatmulCall, group: RankGroup, device: torch.device) -> None:
        reserve(group, 256 if call.operator == GATHER and call.pooled else call.symmetric_bytes, device)

    def all_gather_matmul(self, x: Tensor, weights: Sequence[Tensor], group: RankGroup) -> tuple[Tensor, list[Tensor]]:
        space, main = workspace_for(x, group), torch.cuda.current_stream(x.device)
        gathered = x.new_empty(group.size * x.shape[0], x.shape[1])
        products = [x.new_empty(group.size * x.shape[0], weight.shape[1]) for weight in weights]
        shards, parts = gathered.chunk(group.size), [product.chunk(group.size) for product in products]
        block, offset = _share(x, group, space)
        space.begin.record(main)
        space.copier.wait_event(space.begin)
        for owner in group.peers:
            copy_on(space.copier, shards[owner], block.part_of(owner, x.shape, x.dtype, offset))
            space.done[owner].record(space.copier)
        copy_on(space.copier, shards[group.rank], x)
        for step, owner in enumerate([group.rank, *group.peers]):
            stream = self._stream(step, main, space)
            if step:
                stream.wait_event(space.done[owner])
            with _NOTHING if stream is main else On(stream, main):
                for weight, part in zip(weights, parts, strict=True):
                    torch.mm(shards[owner] if step else x, weight, out=part[owner])
        block.barrier_on(space.copier, main, 1)
        self._join(main, space)
        return gathered, products

    def matmul_reduce_scatter(self, xs: Sequence[Tensor], weights: Sequence[Tensor], group: RankGroup) -> Tensor:
        space, main = workspace_for(xs[0], group), torch.cuda.current_stream(xs[0].device)
        count, columns, dtype = xs[0].shape[0] // group.size, weights[0].shape[1], xs[0].dtype
        parts = xs[0].new_empty(group.size - 1, count, columns).unbind()
        slots = space.block.part_of(group.rank, (group.size, count, columns), dtype)
        rows = list(zip(*(x.chunk(group.size) for x in xs), strict=True))
        space.begin.record(main)
        space.copier.wait_event(space.begin)
        space.block.barrier_on(space.copier, main, 0)
        for step, (owner, part) in enumerate(zip(group.peers, parts, strict=True), 1):
            stream = self._stream(step, main, space)
            with _NOTHING if stream is main else On(stream, main):
                multiply(rows[owner], weights, part)
            space.done[owner].record(stream)
            space.copier.wait_event(space.done[owner])
            slot = space.block.part_of(owner, (count, columns), dtype, group.rank * count * columns)
            copy_on(space.copier, slot, part)
        multiply(rows[group.rank], weights, slots[group.rank])
        space.block.barrier_on(space.copier, main, 1)
        self._join(main, space)
        return torch.sum(slots, 0, dtype=dtype)  # said, because torch.autocast would take float32

    def _stream(self, step: int, main: Any, space: Workspace) -> Any:
        """Where the product of a step runs; the first one, and every one of a single stream, on the caller's."""
        if self._streams == 1 or step % 2 == 0:
            return main
        if step == 1:
            space.second.wait_event(space.begin)
        return space.second

    def _join(self, main: Any, space: Workspace) -> None:
        if self._streams > 1:
            space.second_end.record(space.second)
            main.wait_event(space.second_end)
        space.end.record(space.copier)
        main.wait_event(space.end)


def _share(x: Tensor, group: RankGroup, space: Workspace) -> tuple[Block, int]:
    """On the caller's stream: x where peers read it, once all of them have come. The block, and where in it. Before the
    first product: one that fills the GPU would make the barrier wait, and all copies with it."""
    pooled = find_pooled(x, group)
    block, offset = pooled or (space.block, 0)
    if pooled is None:
        block.part_of(group.rank, x.shape, x.dtype).copy_(x)
    block.barrier(0)
    return block, offset
