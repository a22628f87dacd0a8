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
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.matrix.place import TINY
from tests import torch_jobs
from tests.processor_time import shared
from tests.tiers import FULL, amount

JOBS = Path(__file__).parents[3] / "benchmarks" / "jobs"
#: Each in seconds; the meshes only where there is time.
QUICK = ("fsdp.py", "tp_domino.py", "ep_two_batch.py", "contention.py")
LONG = (
    "fsdp.py --shape tiny_phi",
    "fsdp.py --shape tiny_mpt",
    "fsdp.py --checkpointing",
    "fsdp.py --mesh hsdp",
    "fsdp.py --mesh fsdp_tp",
    "tp_domino.py --data 2",
    "tp_strands.py --schedule turns",
    "contention.py --pattern two",
    "trainer.py",
    "ddp.py",
    "launches.py",
    "two_nodes.py",
)
WORDS = (*QUICK, *amount((), LONG))


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


def command(words: str, steps: int = 2) -> list[str]:
    """A job's script with its options."""
    script, *options = words.split()
    tiny = [*TINY[script]]
    if "--shape" in options and "--shape" in tiny:
        del tiny[tiny.index("--shape") : tiny.index("--shape") + 2]
    return [str(JOBS / script), *tiny, *options, "--steps", str(steps)]


def ranks_of(words: str) -> int:
    return 4 if any(word in words for word in ("hsdp", "fsdp_tp", "--data")) else 2


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch_jobs.Done]:
    """Every job that torchrun does not start, and the schedules compared, each on ranks forked from one process."""
    folder = tmp_path_factory.mktemp("jobs")
    (folder / "schedules.py").write_text(SCHEDULES)
    named = {words: (command(words), ranks_of(words)) for words in amount(WORDS, ())}
    named["schedules"] = ([str(folder / "schedules.py"), str(JOBS)], 1)
    jobs = [
        torch_jobs.Job(name, line, str(folder / str(number)), ranks)
        for number, (name, (line, ranks)) in enumerate(named.items())
    ]
    with shared("the benchmark jobs"):
        return torch_jobs.run(jobs, folder, os.environ, python=torch_python())


def steps_in(said: str) -> list[dict[str, object]]:
    """The steps that a job printed."""
    return [json.loads(text) for text in said.splitlines() if text.startswith('{"step"')]


def run_by_torchrun(words: str) -> torch_jobs.Done:
    line = [torch_python(), "-m", "torch.distributed.run", "--nproc-per-node", str(ranks_of(words)), "--standalone"]
    environ = {**os.environ, **torch_jobs.QUIET}
    done = subprocess.run([*line, *command(words)], env=environ, capture_output=True, text=True, check=False)
    return torch_jobs.Done(done.returncode, done.stdout + done.stderr)


@needs_torch
@pytest.mark.parametrize("words", WORDS)
def test_a_job_runs_and_prints_a_line_a_step(words: str, ended: dict[str, torch_jobs.Done]) -> None:
    code, said = run_by_torchrun(words) if FULL else ended[words]
    assert code == 0, said[-2000:]
    steps = steps_in(said)
    assert len(steps) == 2
    for step in steps:
        assert float(str(step["ms"])) > 0
        assert math.isfinite(float(str(step.get("loss", 0.0))))
        assert "wall_ns" in step


SCHEDULES = """
import sys
sys.path.insert(0, sys.argv[1])
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
def test_schedules_compute_the_gradients_of_plain_autograd(ended: dict[str, torch_jobs.Done]) -> None:
    code, said = ended["schedules"]
    assert code == 0, said[-2000:]
