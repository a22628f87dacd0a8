# SPDX-License-Identifier: Apache-2.0
"""torch's styles against ours on ranks of gloo: the cases of styles_job.py."""

from __future__ import annotations

import pytest

from tests.unit.parallel.gloo_jobs import Outcomes, check_case, names_in

pytest.importorskip("torch")


@pytest.mark.parametrize("name", names_in("styles"))
def test_case(outcomes: dict[str, Outcomes], name: str) -> None:
    check_case(outcomes["styles"], name)
