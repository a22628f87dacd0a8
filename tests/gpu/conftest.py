# SPDX-License-Identifier: Apache-2.0
"""Everything here needs GPUs: elsewhere each test skips with one reason. What was measured is printed at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.evidence import circumstances
from tests.gpu.support import NO_MULTICAST, SHARED_BY, Kernel, Place, kernels, place, rank_count, run, torchrun, why_not

HERE = Path(__file__).parent
EVIDENCE = pytest.StashKey[dict[str, Any]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[EVIDENCE] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if item.path.is_relative_to(HERE)]
    reason = why_not() if ours else ""
    for item in ours:
        item.add_marker(pytest.mark.gpu)
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(240))
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
    for name, value in NO_MULTICAST.items() if ours else ():
        os.environ.setdefault(name, value)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Why a test failed, at once: pytest tells at the end, and a machine may be taken away before."""
    name = os.environ.get("LAGOM_TEST_EVIDENCE")
    if name and report.failed:
        with Path(name).with_suffix(".failed.txt").open("a") as told:
            told.write(f"{report.nodeid} ({report.when})\n{report.longreprtext}\n\n")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    for name, found in config.stash[EVIDENCE].items():
        terminalreporter.write_line(f"evidence {name}: {json.dumps(found)}")


def about() -> dict[str, Any]:
    """How the evidence came to be."""
    import torch

    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    count = 1 if SHARED_BY else rank_count()
    gpus = f"{count} x {torch.cuda.get_device_name(0)}, torch {torch.__version__}, its NCCL {nccl}"
    if SHARED_BY:
        gpus += f"; {SHARED_BY} ranks share it, under another NCCL: what is called nvlink never leaves the GPU"
    head = circumstances("tests/gpu")
    return {"commit": head["commit"], "date": head["date"], "machine": gpus}


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Keeps numbers for the end of the run, and for the file that LAGOM_TEST_EVIDENCE names. What other runs of the
    same commit on the same GPUs have put there stays."""

    def keep(**found: Any) -> None:
        kept = request.config.stash[EVIDENCE]
        kept.setdefault("about", about())
        kept.setdefault(request.node.name, {}).update(found)
        if name := os.environ.get("LAGOM_TEST_EVIDENCE"):
            Path(name).write_text(json.dumps(_with_earlier(Path(name), kept), indent=1))

    return keep


def _with_earlier(path: Path, kept: dict[str, Any]) -> dict[str, Any]:
    earlier = json.loads(path.read_text()) if path.exists() else {}
    return {**earlier, **kept} if earlier.get("about") == kept["about"] else kept


@pytest.fixture
def spot(tmp_path: Path) -> Iterator[Place]:
    """A fresh place for one job."""
    with place(tmp_path / "job") as fresh:
        yield fresh


@pytest.fixture(scope="session")
def gpus() -> int:
    """How many ranks a job has here."""
    return rank_count()


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory, gpus: int) -> dict[str, list[Kernel]]:
    """The kernels of mixed.py without us, by rank: what NCCL does by itself on NVLink."""
    with place(tmp_path_factory.mktemp("stock")) as fresh:
        command = torchrun("mixed.py", gpus, "--iterations", "20", "--trace", str(fresh.traces))
        ran = run(command, fresh.environment(), fresh.folder)
        assert ran.code == 0, f"the job fails even without lagom: {ran.tail()}"
        return kernels(fresh.traces)
