# SPDX-License-Identifier: Apache-2.0
"""Symmetric memory: buffers at the same place on every rank of a group, which peers read and write directly.

Blocks are kept until they are released, because peers map them and captured CUDA graphs hold their addresses. Nothing
here runs during a call: :func:`reserve` belongs to the choice, :func:`empty` to the job's start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lagom.errors import UsageError
from lagom.parallel.copy_engine import On
from lagom.parallel.matmul_call import CannotPrepare, all_can_prepare
from lagom.parallel.rank_group import RankGroup, group_named
from lagom.parallel.said_once import say_once
from lagom.parallel.torch_gate import allocate_symmetric, symmetric_memory, symmetric_refusal, timeout_ms

NOT_ELSEWHERE = "another rank has no symmetric memory"


@dataclass(eq=False)
class Block:
    """One allocation, bytes, and torch's handle of it, through which the peers' parts are reached."""

    tensor: Tensor
    handle: Any
    group: RankGroup
    _views: dict[Any, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._timeout_ms = timeout_ms(self.group.handle, self.tensor.device)

    @property
    def size(self) -> int:
        """Bytes, of this rank."""
        return self.tensor.numel()

    def barrier(self, channel: int) -> None:
        """On the current stream, all ranks wait for each other. Where one has not come within the timeout of its group,
        as when its process died, the kernel ends with an error of CUDA, and so does the process: a barrier of symmetric
        memory is none of NCCL's, so torch's watchdog would not see it wait."""
        self.handle.barrier(channel=channel, timeout_ms=self._timeout_ms)

    def barrier_on(self, stream: Any, back: Any, channel: int) -> None:
        """On a stream that is not the current one, ``back``."""
        with On(stream, back):
            self.barrier(channel)

    def part_of(self, rank: int, shape: tuple[int, ...], dtype: torch.dtype, offset: int = 0) -> Tensor:
        """A rank's memory as a tensor, from ``offset`` elements on. Made once: each costs the host microseconds."""
        key = rank, shape, dtype, offset
        if key not in self._views:
            with torch.inference_mode(False):  # a tensor made in that mode could not be written outside it
                self._views[key] = self.handle.get_buffer(rank, shape, dtype, offset)
        return self._views[key]


class Workspace:
    """Where copies of a group pass through, and the streams and events they use. One call at a time. ``captured``: a
    CUDA graph may hold its address."""

    def __init__(self, block: Block, ranks: int) -> None:
        self.block, self.captured = block, False
        device = block.tensor.device
        self.copier, self.second = torch.cuda.Stream(device, priority=-1), torch.cuda.Stream(device)
        self.begin, self.end, self.second_end = (torch.cuda.Event() for _ in range(3))
        self.done = [torch.cuda.Event() for _ in range(ranks)]


_blocks: list[Block] = []
_workspaces: dict[RankGroup, Workspace] = {}


def empty(shape: Sequence[int], dtype: torch.dtype, group: Any, *, device: torch.device | str | None = None) -> Tensor:
    """A tensor in symmetric memory: as the input of ``all_gather_matmul`` it need not be copied before peers read it.

    A collective: every rank of the group calls it, in the same order, with the same arguments. To be made at the start
    of a job and written to again and again (``torch.mul(a, b, out=x)``): nothing is freed before :func:`release`. In
    one call all ranks use the same one, or the same part of it.

    :param shape: of this rank's tensor, in elements.
    :param group: a process group or its name.
    :param device: default: the current CUDA device, or the CPU where there is none.
    :returns: uninitialised memory; ordinary memory, with one sentence in the log, where there is no symmetric memory.
    """
    found = group_named(group if isinstance(group, str) else group.group_name)
    default = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
    where = torch.empty(0, device=device or default).device  # with its index
    with torch.inference_mode(False):
        try:
            block = allocate(math.prod(shape) * dtype.itemsize, found, where)
        except CannotPrepare as reason:
            say_once(f"lagom.parallel.empty gives ordinary memory: {reason}.")
            return torch.empty(tuple(shape), dtype=dtype, device=where)
        return block.tensor.view(dtype).view(tuple(shape))


def memory() -> int:
    """Bytes of symmetric memory that this rank holds: what :func:`empty` gave, and the workspaces of copies. torch's
    fused operators have one more of their own, which is not counted."""
    return sum(block.size for block in _blocks)


def release(tensor: Tensor | None = None) -> None:
    """Free a tensor of :func:`empty`, or everything this module holds; choices that use copies make their workspace
    again at the next choice. Every rank does the same. Memory goes back when no tensor refers to it any more.

    Not while a captured CUDA graph that uses it will be replayed.

    :raises UsageError: the tensor is none of :func:`empty`.
    """
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    if tensor is None:
        for group in {block.group for block in _blocks}:
            group.forget()
        _blocks.clear()
        _workspaces.clear()
        return
    kept = [block for block in _blocks if block.tensor.data_ptr() != tensor.data_ptr()]
    if len(kept) == len(_blocks):
        raise UsageError("release() was given a tensor that is not from lagom.parallel.empty(); pass one that is.")
    _blocks[:] = kept


def find_pooled(x: Tensor, group: RankGroup) -> tuple[Block, int] | None:
    """The block a contiguous tensor lies in, and where in it, in elements; None for ordinary memory."""
    if not _blocks or not x.is_contiguous():
        return None
    for block in _blocks:
        begin = block.tensor.data_ptr()
        offset = x.data_ptr() - begin
        if block.group is group and 0 <= offset < block.size and offset % x.element_size() == 0:
            return block, offset // x.element_size()
    return None


def reserve(group: RankGroup, size: int, device: torch.device) -> None:
    """See that the workspace of a group has so many bytes. A collective; all ranks raise CannotPrepare, or none. What
    becomes of a smaller one, :func:`settle` says."""
    known = _workspaces.get(group)
    if known is None or known.block.size < size:
        _workspaces[group] = Workspace(allocate(size, group, device), group.size)


def workspace(group: RankGroup) -> Workspace | None:
    """That of a group, if it has one."""
    return _workspaces.get(group)


def workspace_for(x: Tensor, group: RankGroup) -> Workspace:
    """That of a group for a call; it was reserved when the choice was made."""
    found = _workspaces[group]
    if x.is_cuda and torch.cuda.is_current_stream_capturing():
        found.captured = True
    return found


def settle(group: RankGroup, before: Workspace | None, used: bool) -> None:
    """After a choice, which begins with an exchange of all ranks, so that no call before it still runs: free the
    workspace made for it if what was chosen does not use it, else the smaller one from ``before``. One whose address a
    CUDA graph may hold stays until it is released."""
    now = _workspaces.get(group)
    if now is None or now is before:
        return
    unneeded = before if used else now
    if not used:
        del _workspaces[group]
        if before is not None:
            _workspaces[group] = before
    if unneeded is not None and not unneeded.captured:
        release_block(unneeded.block)


def release_block(block: Block) -> None:
    """Its memory goes back when no tensor refers to it any more."""
    if block in _blocks:
        _blocks.remove(block)


def allocate(size: int, group: RankGroup, device: torch.device) -> Block:
    """So many bytes on each rank. A collective; all ranks raise CannotPrepare, or none. Two steps, each agreed on, so
    that a rank without room leaves no other rank waiting in the rendezvous."""
    _forget_replaced_groups()
    group.meet(device)
    reason, tensor, handle = symmetric_refusal() or group.no_peer_access(device), None, None
    if not reason:
        try:
            tensor = allocate_symmetric(size, device)
        except Exception as error:  # noqa: BLE001 - other ranks wait for what this one says
            reason = _first_line(error)
    all_can_prepare(group, reason, NOT_ELSEWHERE, device)
    try:
        handle = symmetric_memory().rendezvous(tensor, group.name)
    except Exception as error:  # noqa: BLE001 - the same
        reason = _first_line(error)
    all_can_prepare(group, reason, NOT_ELSEWHERE, device)
    assert tensor is not None
    block = Block(tensor, handle, group)
    _blocks.append(block)
    return block


def _forget_replaced_groups() -> None:
    """What belonged to groups that were destroyed, and whose names others have now."""
    _blocks[:] = [block for block in _blocks if not block.group.replaced]
    for group in [one for one in _workspaces if one.replaced]:
        del _workspaces[group]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
