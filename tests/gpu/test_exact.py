# SPDX-License-Identifier: Apache-2.0
"""Right results, element by element on every rank, under random legal configs that change while the job runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lagom.records import Function
from tests.gpu.storming import Strength, judge, storm_beside
from tests.gpu.support import NCCL_230, Place, nccl_release, torchrun
from tests.tiers import FULL

# Plans are agreed in milliseconds: many more than the number asked for fit into the time.
MOST_SECONDS = float(os.environ.get("LAGOM_TEST_STORM_SECONDS", "400"))
STRENGTH = Strength(2000, MOST_SECONDS, 60) if FULL else Strength(200, 40, 15)
AT_LEAST_PLANS = STRENGTH.plans // 4  # on a slow machine
AT_LEAST_CONFIGS = 2000 if FULL else 200  # distinct (function, size, A, P, NC, NT, C) that really ran,
AT_LEAST_SHARE = 2 / 3  # or of all there are: through host memory, without chunk sizes, some 1,400
#: compute-sanitizer, where it is not on PATH.
SANITIZER = os.environ.get("LAGOM_TEST_SANITIZER", "") or shutil.which("compute-sanitizer") or ""
SANITIZER_STRENGTH = Strength(20, 120, 20)
SANITIZER_FOUND = 86  # its exit code when it has found something
REGIMES = ["nvlink", "host"]


@pytest.mark.timeout(STRENGTH.seconds + 300)
@pytest.mark.parametrize("regime", REGIMES)
def test_results_are_exact_while_configs_change(
    regime: str, spot: Place, gpus: int, evidence: Callable[..., None]
) -> None:
    """With the NCCL that comes with torch."""
    exact_through(spot, gpus, regime, evidence)


@pytest.mark.timeout(STRENGTH.seconds + 300)
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.skipif(not NCCL_230, reason="LAGOM_TEST_NCCL_230 names no libnccl.so.2 of release 2.30.3 or later")
def test_results_are_exact_while_chunks_change(
    regime: str, spot: Place, gpus: int, evidence: Callable[..., None]
) -> None:
    report = exact_through(spot, gpus, regime, evidence, LD_PRELOAD=NCCL_230)
    assert report["legal"]["chunk"], f"no chunk size could be set with {NCCL_230}: {report['legal']}"


@pytest.mark.timeout(SANITIZER_STRENGTH.seconds + 400)
@pytest.mark.skipif(not SANITIZER, reason="compute-sanitizer is not on PATH and LAGOM_TEST_SANITIZER does not name it")
@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("preload", ["", NCCL_230] if NCCL_230 else [""], ids=lambda path: "2.30" if path else "torchs")
def test_no_illegal_memory_access_while_configs_change(
    preload: str, regime: str, spot: Place, evidence: Callable[..., None]
) -> None:
    """A short run of two ranks under memcheck: what is legal for us is within what NCCL's kernels can take."""
    memcheck = [SANITIZER, "--tool", "memcheck", "--target-processes", "all", "--error-exitcode", str(SANITIZER_FOUND)]
    memcheck += ["--report-api-errors", "no"]  # NCCL asks CUDA for kernels that it was not built with, and copes
    extra = {"LD_PRELOAD": preload} if preload else {}
    command = [*memcheck, *job(spot, 2)]
    ran, report = storm_beside(spot, 2, command, SANITIZER_STRENGTH, regime=regime, **extra)
    wrong = [line for line in ran.lines if "ERROR SUMMARY" in line and "ERROR SUMMARY: 0 errors" not in line]
    assert not wrong, f"{wrong}; {ran.tail()}"
    evidence(regime=regime, errors=len(wrong), tool=SANITIZER, nccl=nccl_release(preload), **report)
    assert report["calls"].get("applied", 0) > 0, f"no plan changed any call: {report}"


def job(spot: Place, gpus: int) -> Sequence[str]:
    """Every collective that has a tuner, on integer-valued data."""
    return torchrun("mixed.py", gpus, "--until", str(spot.stop))


def exact_through(spot: Place, gpus: int, regime: str, evidence: Callable[..., None], **extra: str) -> dict[str, Any]:
    """The job under the storm: every element right, every function under many configs. The storm's report."""
    ran, report = storm_beside(spot, gpus, job(spot, gpus), STRENGTH, regime=regime, **extra)
    assert ran.last("exact").get("exact") is True, ran.tail()
    release = nccl_release(extra.get("LD_PRELOAD", ""))
    evidence(regime=regime, nccl=release, iterations=ran.last("exact")["iterations"], **report)
    judge(report, AT_LEAST_PLANS)
    tried = report["distinct function-size-config combinations run"]
    wanted = min(AT_LEAST_CONFIGS, AT_LEAST_SHARE * report["distinct combinations there are"])
    assert tried >= wanted, f"only {tried} configs ran, of {wanted:.0f}: {report}"
    missing = {function.word for function in Function} - set(report["distinct configs run, by function"])
    assert not missing, f"no plan ever changed {missing}: {report}"
    return report
