# SPDX-License-Identifier: Apache-2.0
"""The operators on four ranks of gloo: the cases of ranks_job.py, in one job for all of them."""

from __future__ import annotations

import pytest

from tests.tiers import amount
from tests.unit.parallel.gloo_jobs import Outcomes, check_case, names_in, outcomes_of

pytest.importorskip("torch")
CASES = names_in("ranks")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    return outcomes_of("ranks", tmp_path_factory.mktemp("ranks"), SHAPES=str(amount(32, 200)))


@pytest.mark.parametrize("name", CASES)
def test_case(outcomes: Outcomes, name: str) -> None:
    check_case(outcomes, name)
