"""The page of a kept result: how many faults the tests saw, by area and rule, and those that they did not.

python -m tests.mutants.page benchmarks/results/mutants_202611.json      # writes the .md beside it
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.mutants.areas import area_of


def table(rows: list[dict[str, Any]], title: str, of: Any) -> Iterator[str]:
    """Planted, killed, survived, equivalent: by what ``of`` says of a row."""
    yield from ("", f"| {title} | planted | killed | survived | equivalent |", "|---|---|---|---|---|")
    for name in sorted({of(row) for row in rows}):
        mine = [row["outcome"] for row in rows if of(row) == name]
        yield (
            f"| {name} | {len(mine)} | "
            + " | ".join(str(mine.count(outcome)) for outcome in ("killed", "survived", "equivalent"))
            + " |"
        )


def listed(rows: list[dict[str, Any]], title: str) -> Iterator[str]:
    """Each with its place and change."""
    if rows:
        yield from ("", f"## {title}")
    for row in rows:
        yield from ("", f"`{row['file']}:{row['line']}` ({row['rule']}). {row.get('why', '')}".rstrip(), "")
        yield from ("```diff", row["diff"], "```")


def page(found: dict[str, Any]) -> str:
    """The whole page."""
    rows = [row for row in found["faults"] if row["outcome"] in {"killed", "survived", "equivalent"}]
    later = [row for row in rows if row["outcome"] == "killed" and row.get("survived_at")]
    gone = [row for row in found["faults"] if row["outcome"] == "no longer there"]
    lines = [
        "# Planted faults",
        "",
        f"`{found['command']}`, commit {found['commit']}, {found['date']}, Python {found['python']}, "
        f"gcc {found['gcc']}, {found['machine']}. What is planted and what counts: `tests/README.md`.",
        "",
        f"{len(rows)} faults: {found.get('killed', 0)} killed, {found.get('survived', 0)} survived, "
        f"{found.get('equivalent', 0)} equivalent. Killed of those that are not equivalent: "
        f"**{100 * found['rate']:.1f} %**; of all: {100 * found['rate_with_equivalents']:.1f} %.",
    ]
    if "again" in found:
        first = found.get("killed", 0) - len(later)
        drawn, equivalent = len(rows) + len(gone), found.get("equivalent", 0)
        lines.append(
            f"**The tests as they were when the faults were drawn killed {first} of these {drawn}**, {equivalent} of "
            "which are equivalent. For the others tests were added; then all survivors were judged again, at commit "
            f"{found['again']['commit']}, {found['again']['date']}. Of faults that nobody has looked at yet, expect "
            f"{first} of {drawn - equivalent}."
        )
    lines += table(rows, "area", lambda row: area_of(row["file"]).name)
    lines += table(rows, "rule", lambda row: row["rule"])
    lines += listed([row for row in rows if row["outcome"] == "survived"], "Survivors")
    lines += listed(gone, "Survived, and the source has changed there since")
    lines += listed(later, "Survived at first, killed by a test that was added")
    lines += listed([row for row in rows if row["outcome"] == "equivalent"], "Equivalent")
    return "\n".join(lines) + "\n"


def main() -> None:
    file = Path(sys.argv[1])
    file.with_suffix(".md").write_text(page(json.loads(file.read_text())))


if __name__ == "__main__":
    main()
