# SPDX-License-Identifier: Apache-2.0
"""What the cases on ranks of gloo share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.processor_time import shared
from tests.unit.parallel.gloo_jobs import SHAPES, Outcomes, outcomes_of

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcomes]:
    """Of the jobs whose tests were asked for."""
    asked = {item.path.stem.removeprefix("test_") for item in request.session.items if item.path.parent == HERE}
    with shared("ranks of lagom.parallel on gloo"):
        return outcomes_of(sorted(asked & SHAPES.keys()), tmp_path_factory.mktemp("gloo"))
