# SPDX-License-Identifier: Apache-2.0
"""What the small jobs share: a training loop that prints one JSON line a step, and torch.profiler for some steps."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of every small job."""
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=8192, help="per GPU and step")
    parser.add_argument("--steps", type=int, default=60)
    add_turns_option(parser)
    add_profiler_options(parser)


def add_profiler_options(parser: argparse.ArgumentParser) -> None:
    """When torch.profiler runs, as a user would start it."""
    parser.add_argument("--profile-steps", default="", help="FIRST:COUNT[:WARM-UP], commas between")
    parser.add_argument("--profile-to", default="", help="folder: one trace a rank and window")
    parser.add_argument("--wait-for", default="", help="before each window: steps go on until FOLDER/go-<n> exists")


def add_turns_option(parser: argparse.ArgumentParser) -> None:
    """When steps wait, for jobs that take turns on the same GPUs."""
    parser.add_argument("--turns", default="", help="FILE: holds the number of the first step that waits; may change")


class Turns:
    """Makes a step wait as long as the file says so. Ranks stop before the same step, so none waits in a kernel. A rank
    that has come to wait says so by a file of its own, ``FILE.<rank>``. Before the first step it gives back the memory
    that building the model has left: jobs that take turns share their GPUs."""

    def __init__(self, file: str) -> None:
        self._file = Path(file) if file else None

    def wait(self, step: int) -> None:
        """Before step ``step``."""
        if self._file is None or step < int(self._file.read_text()):
            return
        if step == 0 and torch.cuda.is_available():
            torch.cuda.empty_cache()
        Path(f"{self._file}.{dist.get_rank()}").touch()
        while step >= int(self._file.read_text()):
            time.sleep(0.0005)


class Profiles:
    """Starts and stops torch.profiler at given steps, or when a file says so; ``step`` is called before each step."""

    def __init__(self, arguments: argparse.Namespace, device: torch.device) -> None:
        windows = [[int(word) for word in part.split(":")] for part in arguments.profile_steps.split(",") if part]
        self._windows, self._device = windows, device
        self._folder = Path(arguments.profile_to or ".")
        self._gate = Path(arguments.wait_for) if arguments.wait_for else None
        self._number, self._left, self._warm_up = 0, 0, 0
        self._profile: torch.profiler.profile | None = None

    def step(self, number: int) -> None:
        """Before step ``number``."""
        if self._profile is not None:
            self._go_on(self._profile)
        elif self._number < len(self._windows) and self._may_begin(number):
            _, self._left, *warm_up = self._windows[self._number]
            self._start(sum(warm_up))

    def _may_begin(self, number: int) -> bool:
        if self._gate is None:
            return number >= self._windows[self._number][0]
        if number % 5:
            return False
        seen = torch.tensor([(self._gate / f"go-{self._number}").exists()], dtype=torch.int32, device=self._device)
        dist.broadcast(seen, 0)
        return bool(seen.item())

    def _start(self, warm_up: int) -> None:
        """With steps to warm up as torch's documentation has it: recorded, and thrown away."""
        kind = torch.profiler.ProfilerActivity
        activities = [kind.CUDA] if self._device.type == "cuda" else [kind.CPU]
        schedule = torch.profiler.schedule(wait=0, warmup=warm_up, active=self._left + 1) if warm_up else None
        self._warm_up = warm_up
        self._profile = torch.profiler.profile(activities=activities, schedule=schedule)
        self._profile.start()
        if not warm_up:
            _mark(self._folder, f"begun-{self._number}")

    def _go_on(self, profile: torch.profiler.profile) -> None:
        if self._warm_up:
            self._warm_up -= 1
            profile.step()
            if not self._warm_up:
                _mark(self._folder, f"begun-{self._number}")
            return
        self._left -= 1
        if self._left <= 0:
            self._stop()

    def _stop(self) -> None:
        assert self._profile is not None
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        self._profile.stop()
        _mark(self._folder, f"ended-{self._number}")
        self._profile.export_chrome_trace(str(self._folder / f"window{self._number}-rank{dist.get_rank()}.json"))
        self._profile = None
        dist.barrier()  # every rank's trace is there when it is said
        _mark(self._folder, f"written-{self._number}")
        self._number += 1


def _mark(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if dist.get_rank() == 0:
        (folder / name).write_text(f"{time.monotonic_ns()}\n")


def clocks() -> dict[str, int]:
    """Now, on the two clocks that kernel traces use."""
    return {"at_ns": time.monotonic_ns(), "wall_ns": time.time_ns()}


def own_device() -> torch.device:
    """This rank's GPU, made current; more ranks than GPUs share them. The CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def start() -> torch.device:
    """Process group and device of this rank."""
    device = own_device()
    if device.type == "cuda":
        dist.init_process_group("nccl", device_id=device)
    else:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    return device


def finish() -> None:
    """The end of a job. Gloo can abort a rank that leaves while another one is still at work ("terminate called without
    an active exception", torch 2.13), so all of them leave together."""
    dist.barrier()
    dist.destroy_process_group()


def print_step(step: int, began: float, loss: torch.Tensor) -> None:
    """Waits for the step to end; rank 0 prints it. ``began``: ``time.perf_counter()`` before it."""
    value = loss.item()
    if dist.get_rank() == 0:
        took = (time.perf_counter() - began) * 1e3
        print(json.dumps({"step": step, "ms": round(took, 3), **clocks(), "loss": value}), flush=True)


def run(
    arguments: argparse.Namespace, build: Callable[[argparse.Namespace, torch.device], nn.Module], width: int = 4096
) -> None:
    """Train what ``build`` makes; it takes (tokens, width)."""
    device = start()
    model = build(arguments, device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, foreach=False)  # TP mixes DTensor and plain tensors
    profiles, turns = Profiles(arguments, device), Turns(arguments.turns)
    batch = torch.randn(arguments.tokens, width, device=device, dtype=torch.bfloat16)
    for step in range(arguments.steps):
        turns.wait(step)
        profiles.step(step)
        began = time.perf_counter()
        loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print_step(step, began, loss)
    finish()
