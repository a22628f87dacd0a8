# SPDX-License-Identifier: Apache-2.0
"""What the jobs have in common: joining, ending together, a trace. As a user would write it; knows no tuner."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

TIMEOUT = timedelta(seconds=60)  # torch's own is ten minutes: too long for a test that hangs


def join() -> torch.device:
    """One process group over all ranks: NCCL, or gloo where there is no GPU (to rehearse the script)."""
    if not torch.cuda.is_available():
        dist.init_process_group("gloo", timeout=TIMEOUT)
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", timeout=TIMEOUT, device_id=device)
    return device


def any_rank_says(value: int, device: torch.device) -> int:
    """The largest value over the ranks: one collective of four bytes, and the host waits for it."""
    word = torch.tensor([value], dtype=torch.int32, device=device)
    dist.all_reduce(word, op=dist.ReduceOp.MAX)
    return int(word.item())


@contextlib.contextmanager
def traced(folder: Path | None) -> Iterator[None]:
    """torch.profiler over the whole job, one Chrome trace a rank."""
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    cuda = torch.cuda.is_available()
    activity = torch.profiler.ProfilerActivity.CUDA if cuda else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[activity]) as profile:
        yield
        if cuda:
            torch.cuda.synchronize()
    profile.export_chrome_trace(str(folder / f"rank{dist.get_rank()}.json"))
