"""The file of results: rows by name with all raw samples, and what each session measured them with."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.matrix.place import Place
from benchmarks.matrix.rows import Row

FORMAT = 1
#: Where a file lay on the machine is nobody's business: paths are cut to their last two words.
PATHS = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+(?=[\w.+-]+/[\w.+-])")


class Results:
    """Loaded from an earlier file if there is one; written after each row."""

    def __init__(self, out: Path, earlier: Path | None, place: Place, arguments: list[str]) -> None:
        self.out = out
        source = earlier or (out if out.exists() else None)
        found: dict[str, Any] = json.loads(source.read_text()) if source is not None else {}
        self.rows: dict[str, Any] = found.get("rows", {})
        self.sessions: list[Any] = found.get("sessions", [])
        versions = {} if place.rehearse else place.versions()
        asked = {"began": time.strftime("%Y-%m-%d"), "gpus": place.gpus, "arguments": arguments}
        self.sessions.append({**asked, "rehearsed": place.rehearse, **versions})

    def is_done(self, row: Row) -> bool:
        """Whether nothing is left of a row."""
        return bool(self.rows.get(row.name, {}).get("complete"))

    def of(self, row: Row) -> dict[str, Any]:
        """What is known of a row so far."""
        return dict(self.rows.get(row.name, {}))

    def put(self, row: Row, found: dict[str, Any], seconds: float) -> None:
        """One row's result, on disk at once."""
        spent = self.rows.get(row.name, {}).get("seconds", 0.0) + seconds
        session = len(self.sessions) - 1
        self.rows[row.name] = {"row": asdict(row), "session": session, "seconds": round(spent, 1), **found}
        self.write()

    def write(self) -> None:
        """The whole file, in one step."""
        text = json.dumps({"format": FORMAT, "sessions": self.sessions, "rows": self.rows}, indent=1)
        partial = self.out.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(PATHS.sub("", text) + "\n")
        partial.replace(self.out)
