# SPDX-License-Identifier: Apache-2.0
"""The numbers of ``lagom profile --json``: each means what its name says, on a job worked out by hand."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from lagom import timeline
from lagom.report import profile_report

GATHER = "ncclDevKernel_AllGather_RING_LL"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
Kernel = tuple[float, float, int, str]

#: One step in µs: a group of much communication, and from 500 on one of much compute. |C n K| = 140 and 50.
STEP: tuple[Kernel, ...] = (
    (0, 400, 2, GATHER), (0, 140, 1, "gemm"), (410, 460, 1, "norm"),
    (500, 600, 3, SCATTER), (550, 790, 1, "wgrad"),
)  # fmt: skip


def document(kernels: tuple[Kernel, ...], steps: int = 5, length: float = 800) -> dict[str, Any]:
    """What the command writes for ``steps`` times the kernels, ``length`` µs apart; the last step lacks its end."""
    rows = [(begin + length * k, end + length * k, *rest) for k in range(steps) for begin, end, *rest in kernels]
    names = sorted({str(row[3]) for row in rows})
    start, end = (10**9 + np.array([round(1000 * row[at]) for row in rows]) for at in (0, 1))
    table = timeline.build(start, end, [row[2] for row in rows], names, [names.index(row[3]) for row in rows])
    written = json.dumps(profile_report.to_json(timeline.profile([table]), "by hand"), allow_nan=False)
    return json.loads(written)


def test_a_group_s_numbers_by_hand() -> None:
    first, second = document(STEP)["groups"]
    assert first == {
        "pattern": 0, "z": 500_000, "x": 400_000, "y": 190_000, "overlap": 140_000, "exposed": 260_000,
        "overlap_ratio": pytest.approx(140 / 400), "oef": pytest.approx(140 / 190),
    }  # fmt: skip
    assert second == {
        "pattern": 1, "z": 300_000, "x": 100_000, "y": 240_000, "overlap": 50_000, "exposed": 50_000,
        "overlap_ratio": pytest.approx(50 / 100), "oef": pytest.approx(50 / 100),
    }  # fmt: skip


def test_a_step_s_numbers_by_hand() -> None:
    """X = 400 + 100, Y = 140 + 50 + 240, overlap 190: exposed 310, idle 800 - (500 + 430 - 190) = 60."""
    found = document(STEP)
    wanted = {
        "steps": 4,
        "irregular": 0,
        "z_max": 800_000,
        "x": 500_000,
        "y": 430_000,
        "exposed": 310_000,
        "idle": 60_000,
    }
    assert {name: found[name] for name in wanted} == wanted
    assert found["overlap_ratio"] == pytest.approx(190 / 500)
    (row,) = found["by_rank"]
    assert row == {
        "rank": 0, "steps": 4, "z": 800_000, "x": 500_000, "y": 430_000, "exposed": 310_000, "wait": 0, "overhead": 0,
    }  # fmt: skip
    assert [sample["z_max"] for sample in found["step_samples"]] == [800_000] * 4


def test_patterns_and_sites_say_the_same_as_the_groups() -> None:
    found = document(STEP)
    for pattern, group in zip(found["patterns"], found["groups"], strict=True):
        for name in ("z", "x", "y", "overlap", "exposed", "overlap_ratio", "oef"):
            assert pattern[name] == group[name], name
    sites = [(site["x"], site["exposed"], site["hidden"]) for site in found["sites"]]
    assert sites == [(400_000, 260_000, pytest.approx(0.35)), (100_000, 50_000, pytest.approx(0.5))]


def test_what_is_unknown_is_null() -> None:
    """A group without compute has no OEF, and where no two steps are found the one has an overhead without an
    interval."""
    alone, _ = document(((0, 100, 2, GATHER), (150, 180, 3, SCATTER), (150, 180, 1, "gemm")), length=200)["groups"]
    assert (alone["y"], alone["overlap_ratio"], alone["oef"], alone["exposed"]) == (0, 0, None, 100_000)
    found = document(((0, 140, 2, GATHER), (0, 140, 1, "gemm"), (150, 250, 1, "gemm")), steps=1)
    overhead = found["overhead"]
    assert found["steps"] == 1
    assert math.isclose(overhead["share"], 40 / 240)
    assert (overhead["low"], overhead["high"]) == (None, None)
