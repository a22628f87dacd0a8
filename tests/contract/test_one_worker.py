# SPDX-License-Identifier: Apache-2.0
"""A fixture that is a whole run is made once: its tests run in one worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.one_worker import ROOT, SHARED


@pytest.mark.parametrize("number", range(6))
def test_the_tests_of_a_module_that_is_named_run_in_one_worker(
    number: int, worker_id: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each says where it runs, in a folder of all workers; without xdist that is `master`."""
    base = tmp_path_factory.getbasetemp()
    said = Path(base if worker_id == "master" else base.parent) / "one_worker"
    with said.open("a") as file:
        file.write(f"{worker_id}\n")
    assert set(said.read_text().split()) == {worker_id}


def test_every_module_that_is_named_is_there() -> None:
    assert [name for name in SHARED if not (ROOT / name).exists()] == []
