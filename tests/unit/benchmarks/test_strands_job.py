# SPDX-License-Identifier: Apache-2.0
"""The benchmark of strands: what its table says, and that it rehearses on a machine without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from benchmarks.jobs.strands import more_lines
from lagom.parallel.strands import SCHEDULES
from lagom.parallel.strands.trying import BY_COPIES
from tests.tiers import FULL


def test_activations_and_errors_are_told() -> None:
    samples = {"plain": [4.0] * 3, "plain_again": [4.0] * 3, "weights_moved": [3.0] * 3, "turns": [2.0] * 3}
    row = {"activation_bytes": {"plain": 2**20, "turns": 2**21}}
    row |= {"samples_ns": samples, "errors": {"plain": 0.0, "turns": 0.011}, "plain_twice_error": 0.01}
    assert more_lines(row) == [
        "activations of a rank: plain 1.0 MiB, turns 2.0 MiB",
        "gradients differ by, of their norm: plain twice 0.01, plain 0, turns 0.011",
        "over weight gradients moved: turns 1.500 [1.500, 1.500]",
    ]


@pytest.mark.skipif(not FULL, reason="half a minute of two ranks; the full tests run it")
def test_it_rehearses(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.jobs.strands",
        "--gloo",
        "--ranks",
        "2",
        "--layers",
        "1",
        "--micro",
        "3",
    ]
    command += ["--model", "tiny", "--tokens", "32", "--each", "0.1", "--port", "29680", "--out", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(file.read_text())["rows"]
    arms = {*SCHEDULES, "plain", "plain_again", "matmul"} - {"sequential", *BY_COPIES}
    assert row["samples_ns"].keys() == arms | {f"{name}+matmul" for name in ("turns", "turns_abreast")}
    assert row["failed"].keys() == {*BY_COPIES, *(f"{name}+matmul" for name in BY_COPIES)}
    assert any("all_gather_matmul" in one for one in row["operators"])
