# SPDX-License-Identifier: Apache-2.0
"""The benchmark jobs, tiny, with gloo on this machine: they run, their schedules compute what plain autograd computes.

Needs torch and transformers: lagom's own, or those of the Python that LAGOM_TEST_TORCH names.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import math
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.matrix.place import TINY

JOBS = Path(__file__).parents[3] / "benchmarks" / "jobs"
FULL = os.environ.get("LAGOM_TEST_FULL", "") == "1"
#: Each in seconds; the meshes only where there is time.
QUICK = ("fsdp.py", "tp_domino.py", "ep_two_batch.py", "contention.py")
LONG = (
    "fsdp.py --shape tiny_phi",
    "fsdp.py --shape tiny_mpt",
    "fsdp.py --checkpointing",
    "fsdp.py --mesh hsdp",
    "fsdp.py --mesh fsdp_tp",
    "tp_domino.py --data 2",
    "contention.py --pattern two",
    "trainer.py",
    "ddp.py",
    "launches.py",
    "two_nodes.py",
)


@functools.cache
def torch_python() -> str:
    """A Python with torch; empty if there is none."""
    named = os.environ.get("LAGOM_TEST_TORCH", "")
    if not named and importlib.util.find_spec("torch") is not None:
        return sys.executable
    return named


needs_torch = pytest.mark.skipif(
    not torch_python(),
    reason="torch is not installed here; `make dev` does it, or LAGOM_TEST_TORCH=/path/to/python names one that has it",
)


def run(words: str, ranks: int, steps: int = 2) -> list[dict[str, object]]:
    """The steps that a job printed."""
    script, *options = words.split()
    tiny = [*TINY[script]]
    if "--shape" in options and "--shape" in tiny:
        del tiny[tiny.index("--shape") : tiny.index("--shape") + 2]
    line = [torch_python(), "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), "--standalone"]
    line += [str(JOBS / script), *tiny, *options, "--steps", str(steps)]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(text) for text in done.stdout.splitlines() if text.startswith('{"step"')]


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize("words", [*QUICK, *(LONG if FULL else ())])
def test_a_job_runs_and_prints_a_line_a_step(words: str) -> None:
    ranks = 4 if any(word in words for word in ("hsdp", "fsdp_tp", "--data")) else 2
    steps = run(words, ranks)
    assert len(steps) == 2
    for step in steps:
        assert float(str(step["ms"])) > 0
        assert math.isfinite(float(str(step.get("loss", 0.0))))
        assert "wall_ns" in step


SCHEDULES = """
import os, sys
sys.path.insert(0, sys.argv[1])
os.environ.update(RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[2])
import torch, torch.distributed as dist
import ep_two_batch, tp_domino
dist.init_process_group("gloo")
torch.manual_seed(0)

def gradients(layers):
    found = [p.grad.clone() for p in layers.parameters()]
    for p in layers.parameters():
        p.grad = None
    return found

def compare(name, layers, scheduled, plain):
    ours = gradients((scheduled(), layers)[1])
    theirs = gradients((plain().backward(), layers)[1])
    worst = max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in zip(ours, theirs, strict=True))
    print(name, worst)
    assert worst < 1e-6, (name, worst)  # the losses are in single precision

def domino_forward(layer, x):
    x = x + layer.attention(layer.first(x))
    return x + layer.mlp(layer.second(x))

def expert_forward(layer, x):
    residual, normed = layer.attention(x)
    back = layer.experts(layer.routed(normed))
    shared = [layer.mix(normed)] if layer.shared_up is not None else []
    return layer.returned(back, residual, *shared)

def plain(layers, forward, batches):
    total = 0
    for x in batches:
        for layer in layers:
            x = forward(layer, x)
        total = total + x.square().mean()
    return total

batches = [torch.randn(2, 16, 256, dtype=torch.float64) for _ in range(2)]
layers = torch.nn.ModuleList(tp_domino.Layer("tiny", 1) for _ in range(2)).double()
domino = tp_domino.Domino(layers, dist.group.WORLD, dist.group.WORLD)
compare("domino", layers, lambda: domino.step(batches), lambda: plain(layers, domino_forward, batches))
batches = [torch.randn(2, 16, 128, dtype=torch.float64) for _ in range(2)]
layers = torch.nn.ModuleList(ep_two_batch.Layer("tiny", 1) for _ in range(2)).double()
compare("experts", layers, lambda: ep_two_batch.step(layers, batches), lambda: plain(layers, expert_forward, batches))
"""


@needs_torch
def test_schedules_compute_the_gradients_of_plain_autograd() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    line = [torch_python(), "-c", SCHEDULES, str(JOBS), port]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
