"""One thing the doctor found."""

from __future__ import annotations

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
