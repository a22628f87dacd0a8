# SPDX-License-Identifier: Apache-2.0
"""Nothing is decided by the wall clock: who reads it is listed here, with what for. tests/system/test_surroundings.py
runs a whole search under a wall clock that jumps."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WALL = re.compile(r"time\.time\b|datetime\.|CLOCK_REALTIME|gettimeofday|\btime\(NULL\)|\btime\(0\)|\btime\(&")
#: What runs beside a job and may decide something.
PACKAGES = ("controller", "search", "program", "cost", "timeline", "wire", "journal", "config_file.py", "records.py")
DECIDING = ("csrc", "tuner_plugin", *(f"lagom/{part}" for part in PACKAGES))
ALLOWED = {
    "csrc/protocol/lagom_protocol.h": "a comment: when the region was made, for the log folder's name",
    "csrc/shm/region_file.c": "writes that stamp",
    "csrc/timeline/activity.c": "the stamps of CUPTI itself, where it takes no clock of ours",
    "lagom/journal/schema.py": "the time of an event, for people",
}


def sources() -> list[Path]:
    """Every file of the deciding parts."""
    files = [ROOT / part for part in DECIDING if (ROOT / part).is_file()]
    folders = [ROOT / part for part in DECIDING if (ROOT / part).is_dir()]
    return files + [path for folder in folders for path in folder.rglob("*") if path.suffix in (".c", ".h", ".py")]


def test_only_the_listed_files_read_the_wall_clock() -> None:
    readers = {str(path.relative_to(ROOT)) for path in sources() if WALL.search(path.read_text())}
    assert readers == set(ALLOWED)
