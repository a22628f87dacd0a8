# SPDX-License-Identifier: Apache-2.0
"""The table of collective matmuls: what its numbers mean, and that it rehearses on a machine without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
from benchmarks.jobs.arms import gain
from benchmarks.jobs.collective_matmul import best_arm, line, shapes, summary, table
from tests.tiers import FULL

CYCLES = (1.0, 1.1, 0.9, 1.0)  # all arms of a cycle are slow or fast together
NS = {"by_hand": 95e3, "plain": 100e3, "plain_again": 100e3, "fused": 90e3, "looped": 200e3, "copies": 80e3}
NS |= {"auto": 80.5e3, "copies_pooled": 50e3, "auto_pooled": 100e3}
SAMPLES = {name: [took * cycle for cycle in CYCLES] for name, took in NS.items()}
CHOICES = [{"chosen": "copies", "captured": "looped"}, {"chosen": "plain", "captured": "looped"}]
ROW = {"ranks": 4, "graphs": False, "model": "8B", "tokens": 8192, "matmul": "AG→up", "samples_ns": SAMPLES}
DATA = {"rows": [{**ROW, "choices": CHOICES}, {**ROW, "graphs": True, "choices": CHOICES}]}


def test_speed_ups_are_paired_by_cycle() -> None:
    assert gain(SAMPLES, "copies") == pytest.approx((1.25, 1.25, 1.25))
    assert gain(SAMPLES, "auto", "fused")[0] == pytest.approx(90 / 80.5)


def test_the_best_arm_is_one_that_could_have_been_chosen() -> None:
    assert best_arm(SAMPLES, "auto") == "copies"
    assert best_arm(SAMPLES, "auto_pooled") == "copies_pooled"


def test_a_row_and_the_summary_say_what_was_chosen_and_what_it_misses() -> None:
    first, second = table(DATA).splitlines()[2:]
    assert first == line(DATA["rows"][0])
    assert "| copies | 1.242 [1.242, 1.242] | 0.994 | 1.118 | plain | 1.000 [1.000, 1.000] | 0.500 | 0.900 |" in first
    assert second.startswith("| 4, graph | 8B T=8192 AG→up | 0.100 |")
    assert "| looped |" in second
    told = summary(DATA).splitlines()
    assert told[0] == (
        "- TP 4, `auto`: 1 rows, 1.242 to 1.242 of plain, below 0.99 in 0; within 1 % of the best arm in 1; at least "
        "1.03 of fused in 1"
    )
    assert "within 1 % of the best arm in 0" in told[1]


def test_the_shapes_are_those_of_a_rank() -> None:
    found = {(one["model"], one["tokens"], one["matmul"]): one["sizes"] for one in shapes(["8B", "70B"], 4)}
    assert len(found) == 24
    assert found["8B", 8192, "AG→qkv"] == [4096, 1536]
    assert found["70B", 2048, "down→RS"] == [7168, 8192]


@pytest.mark.skipif(not FULL, reason="half a minute of two ranks; the full tests run it")
def test_it_rehearses_and_goes_on_where_it_ended(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    command = [sys.executable, "-m", "benchmarks.jobs.collective_matmul", "--gloo", "--models", "tiny", "--ranks", "2"]
    for count in (1, 2):
        options = ["--most", "1", "--each", "0.2", "--port", "29640", "--out", str(file)]
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        rows = json.loads(file.read_text())["rows"]
        assert len(rows) == count
    assert {"plain", "looped", "auto"} <= rows[0]["samples_ns"].keys()
    assert "it needs CUDA devices" in rows[0]["failed"]["copies"]
