# SPDX-License-Identifier: Apache-2.0
"""A process group as the operators need it: rank, size, which hosts, and small exchanges of numbers that all enter."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from lagom.parallel.host_lead import HostLead
from lagom.parallel.torch_gate import collectives, group_resolver

_groups: dict[str, RankGroup] = {}


@dataclass(eq=False)
class RankGroup:
    """``chosen``: what all ranks of the group agreed on, by call and the argument ``implementation``; ``ready``: the
    same by the tensors' own words, found without building the call; ``lead``: whether the host's launches limit the
    job; ``replaced``: another group has its name now."""

    name: str
    handle: Any
    rank: int
    size: int
    chosen: dict[Any, Any] = field(default_factory=dict)
    ready: dict[Any, Any] = field(default_factory=dict)
    lead: HostLead = field(default_factory=HostLead)
    replaced: bool = False
    _places: list[list[int]] = field(default_factory=list)

    @property
    def peers(self) -> list[int]:
        """The other ranks, the next one first, so that at each step every rank reads from another one."""
        return [(self.rank + step) % self.size for step in range(1, self.size)]

    def forget(self) -> None:
        """All choices: each call agrees again at its next use."""
        self.chosen.clear()
        self.ready.clear()

    def gather(self, numbers: Sequence[int], device: torch.device) -> list[list[int]]:
        """Every rank's numbers, as many on each, by rank. A collective."""
        mine = torch.tensor(list(numbers), dtype=torch.int64, device=device)
        every = torch.empty(self.size * len(numbers), dtype=torch.int64, device=device)
        collectives()[0](every, mine, group=self.handle)
        return every.view(self.size, -1).tolist()

    def largest(self, numbers: Sequence[float], device: torch.device) -> list[float]:
        """The largest of each over all ranks. A collective; every rank gets the same bits."""
        values = torch.tensor(list(numbers), dtype=torch.float64, device=device)
        dist.all_reduce(values, dist.ReduceOp.MAX, group=self.handle)
        return values.tolist()

    def meet_on_device(self, device: torch.device) -> None:
        """All streams of the ranks that this is called on go on at the same time; the host does not wait."""
        dist.all_reduce(torch.zeros(1, device=device), group=self.handle)

    def all_say(self, yes: bool, device: torch.device) -> bool:
        """Whether every rank says so. A collective."""
        return self.largest([0.0 if yes else 1.0], device) == [0.0]

    def exchange(self, sent: Tensor, to: int, received: Tensor, source: int) -> list[Any]:
        """Begin to send to one rank of the group and to receive from one; ``wait()`` of each work ends it."""
        sending = dist.P2POp(dist.isend, sent, group=self.handle, group_peer=to)
        receiving = dist.P2POp(dist.irecv, received, group=self.handle, group_peer=source)
        return dist.batch_isend_irecv([sending, receiving])

    def meet(self, device: torch.device) -> None:
        """Learn where every rank is. A collective, the first time."""
        if not self._places:
            self._places = self.gather([digest_number(socket.gethostname()), device.index or 0], device)

    def no_peer_access(self, device: torch.device) -> str:
        """Why this rank cannot read the memory of all others: one clause, empty = nothing is known against it."""
        if device.type != "cuda":
            return "it needs CUDA devices"
        if len({host for host, _ in self._places}) > 1:
            return "the ranks are on several nodes"
        count, own = torch.cuda.device_count(), device.index
        others = {index for _, index in self._places if index != own and index < count}
        blind = sorted(index for index in others if not torch.cuda.can_device_access_peer(own, index))
        return f"GPU {own} has no peer access to GPU {blind[0]}" if blind else ""


@dataclass(eq=False, frozen=True)
class KnownCall:
    """Arguments that were seen before, in eager mode: equal to itself alone, so it is a quick key of ``ready``.
    ``named``: the implementation that was asked for."""

    group: RankGroup
    named: str
    dim: int


def group_named(name: str) -> RankGroup:
    """The group of a name; a fresh one where the name belongs to another group than before."""
    handle = group_resolver()(name)
    known = _groups.get(name)
    if known is None or known.handle is not handle:
        if known is not None:
            known.replaced = True
            known.forget()
        known = _groups[name] = RankGroup(name, handle, dist.get_rank(handle), dist.get_world_size(handle))
    return known


def digest_number(text: str) -> int:
    """A number below 2^62 that two texts hardly share."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 2
