# SPDX-License-Identifier: Apache-2.0
"""The file of results: rows by name with all raw samples, and what each session measured them with.

What was measured elsewhere (other GPUs, another NCCL, a rehearsal) is not this machine's result: such a file is refused
as a whole. A row whose own definition has changed since is measured anew; its old samples move to ``superseded``.
"""

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
from lagom.errors import LagomError

FORMAT = 2
#: Where a file lay on the machine is nobody's business: paths are cut to their last two words.
PATHS = re.compile(r"(?<![\w.])/(?:[\w.+-]+/)+(?=[\w.+-]+/[\w.+-])")
#: Lists, and lists of lists, of numbers alone.
NUMBERS = re.compile(r"\[[\s\d.,eE+\-\[\]]*\]")
#: What a session was measured with; samples of two setups do not belong together.
SETUP = ("rehearsed", "gpus", "gpu", "nccl", "nccl_230", "torch")
#: What is said about a row, or how it is judged or planned, does not change what was measured.
PROSE = ("asks", "seconds", "target", "arm", "least_gpus", "note", "spread")


class OtherSetup(LagomError):
    """A file of results that were measured with something else than this session has."""


class Results:
    """Loaded from an earlier file if there is one; written after each row. Raises :class:`OtherSetup`."""

    def __init__(self, out: Path, earlier: Path | None, place: Place, arguments: list[str]) -> None:
        self.out = out
        source = earlier or (out if out.exists() else None)
        found: dict[str, Any] = json.loads(source.read_text()) if source is not None else {}
        self.rows: dict[str, Any] = found.get("rows", {})
        self.sessions: list[Any] = found.get("sessions", [])
        self.superseded: list[Any] = found.get("superseded", [])
        versions = {} if place.rehearse else place.versions()
        asked = {"began": time.strftime("%Y-%m-%d"), "gpus": place.gpus, "arguments": arguments}
        session = {**asked, "rehearsed": place.rehearse, **versions}
        self.setup = setup_of(session)
        self._check(source)
        self.sessions.append(session)

    def _check(self, source: Path | None) -> None:
        for name, entry in self.rows.items():
            theirs = entry.get("setup", {})
            if unlike := [part for part in SETUP if not _agree(theirs.get(part), self.setup[part], part)]:
                unequal = ", ".join(f"{part} {theirs.get(part)!r} there, {self.setup[part]!r} here" for part in unlike)
                raise OtherSetup(
                    f"{source} holds {name} as measured with another setup ({unequal}); name another file with --out."
                )

    def is_done(self, row: Row) -> bool:
        """Whether nothing is left of a row."""
        return bool(self.of(row).get("complete"))

    def of(self, row: Row) -> dict[str, Any]:
        """What is known of a row so far; nothing if its definition was another."""
        found = self.rows.get(row.name, {})
        return dict(found) if found and definition(found["row"]) == definition(asdict(row)) else {}

    def put(self, row: Row, found: dict[str, Any], seconds: float) -> None:
        """One row's result, on disk at once."""
        earlier = self.of(row)
        if row.name in self.rows and not earlier:
            self.superseded.append(self.rows[row.name])
        spent = earlier.get("seconds", 0.0) + seconds
        known = {"row": asdict(row), "setup": self._setup_with(earlier), "session": len(self.sessions) - 1}
        self.rows[row.name] = {**known, "seconds": round(spent, 1), **found}
        self.write()

    def _setup_with(self, earlier: dict[str, Any]) -> dict[str, Any]:
        """A session without NCCL 2.30 does not forget which one an earlier session had."""
        return {**self.setup, "nccl_230": self.setup["nccl_230"] or earlier.get("setup", {}).get("nccl_230", "")}

    def write(self) -> None:
        """The whole file, in one step."""
        whole = {"format": FORMAT, "sessions": self.sessions, "rows": self.rows, "superseded": self.superseded}
        partial = self.out.with_suffix(f".{os.getpid()}.partial")
        partial.write_text(PATHS.sub("", written(whole)))
        partial.replace(self.out)


def written(whole: dict[str, Any]) -> str:
    """As JSON for people and for diffs: samples, most of it, lie on one line each time."""
    return NUMBERS.sub(lambda found: re.sub(r"\n\s*", "", found[0]), json.dumps(whole, indent=1)) + "\n"


def setup_of(session: dict[str, Any]) -> dict[str, Any]:
    """What a session measures with."""
    return {part: session.get(part, "") for part in SETUP}


def definition(row: dict[str, Any]) -> dict[str, Any]:
    """What of a row decides what is measured, as it reads from a file. A field that came later has its default in older
    files, and one that has gone since says nothing: neither makes a row another one."""
    blank = asdict(Row("", "", "", ""))
    kept = {name: row.get(name, default) for name, default in blank.items() if name not in PROSE}
    read: dict[str, Any] = json.loads(json.dumps(kept))
    return read


def _agree(theirs: object, ours: object, part: str) -> bool:
    """A session may do without NCCL 2.30: then the rows that need it are not run."""
    return theirs == ours or (part == "nccl_230" and "" in (theirs, ours))
