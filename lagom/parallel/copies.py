# SPDX-License-Identifier: Apache-2.0
"""Shards moved by copy engines on a stream of their own, beside the products of those that are here already.

Why buffers are safe: all copies of a rank and the barriers between ranks are on one stream, the copier, in the same
order on every rank. Each call begins there after the caller's stream, and the caller's stream waits for it at the end.
AllGather: the shard is written, barrier, peers read it, barrier: when a call is over, every peer has read. So neither
the next call nor the caller can overwrite what a slow peer still reads; a second buffer would not do instead, because
a replayed CUDA graph uses the same one every time. ReduceScatter: barrier (the owner has added up its slots of the
call before), peers write, barrier, the owner adds up. Events order everything on the GPU; the host waits for nothing,
and nothing is allocated on the other streams, so calls can be captured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lagom.parallel.matmul_call import GATHER, MatmulCall, multiply, rows_of
from lagom.parallel.rank_group import RankGroup
from lagom.parallel.symmetric_pool import Block, Workspace, find_pooled, reserve, workspace
from lagom.parallel.torch_gate import symmetric_refusal


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
        space, main = workspace(group), torch.cuda.current_stream(x.device)
        gathered = x.new_empty(group.size * x.shape[0], x.shape[1])
        products = [x.new_empty(group.size * x.shape[0], weight.shape[1]) for weight in weights]
        block, offset = _share(x, group, space)
        space.begin.record(main)
        with torch.cuda.stream(space.copier):
            _pull(x, gathered, group, space, block, offset)
        for step, owner in enumerate([group.rank, *group.peers]):
            with torch.cuda.stream(self._stream(step, main, space)):
                if step:
                    torch.cuda.current_stream().wait_event(space.done[owner])
                shard = rows_of([gathered], owner, group.size)[0] if step else x
                for weight, product in zip(weights, products, strict=True):
                    torch.mm(shard, weight, out=rows_of([product], owner, group.size)[0])
        self._join(main, space)
        return gathered, products

    def matmul_reduce_scatter(self, xs: Sequence[Tensor], weights: Sequence[Tensor], group: RankGroup) -> Tensor:
        space, main = workspace(group), torch.cuda.current_stream(xs[0].device)
        count, columns, dtype = xs[0].shape[0] // group.size, weights[0].shape[1], xs[0].dtype
        parts = xs[0].new_empty(group.size - 1, count, columns)
        slots = space.block.part_of(group.rank, (group.size, count, columns), dtype)
        space.begin.record(main)
        with torch.cuda.stream(space.copier):
            space.copier.wait_event(space.begin)
            space.block.handle.barrier(channel=0)
        for step, (owner, part) in enumerate(zip(group.peers, parts, strict=True), 1):
            with torch.cuda.stream(self._stream(step, main, space)):
                multiply(rows_of(xs, owner, group.size), weights, part)
                space.done[owner].record()
            with torch.cuda.stream(space.copier):
                space.copier.wait_event(space.done[owner])
                space.block.part_of(owner, (count, columns), dtype, group.rank * count * columns).copy_(part)
        multiply(rows_of(xs, group.rank, group.size), weights, slots[group.rank])
        with torch.cuda.stream(space.copier):
            space.block.handle.barrier(channel=1)
            space.end.record()
        self._join(main, space)
        return torch.sum(slots, 0)

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
        main.wait_event(space.end)


def _share(x: Tensor, group: RankGroup, space: Workspace) -> tuple[Block, int]:
    """On the caller's stream: x where peers read it, once all of them have come. The block, and where in it."""
    pooled = find_pooled(x, group)
    block, offset = pooled or (space.block, 0)
    if pooled is None:
        block.part_of(group.rank, tuple(x.shape), x.dtype).copy_(x)
    block.handle.barrier(channel=0)
    return block, offset


def _pull(x: Tensor, gathered: Tensor, group: RankGroup, space: Workspace, block: Block, offset: int) -> None:
    """On the copier: peers' shards, one event each, and the own one."""
    space.copier.wait_event(space.begin)
    shape = tuple(x.shape)
    for owner in group.peers:
        (part,) = rows_of([gathered], owner, group.size)
        part.copy_(block.part_of(owner, shape, x.dtype, offset))
        space.done[owner].record()
    rows_of([gathered], group.rank, group.size)[0].copy_(x)
    block.handle.barrier(channel=1)
    space.end.record()
