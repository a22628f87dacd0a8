# SPDX-License-Identifier: Apache-2.0
"""The benchmark of whole steps: its table, and that it rehearses on a machine without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
import torch

from benchmarks.jobs.stack_steps import Arm, lines, peak_of, table
from tests.tiers import FULL

SAMPLES = {"plain": [30e6, 33e6], "plain_again": [30e6, 33e6], "chosen": [24e6, 26.4e6]}
ROW = {"kind": "eager", "model": "8b", "tokens": 8192, "layers": 4, "ranks": 4, "samples_ns": SAMPLES}
ROW |= {"host_ns": SAMPLES, "peak_bytes": {"plain": 2**30, "chosen": 2**31}, "symmetric_bytes": {"chosen": 2**20}}
ROW |= {"failed": {"fused": "it needs\nCUDA devices"}}


def test_a_row_has_an_arm_a_line_and_says_what_failed() -> None:
    plain, again, chosen, fused = lines(ROW)
    assert plain == "| eager, 8b T=8192, 4 layers | plain | 31.50 | 31.50 | 1 | 1024 | – |"
    assert "| plain_again | 31.50 | 31.50 | 1.000 [1.000, 1.000] | – | – |" in again
    assert "| chosen | 25.20 | 25.20 | 1.250 [1.250, 1.250] | 2048 | 1 |" in chosen
    assert "| fused | – | – | it needs CUDA devices |" in fused
    assert table({"rows": [ROW]}).splitlines()[2:] == [plain, again, chosen, fused]


def test_the_memory_of_an_arm_is_its_own_whatever_others_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of other arms and their gradients are on the device, too: the fourth arm seemed to need 32 % more."""
    others, in_a_step = 7000, 90
    model = torch.nn.Sequential(torch.nn.Linear(2, 3, bias=False))  # 24 bytes
    x, grad = torch.zeros(1, 2, requires_grad=True), torch.zeros(1, 3)  # 8 and 12
    arm = Arm(model, x, grad)
    arm()
    own = 2 * (24 + 8) + 12
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: others + own)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: others + own + in_a_step)
    assert (arm.held(), peak_of(arm)) == (own, own + in_a_step)


@pytest.mark.skipif(not FULL, reason="ten seconds of two ranks; the full tests run it")
def test_it_rehearses_and_does_not_measure_a_row_twice(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks.jobs.tensor_parallel_step", "--gloo", "--ranks", "2", "--layers", "1"]
    command += ["--model", "tiny", "--tokens", "32", "--each", "0.1", "--port", "29660", "--out", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["rows"]
    assert row["samples_ns"].keys() == {"plain", "plain_again", "plain_operators", "chosen"}
    assert row["failed"] == dict.fromkeys(("fused", "copies"), "it needs CUDA devices")
