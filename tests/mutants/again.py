# SPDX-License-Identifier: Apache-2.0
"""Faults of an earlier run that are judged again: which, where they are in the sources of now, and which test killed
them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tests.mutants.areas import ROOT, Stage
from tests.mutants.site import Fault

Row = dict[str, Any]
WAITING, GONE = "to be judged again", "no longer there"
#: What a row keeps when it is judged again.
KEPT = ("survived_at", "killed_at", "killed_by", "moved_from")


def wanted(rows: Sequence[Row], which: str) -> list[Row]:
    """What an interrupted run has left; else all that survived, or all killed ones, each of which is judged again only
    once."""
    left = [row for row in rows if row["outcome"] == WAITING and f"{which}_at" in row]
    return left or [row for row in rows if row["outcome"] == which and not (which == "killed" and "killed_at" in row)]


class Places:
    """The faults of now, by rule and line."""

    def __init__(self, faults: Iterable[Fault], sources: Mapping[str, bytes], taken: Iterable[str]) -> None:
        """``taken``: keys of the earlier run; no two of its faults become one."""
        self.sources = sources
        self.taken = set(taken)
        self.by_line: dict[tuple[str, str], list[Fault]] = defaultdict(list)
        for fault in faults:
            self.by_line[fault.operator, fault.first_line(sources[fault.path])].append(fault)

    def find(self, row: Row) -> Fault | None:
        """The fault of a row: at its place, else where its line is the only one such line of its file, or, if it is not
        in its file any more, of all files. Two equal lines are told apart by their order, in a file of another name
        too."""
        line = row["diff"].partition("\n")[0][1:]
        alike = [one for one in self.by_line[row["rule"], line] if one.diff(self.sources[one.path]) == row["diff"]]
        here = [one for one in alike if one.path == row["file"]] or alike
        exact = [one for one in here if self._key(replace(one, path=row["file"]), one.path) == row["key"]]
        for found in (exact, here):
            if len(found) == 1 and (key := self._key(found[0], found[0].path)) not in self.taken - {row["key"]}:
                self.taken.add(key)
                return found[0]
        return None

    def _key(self, fault: Fault, path: str) -> str:
        return fault.key(self.sources[path])


def place(row: Row, fault: Fault | None, source: bytes, which: str) -> None:
    """Write into a row where its fault is now, and what was known of it."""
    row |= {"outcome": GONE if fault is None else WAITING, f"{which}_at": row["commit"]}
    if which == "killed":
        row["killed_by"] = row.get("by", "")
    if fault is not None:
        row |= {"key": fault.key(source), "line": fault.line(source)}
        if fault.path != row["file"]:
            row |= {"file": fault.path, "moved_from": row["file"]}


def known_tests(folder: str = "tests") -> dict[str, set[str]]:
    """Each test of now, with its parameters and without, and the files that have one of that name."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LAGOM_", "NCCL_"))}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", folder]
    listed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout
    return by_name(line for line in listed.splitlines() if "::" in line)


def by_name(tests: Iterable[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for test in tests:
        file, _, name = test.partition("::")
        found[name].add(file)
        found[name.partition("[")[0]].add(file)
    return dict(found)


def same_test(by: str, known: Mapping[str, set[str]]) -> str:
    """The test that killed a fault: its id, else the only test of that name, else, of a unit test, all its parameters;
    empty if there is none."""
    file, _, name = by.partition("::")
    for one in (name, name.partition("[")[0] if file.startswith("tests/unit/") else ""):
        files = known.get(one, set())
        if file in files or len(files) == 1:
            return f"{file if file in files else next(iter(files))}::{one}"
    return ""


def first_stage(test: str, path: str) -> Stage:
    """That test alone, for a fault in ``path``."""
    return Stage((test,), library=not path.startswith("lagom/"), processes=test.startswith("tests/system/"))
