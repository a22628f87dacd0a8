# SPDX-License-Identifier: Apache-2.0
"""Several jobs in one process, one after the other, a few steps each under torch.profiler: one start pays for all.

torchrun --nproc-per-node 4 traces.py --jobs fsdp-2048,fsdp-8192,ddp,tp --to FOLDER
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Callable
from pathlib import Path

import common
import ddp
import fsdp
import torch
import torch.distributed as dist
import tp
from models import build

WARM_UP, TRACED = 8, 3


def train(name: str, device: torch.device) -> Callable[[], object]:
    """One step of the named job."""
    kind, _, tokens = name.partition("-")
    if kind == "fsdp":
        return _fsdp(int(tokens), device)
    arguments = argparse.Namespace(layers=6, tokens=int(tokens or 8192))
    model = (ddp if kind == "ddp" else tp).build(arguments, device)
    batch = torch.randn(arguments.tokens, 4096, device=device, dtype=torch.bfloat16)
    return _step(model, lambda: model(batch).float().square().mean())


def _fsdp(tokens: int, device: torch.device) -> Callable[[], object]:
    shape = os.environ.get("TRACES_SHAPE", "llama3_8b")
    model = build(shape, 3, 32000, tokens, device)
    fsdp.shard(model, device.type)
    batch = torch.randint(32000, (max(1, tokens // 2048), min(tokens, 2048)), device=device)
    return _step(model, lambda: model(input_ids=batch, labels=batch).loss)


def _step(model: torch.nn.Module, loss_of: Callable[[], torch.Tensor]) -> Callable[[], object]:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, foreach=False)  # TP mixes DTensor and plain tensors

    def step() -> float:
        loss = loss_of()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return float(loss.item())

    return step


def trace(step: Callable[[], object], file: Path, device: torch.device) -> None:
    """A trace of ``TRACED`` steps."""
    for _ in range(WARM_UP):
        step()
    dist.barrier()
    kind = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kind.CUDA if device.type == "cuda" else kind.CPU]) as profile:
        for _ in range(TRACED):
            step()
        if device.type == "cuda":
            torch.cuda.synchronize()
    profile.export_chrome_trace(str(file))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="fsdp-2048,fsdp-8192,ddp,tp")
    parser.add_argument("--to", type=Path, required=True)
    arguments = parser.parse_args()
    device = common.start()
    arguments.to.mkdir(parents=True, exist_ok=True)
    for name in arguments.jobs.split(","):
        step = train(name, device)
        trace(step, arguments.to / f"{name}-rank{dist.get_rank()}.json", device)
        del step
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
        if dist.get_rank() == 0:
            print(f"traced {name}", flush=True)
    common.finish()


if __name__ == "__main__":
    main()
