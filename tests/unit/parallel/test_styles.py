# SPDX-License-Identifier: Apache-2.0
"""torch's styles against ours on four ranks of gloo: the cases of styles_job.py, in one job for all of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.unit.parallel.gloo_jobs import Outcomes, check_case, names_in, outcomes_of

pytest.importorskip("torch")
CASES = names_in("styles")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of("styles", tmp_path_factory.mktemp("styles"))


@pytest.mark.parametrize("name", CASES)
def test_case(outcomes: Outcomes, name: str) -> None:
    check_case(outcomes, name)


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
