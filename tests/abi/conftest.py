# SPDX-License-Identifier: Apache-2.0
"""Real wheels: hundreds of megabytes each, so only where LAGOM_TEST_ABI=1 asks for it (``make test-abi``)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FOUND = pytest.StashKey[dict[str, Any]]()
REASON = "downloads NCCL's wheels (200 to 350 MB each); `make test-abi` runs it"


def pytest_configure(config: pytest.Config) -> None:
    config.stash[FOUND] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(1800))
            if os.environ.get("LAGOM_TEST_ABI", "") != "1":
                item.add_marker(pytest.mark.skip(reason=REASON))


@pytest.fixture(scope="session")
def evidence(request: pytest.FixtureRequest) -> Callable[[str, dict[str, Any]], None]:
    """Keeps what was seen of a wheel, for the file that LAGOM_TEST_EVIDENCE names."""

    def keep(wheel: str, found: dict[str, Any]) -> None:
        kept = request.config.stash[FOUND]
        kept.setdefault(wheel, {}).update(found)
        if path := os.environ.get("LAGOM_TEST_EVIDENCE"):
            Path(path).write_text(json.dumps(kept, indent=1) + "\n")

    return keep
