"""What ``lagom doctor`` checks: one file for each question, each returns findings with their remedies.

Nothing here imports torch or needs a GPU: wheels are read from their metadata, and libraries are asked in a process of
their own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How bad it is. Only a PROBLEM makes ``lagom doctor`` exit with 1."""

    OK = "ok"
    NOTE = "note"  # works, but with less than could be had
    PROBLEM = "problem"  # lagom will not tune, or another NCCL runs than one would think


@dataclass(frozen=True, slots=True)
class Finding:
    """``area`` is the question, ``text`` the answer, ``remedy`` what to do about it (empty only where all is well)."""

    level: Level
    area: str
    text: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        """For ``--json``."""
        return {"level": self.level.value, "area": self.area, "text": self.text, "remedy": self.remedy}


def examine(environ: Mapping[str, str] | None = None, *, clean: bool = False) -> list[Finding]:
    """Every finding of this machine and environment; ``clean`` also removes stale regions."""
    from lagom.doctor import libraries, memory, plugin, variables

    here = os.environ if environ is None else environ
    return [
        *plugin.examine(here),
        *libraries.examine(here),
        *variables.examine(here),
        *plugin.examine_cupti(here),
        *memory.examine(here, clean=clean),
    ]
