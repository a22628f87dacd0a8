# SPDX-License-Identifier: Apache-2.0
"""For every unit test: a folder of its own for shared memory, on request."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def shm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where regions lie in this test."""
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setenv("LAGOM_SHM_DIR", str(folder))
    return folder
