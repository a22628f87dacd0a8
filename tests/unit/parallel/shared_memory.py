# SPDX-License-Identifier: Apache-2.0
"""Symmetric memory of ranks on gloo: files that they share. It shows which memory is read and written, not the order on
a GPU."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor

import lagom.parallel as parallel
from lagom.parallel import symmetric_pool
from lagom.parallel.copies import Copies
from lagom.parallel.rank_group import RankGroup
from tests.unit.parallel.gloo_cases import LIMIT_S, RANK, RANKS

FOLDER = Path(os.environ["FOLDER"])


class SharedFile:
    """What a handle of symmetric memory does, by files that the ranks share."""

    made = 0

    def __init__(self, size: int) -> None:
        SharedFile.made += 1
        self._files = []
        for rank in range(RANKS):
            path = FOLDER / f"shared_{SharedFile.made}_{rank}"
            self._files.append(torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8))
        self.barrier()

    def get_buffer(self, rank: int, shape: tuple[int, ...], dtype: torch.dtype, offset: int) -> Tensor:
        count = torch.Size(shape).numel() * dtype.itemsize
        begin = offset * dtype.itemsize
        return self._files[rank][begin : begin + count].view(dtype).view(shape)

    def barrier(self, channel: int = 0, timeout_ms: int = LIMIT_S * 1000) -> None:
        assert timeout_ms == LIMIT_S * 1000, "that of the group, so that the end of a peer ends this rank"
        dist.barrier()


def allocate_shared(size: int, group: RankGroup, device: torch.device) -> symmetric_pool.Block:
    handle = SharedFile(size)
    block = symmetric_pool.Block(handle.get_buffer(RANK, (size,), torch.uint8, 0), handle, group)
    symmetric_pool._blocks.append(block)
    return block


@contextlib.contextmanager
def copies_without_a_gpu() -> Iterator[None]:
    """One stream that does everything at once."""
    names = ("Stream", "Event", "current_stream", "set_stream", "current_device", "set_device")
    streams = dict.fromkeys(names, mock.DEFAULT)
    with (
        mock.patch.multiple(torch.cuda, **streams),
        mock.patch.object(symmetric_pool, "allocate", allocate_shared),
        mock.patch.object(Copies, "refusal", return_value=""),
    ):
        yield
        parallel.release()
