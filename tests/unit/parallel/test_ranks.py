# SPDX-License-Identifier: Apache-2.0
"""The operators on four ranks of gloo: the cases of ranks_job.py, in one job for all of them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests import torch_jobs
from tests.tiers import amount

pytest.importorskip("torch")
JOB = Path(__file__).with_name("ranks_job.py")
CASES = re.findall(r"^@case\ndef (\w+)", JOB.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """By case, what went wrong on each rank."""
    folder = tmp_path_factory.mktemp("ranks")
    job = torch_jobs.Job("ranks", [str(JOB)], str(folder / "output"), ranks=4)
    given = {"LAGOM_CACHE": "off", "FOLDER": str(folder), "SHAPES": str(amount(32, 200))}
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LAGOM_")}
    done = torch_jobs.run([job], folder, {**clean, **given})["ranks"]
    lines = [json.loads(line) for line in done.said.splitlines() if line.startswith('{"case"')]
    assert lines, done.said[-3000:]
    return {line["case"]: line["wrong"] for line in lines}


@pytest.mark.parametrize("name", CASES)
def test_case(outcomes: dict[str, list[str]], name: str) -> None:
    assert name in outcomes, (
        f"an earlier case ended the job: {[case for case, wrong in outcomes.items() if any(wrong)]}"
    )
    assert outcomes[name] == [""] * 4, "\n".join(outcomes[name])
