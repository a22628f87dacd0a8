# SPDX-License-Identifier: Apache-2.0
"""lagom.parallel on real streams: every result exact while streams are delayed at random, eager and as CUDA graphs; and
beside what jobs do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from tests.gpu.support import JOBS, SHARED_BY, Place, run

CALLS = 1000


@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(SHARED_BY), reason="ranks that share a GPU have no peer access to each other")
def test_every_result_is_exact_whatever_is_late(spot: Place, gpus: int, evidence: Callable[..., None]) -> None:
    command = [sys.executable, str(JOBS / "parallel_operators.py"), "--ranks", str(gpus), "--calls", str(CALLS)]
    done = run(command, spot.environment(), spot.folder, 540)
    assert done.code == 0, done.tail()
    found = done.last("wrong")
    wrong: list[dict[str, Any]] = found["wrong"]
    assert wrong == [dict.fromkeys(counts, 0) for counts in wrong]
    assert found["held"] > 0
    assert found["after"] == 0
    named = {chosen for chosen, source, _, _ in found["choices"] if source == "named"}
    refused = {name for _, _, refusals, _ in found["choices"] for name in refusals}
    assert named | refused >= {"plain", "looped", "fused", "copies", "copies_two_streams"}
    evidence(calls=CALLS, cases=len(wrong[0]), named=sorted(named), refused=sorted(refused))


@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(SHARED_BY), reason="ranks that share a GPU have no peer access to each other")
@pytest.mark.parametrize("part", ["graph", "reduce_overhead", "checkpointing", "limited", "memory", "strands"])
def test_a_block_is_exact_beside_what_jobs_do(spot: Place, gpus: int, part: str) -> None:
    command = [sys.executable, str(JOBS / "parallel_blocks.py"), "--ranks", str(gpus), "--parts", part]
    done = run(command, spot.environment(), spot.folder, 240)
    assert done.last("parts")["parts"][part]["codes"] == [0] * gpus, done.tail()


@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(SHARED_BY), reason="ranks that share a GPU have no peer access to each other")
def test_ranks_end_by_themselves_when_another_one_was_killed(spot: Place, gpus: int) -> None:
    command = [sys.executable, str(JOBS / "parallel_blocks.py"), "--ranks", str(gpus), "--parts", "killed"]
    done = run(command, spot.environment(), spot.folder, 300)
    found = done.last("parts")["parts"]["killed"]
    assert found["seconds"] < 60
    assert all(found["codes"]), f"0 = a rank ended as if nothing had been, None = it hung: {found}\n{done.tail()}"
    assert found["codes"][1] == -9
