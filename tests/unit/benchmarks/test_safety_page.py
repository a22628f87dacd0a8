# SPDX-License-Identifier: Apache-2.0
"""The safety table says what its evidence says, and fits on a page."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import safety_page

STORM = {
    "plans": {"committed": 2100, "aborted": 30},
    "seconds": 480.0,
    "distinct function-size-config combinations run": 4321,
    "differing": [],
    "legal": {"channels": 24, "threads": True, "chunk": True},
    "regime": "host",
    "nccl": "2.30.7",
}
GPU: dict[str, Any] = {
    "about": {"commit": "abc", "date": "2026-11-20", "machine": "8 x GPU, torch 2, its NCCL 2.28.9"},
    "test_results_are_exact_while_configs_change[nvlink]": {**STORM, "iterations": 5000},
    "test_training_goes_on_as_without_us_while_configs_change[host]": {
        **STORM,
        "steps": 6000,
        "largest_difference": 0.0012,
    },
    "test_killed_controller_in_mid_tune_leaves_the_job_running_and_right": {"iterations": 700},
    "test_killed_rank_in_mid_tune_ends_the_job_as_without_us": {
        "stock": {"code": 1, "seconds": 6.1},
        "tuned": {"code": 1, "seconds": 6.4},
    },
}


def test_every_file_of_evidence_makes_rows_and_all_fit() -> None:
    rows = safety_page.rows()
    assert 3 <= len(rows) <= 14
    text = safety_page.table()
    for name, found in safety_page.evidence():
        if name.startswith("agreement"):
            assert f"{found['committed']:,} plans" in text
            assert found["differences"] == 0
        elif name.startswith(("kills", "soak")):
            assert found["violations"] == []


def test_rows_of_gpus() -> None:
    exact, training, controller, rank = safety_page.gpus(GPU)
    assert exact.done.startswith("8 x GPU, host memory, NCCL 2.30.7")
    assert "4,321 combinations of function, size and config" in exact.done
    assert training.done.startswith("8 x GPU, host memory")
    assert "8 minutes of FSDP" in training.done
    assert "0.12 %" in training.seen
    assert "700 iterations" in controller.seen
    assert "exit code 1 after 6.4 s; without Lagom 1, 6.1 s" in rank.seen


def test_a_gpu_that_ranks_share_is_no_nvlink() -> None:
    shared = {"about": {"machine": "1 x GPU, torch 2; 2 ranks share it, under another NCCL"}}
    (row,) = safety_page.gpus(
        {**shared, "test_results_are_exact[nvlink]": {**STORM, "regime": "nvlink", "iterations": 5}}
    )
    assert row.done.startswith("1 x GPU shared by 2 ranks, copies within it, NCCL")
    assert "NVLink" not in row.done


@pytest.mark.parametrize(("seconds", "rows"), [(1439.0, 0), (1441.0, 1)])
def test_fuzzers_stand_there_once_all_have_run_long_enough(seconds: float, rows: int) -> None:
    target = {"cpu_seconds": seconds, "crashes_since": 0, "crashes_found_and_repaired": [], "executions": 10}
    found = {"targets": {"text": {**target, "cpu_seconds": 9e3}, "region": target}}
    assert len(list(safety_page.fuzzers(json.loads(json.dumps(found))))) == rows
