# SPDX-License-Identifier: Apache-2.0
"""torch's styles against ours on four ranks of gloo: the cases of styles_job.py, in one job for all of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import torch_jobs

pytest.importorskip("torch")
JOB = Path(__file__).with_name("styles_job.py")
CASES = re.findall(r"^@case\ndef (\w+)", JOB.read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """By case, what went wrong on each rank."""
    folder = tmp_path_factory.mktemp("styles")
    job = torch_jobs.Job("styles", [str(JOB)], str(folder / "output"), ranks=4)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LAGOM_")}
    done = torch_jobs.run([job], folder, {**clean, "LAGOM_CACHE": "off"})["styles"]
    lines = [json.loads(line) for line in done.said.splitlines() if line.startswith('{"case"')]
    assert lines, done.said[-3000:]
    return {line["case"]: line["wrong"] for line in lines}


@pytest.mark.parametrize("name", CASES)
def test_case(outcomes: dict[str, list[str]], name: str) -> None:
    assert name in outcomes, f"the job ended before: {list(outcomes)}"
    assert outcomes[name] == [""] * 4, "\n".join(outcomes[name])


def test_dtensor_is_imported_with_the_styles_only() -> None:
    code = (
        "import sys, lagom.parallel as p\n"
        "assert 'torch.distributed.tensor.parallel' not in sys.modules\n"
        "from lagom.parallel import ColwiseParallel\n"
        "from torch.distributed.tensor.parallel import ColwiseParallel as theirs\n"
        "assert issubclass(ColwiseParallel, theirs)\n"
        "assert not hasattr(p, 'SequenceParallels')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
