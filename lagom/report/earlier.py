"""What an earlier report left in the folder of a new one."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from lagom.files import own_file

PAGE = "report.html"
#: What a tuning report calls its pictures; those of a second communicator have its number in front.
PICTURE = re.compile(r"(\d+-)?(path|convergence|sites|patterns|timeline-stock|timeline-tuned)\.png")


def pictures(folder: Path) -> list[Path]:
    """Those of the report that lies in a folder; none where no report does: then they are somebody else's."""
    if own_file(folder / PAGE) is None:
        return []
    return [file for file in folder.iterdir() if PICTURE.fullmatch(file.name) and own_file(file) is not None]


def remove(files: Iterable[Path]) -> None:
    """One that cannot be removed stays: the page beside it does not show it."""
    for file in files:
        with contextlib.suppress(OSError):
            file.unlink()
