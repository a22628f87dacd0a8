# SPDX-License-Identifier: Apache-2.0
"""NCCL 2.21 to 2.26 on GPUs: a size rule shows in the kernels from the first call on, and results stay exact.

``LAGOM_TEST_NCCL_OLD`` names libraries of those releases (``:`` between them); their wheels bring them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lagom.doctor.nccl_versions import capabilities, version_from_code
from tests.gpu.support import JOBS, Place, Ran, run

OLD = [path for path in os.environ.get("LAGOM_TEST_NCCL_OLD", "").split(":") if path]
ITERATIONS = 8


def play(spot: Place, library: str, gpus: int, **variables: str) -> dict[str, Any]:
    """The job's last line."""
    job = [sys.executable, str(JOBS / "own_nccl.py"), library, "--gpus", str(gpus), "--iterations", str(ITERATIONS)]
    ran: Ran = run(job, spot.with_plugin(LAGOM_CONTROLLER="none", **variables), spot.folder)
    assert ran.code == 0, ran.tail()
    return ran.last("grids")


@pytest.mark.skipif(not OLD, reason="LAGOM_TEST_NCCL_OLD names no libnccl of 2.21 to 2.26")
@pytest.mark.parametrize("library", OLD or [""], ids=[Path(path).parent.name for path in OLD] or ["none"])
def test_a_size_rule_shows_in_the_kernels(library: str, gpus: int, spot: Place, evidence: Callable[..., None]) -> None:
    stock = play(spot, library, gpus, LAGOM_MODE="off")
    assert stock["wrong"] == 0
    assert capabilities(version_from_code(stock["version"])).replay == "size rules", "this NCCL tells ids"
    ruled = play(spot, library, gpus, LAGOM_MODE="replay", LAGOM_SET="allgather:>=1M:nc=2")
    assert ruled["wrong"] == 0
    assert set(ruled["grids"]["AllGather"]) == {2}
    assert ruled["grids"]["AllReduce"] == stock["grids"]["AllReduce"]
    asked = play(spot, library, gpus, LAGOM_MODE="auto", LAGOM_SET="allgather:>=1M:nc=2")
    assert asked["grids"] == stock["grids"], "nobody asked for replay"
    evidence(version=stock["version"], stock=stock["grids"], ruled=ruled["grids"])
