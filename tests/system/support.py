# SPDX-License-Identifier: Apache-2.0
"""What system tests know of their job."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """A job's name, log folder and shared-memory folder, all its own."""

    environ: dict[str, str]
    folder: Path
    region: Path
    key: str

    def with_(self, **variables: str) -> dict[str, str]:
        """The environment of its ranks with more variables."""
        return {**self.environ, **variables}
