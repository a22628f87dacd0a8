# SPDX-License-Identifier: Apache-2.0
"""The page of a kept result: how many faults the tests detected, by area and rule, and those that they did not.

python -m tests.mutants.mutants_page benchmarks/results/mutants_202611.json      # writes the .md beside it
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.template import render
from tests.mutants.again import GONE
from tests.mutants.areas import area_of

OUTCOMES = ("killed", "survived", "equivalent")


def count_outcomes(rows: list[dict[str, Any]], names: list[str]) -> list[tuple[str, list[int]]]:
    """Each name with how many of its rows were killed, survived, are equivalent."""
    found = [(name, row["outcome"]) for name, row in zip(names, rows, strict=True)]
    return [(name, [found.count((name, outcome)) for outcome in OUTCOMES]) for name in sorted(set(names))]


def page(run: dict[str, Any]) -> str:
    """The whole page, by ``benchmarks/templates/mutants.md.j2``."""
    rows = [row for row in run["faults"] if row["outcome"] in OUTCOMES]
    later = [row for row in rows if row["outcome"] == "killed" and row.get("survived_at")]
    missing = [row for row in run["faults"] if row["outcome"] == GONE]
    gone = [row for row in missing if "killed_at" not in row]
    return render(
        "mutants",
        run={"killed": 0, "survived": 0, "equivalent": 0, "again": None, "killed_again": None, **run},
        total=len(rows),
        drawn=len(rows) + len(gone),
        before=sum("killed_at" in row for row in run["faults"]),
        still=sum("killed_at" in row and row["outcome"] == "killed" for row in rows),
        first=run.get("killed", 0) - len(later),
        by_area=count_outcomes(rows, [area_of(row["file"]).name for row in rows]),
        by_rule=count_outcomes(rows, [row["rule"] for row in rows]),
        sections=[
            ("Survivors", [row for row in rows if row["outcome"] == "survived"]),
            ("Survived, and the source has changed there since", gone),
            ("Killed before, and the source has changed there since", [row for row in missing if row not in gone]),
            ("Survived at first, killed by a test that was added", later),
            ("Equivalent", [row for row in rows if row["outcome"] == "equivalent"]),
        ],
    )


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.with_suffix(".md").write_text(page(json.loads(file.read_text())))
